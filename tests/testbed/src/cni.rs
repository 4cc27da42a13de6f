//! Installation of a CNI plugin and its network configuration on a node.

use crate::node;
use crate::state::{Cluster, Node};
use anyhow::{Context, Result};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// CNI plugin and network configuration of the nodes. A node that lacks one of the two stays
/// `NotReady`.
#[derive(clap::Args)]
pub(crate) struct Plugin {
    /// Folder of plugins: its executables are copied to /opt/cni/bin of each node
    #[arg(long)]
    cni_dir: Option<PathBuf>,
    /// Network configuration list for /etc/cni/net.d of each node; {podCIDR}, {node} and {index}
    /// are replaced
    #[arg(long)]
    conflist: Option<PathBuf>,
    /// Go template of the list: containerd of each node renders it with the pod range from the API
    /// server
    #[arg(long, conflicts_with = "conflist")]
    conf_template: Option<PathBuf>,
}

/// File name of the configuration template in a node's folder.
pub(crate) const TEMPLATE: &str = "net.template";

impl Plugin {
    /// Returns true if a node with this plugin becomes Ready.
    pub(crate) fn is_complete(&self) -> bool {
        self.cni_dir.is_some() && (self.conflist.is_some() || self.conf_template.is_some())
    }

    /// Copies plugins and configuration into the node's folders. The node mounts these folders at
    /// the default CNI paths.
    pub(crate) fn install(&self, cluster: &Cluster, node: Node) -> Result<()> {
        if let Some(dir) = &self.cni_dir {
            let to = cluster.node_dir(node).join(node::PLUGINS);
            copy_executables(dir, &to)
                .with_context(|| format!("copy plugins from {}", dir.display()))?;
        }
        if let Some(template) = &self.conflist {
            let text = fs::read_to_string(template)
                .with_context(|| format!("read {}", template.display()))?;
            let to = cluster.node_dir(node).join("net.d/10-net.conflist");
            fs::write(&to, render(&text, node))
                .with_context(|| format!("write {}", to.display()))?;
        }
        if let Some(template) = &self.conf_template {
            let to = cluster.node_dir(node).join(TEMPLATE);
            fs::copy(template, to).with_context(|| format!("copy {}", template.display()))?;
        }
        Ok(())
    }
}

fn copy_executables(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let metadata = fs::metadata(&path)?;
        if let Some(name) = path.file_name()
            && metadata.is_file()
            && metadata.permissions().mode() & 0o111 != 0
        {
            let script = started_by(&path, from)?;
            copy(&path, &to.join(name), script)
                .with_context(|| format!("copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Copies the file `program` to `to`. If `script` is given, writes the text `script` to `to`
/// instead.
fn copy(program: &Path, to: &Path, script: Option<&str>) -> io::Result<()> {
    let Some(script) = script else {
        fs::copy(program, to)?;
        return Ok(());
    };
    fs::write(to, script)?;
    fs::set_permissions(to, fs::metadata(program)?.permissions())
}

/// Checks if `file` is a script that starts braid from the folder `from`. If so, returns the script
/// that starts braid on a node; `None` for any other file.
fn started_by(file: &Path, from: &Path) -> Result<Option<&'static str>> {
    let script = format!("#!{}/braid\n", from.display());
    let is_script =
        fs::metadata(file)?.len() == script.len() as u64 && fs::read(file)? == script.as_bytes();
    Ok(is_script.then_some("#!/opt/cni/bin/braid\n"))
}

fn render(template: &str, node: Node) -> String {
    template
        .replace("{podCIDR}", &node.pod_cidr())
        .replace("{node}", &node.to_string())
        .replace("{index}", &node.index().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_start_braid_start_the_nodes_own() -> Result<()> {
        let (from, to) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let script = format!("#!{}/braid\n", from.path().display());
        for (name, text) in [
            ("braid", "a program"),
            ("bridge", script.as_str()),
            ("other", "#!/bin/sh\n"),
        ] {
            fs::write(from.path().join(name), text)?;
            fs::set_permissions(from.path().join(name), fs::Permissions::from_mode(0o755))?;
        }
        fs::write(from.path().join(".braid.names"), "bridge\n")?;
        copy_executables(from.path(), to.path())?;
        let text = |name: &str| fs::read_to_string(to.path().join(name));
        assert_eq!(
            [text("braid")?, text("bridge")?, text("other")?],
            ["a program", "#!/opt/cni/bin/braid\n", "#!/bin/sh\n"]
        );
        let mode = fs::metadata(to.path().join("bridge"))?.permissions().mode();
        assert_eq!((mode & 0o777, fs::read_dir(to.path())?.count()), (0o755, 3));
        Ok(())
    }

    #[test]
    fn a_template_becomes_the_nodes_own_configuration() -> Result<()> {
        let template = r#"{"name": "{node}-{index}", "subnet": "{podCIDR}"}"#;
        let mut rendered = Vec::new();
        for node in Node::first(2, 0)? {
            rendered.push(render(template, node));
        }
        assert_eq!(
            rendered,
            [
                r#"{"name": "n1-1", "subnet": "10.244.1.0/24"}"#,
                r#"{"name": "n2-2", "subnet": "10.244.2.0/24"}"#
            ]
        );
        Ok(())
    }
}
