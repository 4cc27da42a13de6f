//! Configuration of a node by Multus' entry point. The check runs this program on the node, as in
//! the container of Multus' `DaemonSet`.

use super::{ACCOUNT, NAMESPACE};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use serde_json::json;
use std::fmt::{Display, Formatter};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The runtime's configuration folder, relative to the node's root.
const FOLDER: &str = "etc/cni/net.d";
/// Configuration file of the default network, which the start of the cluster has written.
const DEFAULT_NETWORK: &str = "/etc/cni/net.d/10-net.conflist";
/// Name of the default network. Multus reads further plugins from the folder with this name.
pub(super) const DEFAULT_NAME: &str = "pods";
/// Path of the kubeconfig that the entry point writes.
const KUBECONFIG: &str = "/etc/cni/net.d/multus.d/multus.kubeconfig";
/// Folder of a service account's token in a container. A node has no such folder below `/run`.
const TOKEN: &str = "run/secrets/kubernetes.io/serviceaccount";
const SECRETS: &str = "run/secrets";
/// File with an administrator's configuration of Multus, which the entry point copies.
const OWN: &str = "run/00-multus.conf";
/// Plugin type in the configuration that the entry point writes. The check changes nothing else in
/// the configuration.
const WAS: &str = r#""type": "multus""#;
/// Start of the line that the entry point prints when it has written the configuration.
const WRITTEN: &str = "multus config file";

/// Form of the configuration that the entry point writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A single plugin of CNI 0.4.0 that contains the default network, as in Multus' tests.
    Plugin,
    /// A plugin list that contains the default network, as with Multus' manifest.
    List,
    /// An administrator's file that names the file of the default network.
    Named,
}

impl Form {
    pub(super) const ALL: [Self; 3] = [Self::Plugin, Self::List, Self::Named];

    /// Returns the file name of the configuration that the entry point writes.
    fn file(self) -> &'static str {
        if self == Self::List {
            "00-multus.conflist"
        } else {
            "00-multus.conf"
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plugin => &[
                "--multus-conf-file=auto",
                "--force-cni-version=true",
                "--cni-version=0.4.0",
            ],
            Self::List => &["--multus-conf-file=auto"],
            Self::Named => &["--multus-conf-file=/run/00-multus.conf"],
        }
    }
}

impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plugin => "one plugin of CNI 0.4.0, as in Multus' own tests",
            Self::List => "a list, as by Multus' manifest",
            Self::Named => "a file that names the default network's file",
        })
    }
}

/// The running entry point. It waits for a signal after it has written the configuration. Dropping
/// the value kills it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The entry point may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the entry point, which writes a node's configuration. Then changes the plugin's type in
/// this configuration from `multus` to `plugin`, a program in the plugin folder.
pub(crate) fn write(
    cluster: &Cluster,
    node: Node,
    form: Form,
    (entrypoint, plugin): (&Path, &str),
) -> Result<()> {
    remove(cluster, node)?;
    let root = cluster.root(node)?;
    give_token(cluster, &root)?;
    let own = json!({"cniVersion": "0.4.0", "name": "multus-cni-network", "type": "multus",
        "capabilities": {"portMappings": true}, "kubeconfig": KUBECONFIG, "clusterNetwork": DEFAULT_NETWORK});
    put(&root.join(OWN), &format!("{own:#}"))?;
    run(cluster, node, form, (entrypoint, plugin))?;
    // With a real `DaemonSet` these files exist only in the container.
    delete(&root.join(SECRETS))?;
    delete(&root.join(OWN))?;
    let path = root.join(FOLDER).join(form.file());
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(
        text.matches(WAS).count() == 1,
        "{}: expected one plugin of type multus:\n{text}",
        path.display()
    );
    // Written under another name and renamed, because the runtime must not read a partial file.
    let changed = path.with_extension("changed");
    put(
        &changed,
        &text.replace(WAS, &format!(r#""type": "{plugin}""#)),
    )?;
    fs::rename(&changed, &path).with_context(|| format!("rename {}", changed.display()))
}

/// Writes the token of Multus' service account to the path that it has in a container.
fn give_token(cluster: &Cluster, root: &Path) -> Result<()> {
    let token = sh::read(&mut cluster.kubectl([
        "create",
        "token",
        ACCOUNT,
        "-n",
        NAMESPACE,
        "--duration=2h",
    ]))?;
    let authority = [
        "get",
        "configmap",
        "kube-root-ca.crt",
        "-n",
        NAMESPACE,
        "-o",
        r"jsonpath={.data.ca\.crt}",
    ];
    let authority = sh::read(&mut cluster.kubectl(authority))?;
    put(&root.join(TOKEN).join("token"), token.trim())?;
    put(&root.join(TOKEN).join("ca.crt"), &authority)
}

/// Runs the entry point until it has written the configuration.
fn run(
    cluster: &Cluster,
    node: Node,
    form: Form,
    (entrypoint, plugin): (&Path, &str),
) -> Result<()> {
    let server = sh::read(&mut cluster.kubectl([
        "config",
        "view",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]))?;
    let (host, port) = server
        .trim_start_matches("https://")
        .rsplit_once(':')
        .context("a server with a port")?;
    let [host, port] = [("HOST", host), ("PORT", port)]
        .map(|(key, value)| format!("KUBERNETES_SERVICE_{key}={value}"));
    let mut command = cluster.on(node, ["env", &host, &port])?;
    command.arg(entrypoint).args(form.flags());
    // In Multus' container these folders are below /host. The entry point creates the last one.
    command.args([
        "--cni-conf-dir=/etc/cni/net.d",
        "--multus-autoconfig-dir=/etc/cni/net.d",
    ]);
    command.arg("--multus-cni-conf-dir=/etc/cni/net.d/multus.d/net.d");
    command.args([
        "--cni-bin-dir=/opt/cni/bin",
        &format!("--multus-bin-file=/opt/cni/bin/{plugin}"),
        "--skip-multus-binary-copy",
    ]);
    let mut running = Running(
        command
            .stdout(Stdio::piped())
            .spawn()
            .context("start Multus' entry point")?,
    );
    let mut lines = BufReader::new(
        running
            .0
            .stdout
            .take()
            .context("the entry point has no output")?,
    )
    .lines();
    let mut said = Vec::new();
    while !said
        .last()
        .is_some_and(|line: &String| line.starts_with(WRITTEN))
    {
        let Some(line) = lines.next() else {
            bail!("Multus' entry point has ended: {}", said.join("; "))
        };
        said.push(line.context("read the output of Multus' entry point")?);
    }
    Ok(())
}

/// Returns the folder from which Multus reads further plugins of the default network.
pub(super) fn chain(cluster: &Cluster, node: Node) -> Result<PathBuf> {
    Ok(cluster.root(node)?.join(FOLDER).join(DEFAULT_NAME))
}

/// Writes a file, and creates its folder if it is missing.
pub(super) fn put(path: &Path, text: &str) -> Result<()> {
    let created = path.parent().map_or(Ok(()), fs::create_dir_all);
    created
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("write {}", path.display()))
}

/// Removes all of Multus' files from a node, and the further plugins of the default network.
pub(super) fn remove(cluster: &Cluster, node: Node) -> Result<()> {
    let root = cluster.root(node)?;
    let folder = root.join(FOLDER);
    for form in Form::ALL {
        delete(&folder.join(form.file()))?;
    }
    delete(&folder.join("multus.d"))?;
    delete(&chain(cluster, node)?)?;
    delete(&root.join(SECRETS))?;
    delete(&root.join(OWN))
}

/// Deletes a file or a folder if it exists.
pub(crate) fn delete(path: &Path) -> Result<()> {
    let deleted = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match deleted {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            Err(err).with_context(|| format!("delete {}", path.display()))
        }
        _ => Ok(()),
    }
}
