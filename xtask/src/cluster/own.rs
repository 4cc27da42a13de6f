//! A cluster for the duration of a closure.

use crate::verb;
use anyhow::{Result, bail};
use braid_testbed::{Cluster, down, sh};
use std::path::Path;

/// Plugins and configuration of the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nodes<'a> {
    pub(crate) plugins: &'a Path,
    /// Name of a list in `tests/testbed/conflists/`.
    pub(crate) conflist: &'a str,
    pub(crate) kube_proxy: bool,
}

/// Starts a cluster, calls `work`, and shuts the cluster down. Fails if a cluster is already
/// running. If an earlier cluster was killed, removes its files first.
pub(crate) fn with<T>(nodes: Nodes<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Nodes {
        plugins,
        conflist,
        kube_proxy,
    } = nodes;
    if let Ok(found) = Cluster::running() {
        if down::has_processes()? {
            bail!(
                "a cluster runs at {}: run `cargo xtask cluster down` first",
                found.dir().display()
            );
        }
        down::run()?;
    }
    let Some(plugins) = plugins.to_str() else {
        bail!("{} is not UTF-8", plugins.display())
    };
    let conflist = format!("tests/testbed/conflists/{conflist}.conflist");
    println!("--- a cluster whose conflist is {conflist}");
    let up = [
        "cluster",
        "up",
        "--cni-dir",
        plugins,
        "--conflist",
        &conflist,
    ];
    let up = sh::run(verb::command(up)?.args(kube_proxy.then_some("--kube-proxy")));
    let done = up.and_then(|()| work());
    let ended = sh::run(&mut verb::command(["cluster", "down"])?);
    let done = done?;
    ended.map(|()| done)
}
