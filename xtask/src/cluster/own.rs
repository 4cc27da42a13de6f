//! A cluster for the duration of a closure.

use crate::verb;
use anyhow::{Context, Result, bail};
use braid_testbed::{Cluster, down, sh};
use std::path::Path;

/// Plugins and configuration of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Nodes<'a> {
    /// Two machines without any network for pods, and one behind a router, all with both families
    /// and kube-proxy.
    Wide {
        /// MTU of the links between nodes.
        mtu: u16,
    },
    /// Two machines without any network for pods, with kube-proxy.
    Bare,
    /// Machines with plugins and kube-proxy, both families, and without a network for pods.
    Plugins {
        plugins: &'a Path,
        /// Number of nodes on one link.
        near: u8,
        /// Number of nodes behind a router.
        far: u8,
    },
    /// Two nodes with plugins and a configuration.
    With {
        plugins: &'a Path,
        /// Name of a list in `tests/testbed/conflists/`.
        conflist: &'a str,
        kube_proxy: bool,
    },
}

impl Nodes<'_> {
    /// Returns the arguments of `cargo xtask cluster up`.
    fn arguments(&self) -> Result<Vec<String>> {
        let text = |plugins: &Path| {
            let text = plugins
                .to_str()
                .map(|plugins| format!("--cni-dir={plugins}"));
            text.with_context(|| format!("{} is not UTF-8", plugins.display()))
        };
        let (plugins, conflist, kube_proxy) = match self {
            Self::Wide { mtu } => {
                let mtu = format!("--mtu={mtu}");
                let all = ["--far-nodes=1", "--dual-stack", "--kube-proxy", &mtu];
                return Ok(all.map(String::from).to_vec());
            }
            Self::Bare => return Ok(vec!["--kube-proxy".to_owned()]),
            Self::Plugins { plugins, near, far } => {
                return Ok(vec![
                    text(plugins)?,
                    format!("--nodes={near}"),
                    format!("--far-nodes={far}"),
                    "--dual-stack".to_owned(),
                    "--kube-proxy".to_owned(),
                ]);
            }
            Self::With {
                plugins,
                conflist,
                kube_proxy,
            } => (plugins, conflist, kube_proxy),
        };
        let mut arguments = vec![
            text(plugins)?,
            format!("--conflist=tests/testbed/conflists/{conflist}.conflist"),
        ];
        arguments.extend(kube_proxy.then(|| "--kube-proxy".to_owned()));
        Ok(arguments)
    }
}

/// Starts a cluster, calls `work`, and shuts the cluster down. Fails if a cluster is already
/// running. If an earlier cluster was killed, removes its files first.
pub(crate) fn with<T>(nodes: Nodes<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if let Ok(found) = Cluster::running() {
        if down::has_processes()? {
            bail!(
                "a cluster runs at {}: run `cargo xtask cluster down` first",
                found.dir().display()
            );
        }
        down::run()?;
    }
    let arguments = nodes.arguments()?;
    println!("--- a cluster: {}", arguments.join(" "));
    let up = sh::run(verb::command(["cluster", "up"])?.args(arguments));
    let done = up.and_then(|()| work());
    let ended = sh::run(&mut verb::command(["cluster", "down"])?);
    let done = done?;
    ended.map(|()| done)
}
