//! The Helm chart in deploy/chart, and the manifests that are generated from it.

use crate::state::{CONTROL_PLANE, Cluster, in_netns};
use crate::{sh, tools};
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write;
use std::process::Command;

/// Folder of the chart.
pub const CHART: &str = "deploy/chart";
/// Name of the release, which no object has.
pub const RELEASE: &str = "braid";
/// Line before each object that helm renders, with the path of its template.
const SOURCE: &str = "---\n# Source: braid/templates/";

/// A manifest that is generated from the chart.
#[derive(Debug)]
pub struct Manifest {
    /// Path of the file.
    pub path: &'static str,
    /// Comment at its beginning.
    head: &'static str,
    /// Values of the chart, as arguments of helm.
    values: &'static [&'static str],
    /// Templates of its objects, in the order of the file.
    templates: &'static [&'static str],
}

/// The generated manifests.
pub const MANIFESTS: [Manifest; 4] = [
    Manifest {
        path: "deploy/braid.yaml",
        head: "\
# braid on a cluster: the default network, routes between nodes, and networks by annotation. The page docs/kubernetes.md of
# the book explains it; README.md beside this file has the commands.
# `cargo xtask manifests` writes this file from the chart in deploy/chart, so change the chart.
#
",
        values: &[],
        templates: &["crds", "rbac", "policies", "configmap", "daemonset"],
    },
    Manifest {
        path: "deploy/flannel.yaml",
        head: "\
# Mode `flannel` of the agent: its rights beside deploy/braid.yaml. The agent reads flannel's settings, and writes flannel's
# annotations of its own Node.
# `cargo xtask manifests` writes this file from the chart in deploy/chart, so change the chart.
#
",
        values: &["--set=flannel.enabled=true"],
        templates: &["flannel"],
    },
    Manifest {
        path: "deploy/ipam.yaml",
        head: "\
# Kinds and rights of the IPAM `whereabouts`, for clusters without Whereabouts. They are Whereabouts' own kinds, so a
# cluster that has them needs the rights alone. Removing braid does not remove them: addresses of pods are in them.
# `cargo xtask manifests` writes this file from the chart in deploy/chart, so change the chart.
#
",
        values: &["--set=ipam.enabled=true"],
        templates: &["ipam"],
    },
    Manifest {
        path: "deploy/dra.yaml",
        head: "\
# Resource claims for links of nodes: classes, and the rights of the agent beside deploy/braid.yaml. The agent offers links
# with `dra: {enabled: true}` in its configuration, if its container mounts the kubelet's folders `plugins_registry` and
# `plugins/braid.dev` by the node's paths, as the chart's does with `dra.enabled`. Kubernetes 1.36 has the features; 1.34 and
# 1.35 with the feature gate DRAConsumableCapacity.
# `cargo xtask manifests` writes this file from the chart in deploy/chart, so change the chart.
#
",
        values: &["--set=dra.enabled=true"],
        templates: &["dra"],
    },
];

impl Manifest {
    /// Renders the text of the file.
    pub fn text(&self) -> Result<String> {
        let rendered = render(self.values)?;
        Ok(format!(
            "{}{}",
            self.head,
            arranged(&rendered, self.templates)?
        ))
    }
}

/// Renders the chart with arguments such as `--set=network.mtu=1400`.
pub fn render<S: AsRef<OsStr>>(arguments: &[S]) -> Result<String> {
    sh::read(helm(["template", RELEASE, CHART])?.args(arguments))
}

/// Parses the objects of a manifest.
pub fn objects(manifest: &str) -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(manifest).context("parse a manifest")
}

/// Returns the patch of the `DaemonSet` that removes braid from the nodes, as the notes of an
/// installation with these values print it.
pub fn removal<S: AsRef<OsStr>>(values: &[S]) -> Result<String> {
    const OPTION: &str = " --patch '";
    let notes = sh::read(helm(["install", RELEASE, CHART, "--dry-run=client"])?.args(values))?;
    let patch = notes.lines().find_map(|line| line.split_once(OPTION));
    let (_, patch) = patch.context("the notes have no patch")?;
    Ok(patch.trim_end_matches('\'').to_owned())
}

/// Returns a command of helm with its own files in the cache. Builds helm if it is missing.
pub fn helm<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut helm = sh::cmd(tools::helm()?, arguments);
    set_folders(&mut helm);
    Ok(helm)
}

/// Returns a command of helm that runs as administrator of a cluster.
pub fn helm_of(cluster: &Cluster, arguments: &[&str]) -> Result<Command> {
    let mut helm = in_netns(CONTROL_PLANE, tools::helm()?);
    helm.args(arguments).arg("--kubeconfig");
    helm.arg(cluster.pki("admin.conf"));
    set_folders(&mut helm);
    Ok(helm)
}

/// Sets the folders of helm's own files.
fn set_folders(helm: &mut Command) {
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, sh::cache().join("helm"));
    }
}

/// Returns an error message unless helm has been built.
pub fn missing() -> Option<String> {
    let is_built = tools::present_helm().is_file();
    (!is_built).then(|| "needs helm, which `cargo xtask manifests --check` builds".to_owned())
}

/// Returns the objects of these templates, in this order. helm orders objects by kind.
fn arranged(rendered: &str, templates: &[&str]) -> Result<String> {
    let mut text = String::new();
    for template in templates {
        let name = format!("{template}.yaml\n");
        let objects = rendered.split(SOURCE);
        let mut objects = objects.filter_map(|object| object.strip_prefix(&name));
        let first = objects
            .next()
            .with_context(|| format!("templates/{template}.yaml renders no object"))?;
        for object in std::iter::once(first).chain(objects) {
            let separator = if text.is_empty() { "" } else { "---\n" };
            writeln!(text, "{separator}{}", object.trim_end())?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_follow_the_order_of_templates_and_keep_their_comments() {
        let rendered = "---\n# Source: braid/templates/b.yaml\n# one\nkind: A\n\n---\n\
                        # Source: braid/templates/a.yaml\nkind: B\n---\n\
                        # Source: braid/templates/b.yaml\nkind: C\n";
        let text = arranged(rendered, &["a", "b"]).expect("both templates");
        assert_eq!(text, "kind: B\n---\n# one\nkind: A\n---\nkind: C\n");
        let err = arranged(rendered, &["a", "c"]).expect_err("no such template");
        assert_eq!(err.to_string(), "templates/c.yaml renders no object");
    }
}
