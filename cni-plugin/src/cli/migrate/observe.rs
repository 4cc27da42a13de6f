//! Plugins, networks and attachments of a node, and traces of other programs.

use crate::cli::install::detect::{self, Folders};
use crate::cli::install::folder::Bin;
use braid_core::cni::Json;
use braid_core::k8s::takeover::plugins_of;
use braid_core::k8s::text_at;
use braid_core::plugins::meta::flannel::SUBNET_FILE;
use braid_node::ipam::liveness::LIBCNI_CACHE_DIR;
use braid_node::source::files;
use braid_node::store::record;
use braid_node::takeover::examples::is_example;
use braid_node::takeover::names_of;
use braid_node::takeover::root::{Root, file_names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::path::Path;

/// Folder with an entry for each link.
const LINKS: &str = "/sys/class/net";
/// Notes of Multus about attached pods.
const MULTUS: &str = "/var/lib/cni/multus";

/// The node's plugins, networks and attachments.
#[derive(Debug, Default, Serialize)]
pub(super) struct Node {
    pub(super) plugins: Plugins,
    /// In the order in which runtimes choose one.
    pub(super) networks: Vec<Network>,
    /// Attachments without a record of braid.
    pub(super) attachments: Vec<Attachment>,
    pub(super) traces: Vec<Trace>,
}

/// The plugin folder.
#[derive(Debug, Default, Serialize)]
pub(super) struct Plugins {
    pub(super) folder: String,
    /// Reason why runtimes use this folder.
    pub(super) why: String,
    pub(super) of_braid: Vec<String>,
    pub(super) of_others: Vec<String>,
}

/// A network configuration.
#[derive(Debug, Default, Serialize)]
pub(super) struct Network {
    pub(super) file: String,
    pub(super) name: String,
    /// Types of its plugins.
    pub(super) types: Vec<String>,
    /// Types of its plugins' IPAM.
    pub(super) ipams: Vec<String>,
    /// True if the runtime uses it for pods: the first one that is not an example of a package.
    pub(super) is_default: bool,
}

/// An attachment in the runtime's cache.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Attachment {
    #[serde(alias = "networkName")]
    pub(super) network: String,
    #[serde(alias = "containerId", rename(serialize = "container_id"))]
    pub(super) container_id: String,
    #[serde(alias = "ifName")]
    pub(super) ifname: String,
}

/// A trace of another program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Trace {
    pub(super) program: &'static str,
    pub(super) detail: String,
}

/// Reads the node.
pub(super) fn node() -> Result<Node, Box<dyn Error>> {
    let root = Root::new(Path::new("/"));
    let Folders {
        plugins,
        networks: folder,
        why,
    } = detect::folders(&root);
    let (mut of_braid, mut of_others) = (Vec::new(), Vec::new());
    let bin = Bin::of_node(&plugins);
    for name in file_names(&plugins) {
        let is_own = bin.entry(&name)?.is_own();
        if is_own {
            &mut of_braid
        } else {
            &mut of_others
        }
        .push(name);
    }
    let networks = networks(&root, &folder)?;
    let traces = traces(&networks);
    Ok(Node {
        plugins: Plugins {
            folder: plugins.display().to_string(),
            why,
            of_braid,
            of_others,
        },
        networks,
        attachments: attachments()?,
        traces,
    })
}

fn networks(root: &Root, folder: &Path) -> io::Result<Vec<Network>> {
    let names = match names_of(root, folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let mut networks = Vec::new();
    for name in names {
        let path = folder.join(&name);
        let file = path.display().to_string();
        let parsed = files::bytes(&path).map(|bytes| Json::parse(&bytes, &file));
        let mut network = Network {
            file,
            name: "not a valid configuration".to_owned(),
            ..Network::default()
        };
        if let Ok(Ok(json)) = parsed {
            text_at(&json, "name")
                .unwrap_or_default()
                .clone_into(&mut network.name);
            for plugin in plugins_of(&json) {
                network
                    .types
                    .extend(text_at(plugin, "type").map(str::to_owned));
                let ipam = plugin.get("ipam").and_then(|ipam| text_at(ipam, "type"));
                network.ipams.extend(ipam.map(str::to_owned));
            }
            let is_first = networks.iter().all(|it: &Network| !it.is_default);
            network.is_default = is_first && !is_example(&json);
        }
        networks.push(network);
    }
    Ok(networks)
}

/// Reads libcni's cache. Containers with a record of braid are left out.
fn attachments() -> Result<Vec<Attachment>, Box<dyn Error>> {
    let mut own = BTreeSet::new();
    for record in record::list()? {
        own.insert(record.key.owner.container_id.clone());
    }
    let mut attachments: Vec<Attachment> = Vec::new();
    for name in file_names(Path::new(LIBCNI_CACHE_DIR)) {
        let bytes = files::bytes(&Path::new(LIBCNI_CACHE_DIR).join(name)).unwrap_or_default();
        attachments.extend(serde_json::from_slice(&bytes).ok());
    }
    attachments.retain(|it| !own.contains(&it.container_id));
    Ok(attachments)
}

fn traces(networks: &[Network]) -> Vec<Trace> {
    let mut traces = Vec::new();
    let mut add = |program, detail: String| traces.push(Trace { program, detail });
    if Path::new(SUBNET_FILE).exists() {
        add("flannel", format!("{SUBNET_FILE} exists"));
    }
    for link in links() {
        if link.starts_with("flannel.") || link.starts_with("flannel-v6.") {
            add("flannel", format!("link {link}"));
        }
    }
    for network in networks {
        for kind in &network.types {
            if kind == "multus" || kind == "multus-shim" {
                add("Multus", format!("{} has type {kind}", network.file));
            }
        }
        if network.ipams.iter().any(|ipam| ipam == "whereabouts") {
            add("Whereabouts", format!("{} has its IPAM", network.file));
        }
    }
    let notes = file_names(Path::new(MULTUS)).len();
    if notes > 0 {
        add("Multus", format!("{notes} files in {MULTUS}"));
    }
    for folder in ["/etc/cni/net.d/whereabouts.d", "/var/lib/cni/whereabouts"] {
        if Path::new(folder).is_dir() {
            add("Whereabouts", format!("{folder} exists"));
        }
    }
    traces
}

/// Returns the names of all links.
fn links() -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(LINKS).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    names
}
