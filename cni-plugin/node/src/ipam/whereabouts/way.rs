//! The way to a pool: kubeconfig, API server, identity of the node, and the node's part of a range.

use super::store::{self, FOLDER};
use crate::ipam::flat_file;
use crate::sys::boot;
use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Failure, Server, Servers};
use braid_core::ipam::whereabouts::journal::Place;
use braid_core::ipam::whereabouts::pool::Node;
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, names};
use ipnet::IpNet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kubeconfigs of braid and of Multus, for networks without one.
const KUBECONFIGS: [&str; 2] = [
    "/etc/cni/net.d/braid.d/kubeconfig",
    "/etc/cni/net.d/multus.d/multus.kubeconfig",
];

/// Returns the kubeconfig of a network: its own, that of the flat file, or the meta plugin's.
pub(super) fn kubeconfig(config: &WhereaboutsConfig) -> Result<PathBuf, Error> {
    if let Some(path) = &config.kubeconfig {
        return Ok(path.clone());
    }
    of_node()
}

/// Returns the kubeconfig of networks without one, by the flat file or the meta plugin.
pub fn default_kubeconfig() -> Result<PathBuf, Error> {
    match flat_file::kubeconfig()? {
        Some(path) => Ok(path),
        None => of_node(),
    }
}

/// Returns the kubeconfig of the meta plugin.
fn of_node() -> Result<PathBuf, Error> {
    let mut found = KUBECONFIGS.iter().map(PathBuf::from);
    found.find(|path| path.exists()).ok_or_else(|| {
        let [braid, multus] = KUBECONFIGS;
        let why = format!(
            "neither the network nor a flat file has kubernetes.kubeconfig, and there is no {braid} or \
             {multus}"
        );
        Error::config(why).at_key("ipam")
    })
}

fn place(config: &WhereaboutsConfig, kubeconfig: &Path, name: String, net: IpNet) -> Place {
    Place {
        name,
        net,
        network: config.network_name.clone(),
        has_reservations: config.has_reservations,
        kubeconfig: kubeconfig.to_owned(),
    }
}

/// The way to the API server, and the node's identity once it was needed.
pub(super) struct Way<'a> {
    boot: String,
    pod: Option<&'a (String, String)>,
    kubeconfig: PathBuf,
    pub(super) server: Box<dyn Server>,
    node: Option<Node>,
}

impl<'a> Way<'a> {
    /// Opens the way for the pod of a call, for requests that together take no longer than `limit`. No
    /// request is sent yet.
    pub(super) fn new(
        servers: &dyn Servers,
        kubeconfig: &Path,
        pod: Option<&'a (String, String)>,
        limit: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            boot: this_boot()?,
            pod,
            kubeconfig: kubeconfig.to_owned(),
            server: servers.open(kubeconfig, limit),
            node: None,
        })
    }

    /// Returns the node's identity.
    pub(super) fn node(&mut self) -> Result<Node, Error> {
        if let Some(node) = &self.node {
            return Ok(node.clone());
        }
        let node = identity(&self.boot, self.pod, &mut *self.server)?;
        Ok(self.node.insert(node).clone())
    }
}

/// Returns the pool of a range, and the part of the range that the node may assign addresses of.
pub(super) fn pool_of(
    config: &WhereaboutsConfig,
    range: &PoolRange,
    way: &mut Way<'_>,
) -> Result<(Place, PoolRange), Error> {
    let network = &config.network_name;
    let Some(slices) = &config.slices else {
        let name = names::pool(network, range.net);
        return Ok((
            place(config, &way.kubeconfig, name, range.net),
            range.clone(),
        ));
    };
    let node = way.node()?.name;
    let slice = way.server.slice(slices, &node);
    let slice = slice.map_err(|err| failed(&format!("NodeSlicePool {slices}"), &err))?;
    let part = slice.and_then(|slice| range.slice(slice));
    let part = part.ok_or_else(|| {
        let net = range.net;
        let why = format!("NodeSlicePool {slices} has no slice of {net} for node {node}");
        // Whereabouts' controller may still have to divide the range.
        Error::new(Kind::TryAgain, why)
    })?;
    let name = names::slice_pool(network, &node, part.net);
    Ok((place(config, &way.kubeconfig, name, part.net), part))
}

/// Returns the node's identity. The API server tells name and uid once in each boot: a Node that was
/// registered again has another uid.
fn identity(
    boot: &str,
    pod: Option<&(String, String)>,
    server: &mut dyn Server,
) -> Result<Node, Error> {
    let path = store::node(Path::new(FOLDER));
    let known = store::read::<Node>(&path)?;
    if let Some(known) = known.clone().filter(|known| known.boot == boot) {
        server.act_for(&known.name);
        return Ok(known);
    }
    let name = match (pod, known) {
        (Some((namespace, pod)), _) => {
            let name = server.node_of(namespace, pod);
            name.map_err(|err| failed("pod", &err))?
        }
        (None, Some(known)) => known.name,
        (None, None) => return Err(Error::env("CNI_ARGS has no pod name: K8S_POD_NAME")),
    };
    let found = server.node(&name).map_err(|err| failed("Node", &err))?;
    let found = found.ok_or_else(|| failed("Node", &Failure::Missing))?;
    let uid = found.uid;
    let boot = boot.to_owned();
    let node = Node { name, uid, boot };
    server.act_for(&node.name);
    remember(&path, &node)?;
    Ok(node)
}

/// Writes the node's identity.
pub(super) fn remember(path: &Path, node: &Node) -> Result<(), Error> {
    let _lock = store::locked(&path.with_extension("lock"))?;
    store::write(path, node)
}

/// Returns the id of this boot. An address that an unknown boot assigned would be released.
pub(super) fn this_boot() -> Result<String, Error> {
    boot::id().map_err(|err| Error::io(format!("read {}: {err}", boot::ID)))
}

pub(super) fn failed(what: &str, err: &Failure) -> Error {
    let kind = match err {
        Failure::Passing(_) => Kind::TryAgain,
        Failure::Exists | Failure::Unfit | Failure::Missing | Failure::Lasting(_) => Kind::Internal,
    };
    Error::new(kind, format!("read the {what}: {err}"))
}
