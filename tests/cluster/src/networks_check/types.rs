//! Networks of the types other than bridge and macvlan, all in one pod: interfaces, traffic, and
//! the return of the host device to its node.
//!
//! ```text
//!   router ── br2 ── device   the node's own eth2, while the pod runs
//!      └ lo ─ br1 ── sourced  macvlan on eth1 with sbr: replies to the router's lo leave here
//!             br1 ── tagged   vlan 7 on eth1, if the kernel has 802.1q
//!   node ─────────── direct   ptp
//!   node ─────────── flannel  bridge, by flannel from flanneld's file
//! ```

use super::traffic::{Place, expect};
use super::{APP, attached, await_nothing_left, create, manifests, traces};
use crate::{limit_check, pods};
use anyhow::{Context, Result, ensure};
use braid_testbed::lan::{BEYOND, DEVICE, ROUTERS};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use serde_json::{Value, json};
use std::fs;

const OWN: &str = "device";
const SOURCED: &str = "sourced";
const DIRECT: &str = "direct";
const FLANNEL: &str = "flannel";
const TAGGED: &str = "tagged";
/// Path of flanneld's file, relative to a node's root.
const SUBNET_FILE: &str = "run/flannel/subnet.env";
/// Name of a vlan link, which the kernel can create only with 802.1q.
const PROBE: &str = "probe.7";

/// A pod with networks of all types. `networks` holds their names and the pod's addresses.
struct Typed {
    name: String,
    node: Node,
    networks: Vec<(&'static str, String)>,
}

/// Attaches pods to networks of all types. Fails unless each pod has its requested networks. After
/// the pods end, fails unless each node has its device back unchanged and has no leftovers. If
/// `is_brief`, there is only one pod and no vlan, because vlan traffic needs two pods.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2], is_brief: bool) -> Result<()> {
    let count = if is_brief { 1 } else { nodes.len() };
    let has_vlan = has_vlan(cluster, nodes[0])?;
    if !has_vlan {
        println!("left out: vlan, because this kernel has no 802.1q");
    }
    let typed = (1..)
        .zip(nodes)
        .take(count)
        .map(|(number, node)| Typed::new(number, node, has_vlan && !is_brief));
    let typed: Vec<Typed> = typed.collect();
    cluster.create(&definitions())?;
    for (number, node) in (1..).zip(nodes) {
        write_subnet_file(cluster, number, node)?;
    }
    let before = devices(cluster, nodes)?;
    let seconds = create(cluster, &typed.iter().map(Typed::pod).collect::<Vec<_>>())?;
    println!("{count} pods with networks of other types Ready after {seconds:.1} s");
    attached::check(cluster, (APP, nodes), |_| names(&typed[0]))?;
    for one in &typed {
        check_device(cluster, one, &before)?;
        check_sources(cluster, one)?;
        traffic(
            cluster,
            one,
            typed.iter().find(|other| other.node != one.node),
        )?;
    }
    let traces = traces(cluster, nodes)?;
    pods::delete(cluster, "pod", APP)?;
    await_nothing_left(cluster, &traces)?;
    let after = devices(cluster, nodes)?;
    ensure!(
        before == after,
        "{DEVICE} of the nodes was {before:?} and is {after:?}"
    );
    println!("{DEVICE} is back on the nodes: name, MAC, MTU, alias, up, no address");
    Ok(())
}

/// Returns true if the node's kernel can create a vlan link.
fn has_vlan(cluster: &Cluster, node: Node) -> Result<bool> {
    let add = [
        "ip", "link", "add", PROBE, "link", "eth1", "type", "vlan", "id", "7",
    ];
    match sh::read(&mut cluster.on(node, add)?) {
        Ok(_) => sh::read(&mut cluster.on(node, ["ip", "link", "del", PROBE])?).map(|_| true),
        Err(err) if format!("{err:#}").contains("Unknown device type") => Ok(false),
        Err(err) => Err(err),
    }
}

/// Returns the `NetworkAttachmentDefinition` objects. Pods request fixed addresses on the LANs,
/// because all nodes share each LAN.
fn definitions() -> Vec<Value> {
    let [lan, devices] = ROUTERS.map(|router| router.to_string());
    let ipam = |subnet: &str, gateway: &str| json!({"type": "host-local", "subnet": subnet, "gateway": gateway});
    let asked = json!({"ips": true});
    let own = json!({"type": "host-device", "device": DEVICE, "capabilities": asked,
        "ipam": ipam("198.18.3.0/24", &devices)});
    let macvlan = json!({"type": "macvlan", "master": "eth1", "capabilities": asked,
        "ipam": ipam("198.18.1.0/24", &lan)});
    let sourced = json!({"plugins": [macvlan, {"type": "sbr"}]});
    let tagged = json!({"type": "vlan", "master": "eth1", "vlanId": 7, "capabilities": asked,
        "ipam": {"type": "host-local", "subnet": "198.18.5.0/24"}});
    let direct = json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "198.18.6.0/24"}});
    let flannel = json!({"type": FLANNEL, "delegate": {"bridge": "flannel0"}});
    let all = [
        (OWN, own),
        (SOURCED, sourced),
        (TAGGED, tagged),
        (DIRECT, direct),
        (FLANNEL, flannel),
    ];
    let nad = |(name, mut config): (&str, Value)| {
        config["cniVersion"] = json!("1.0.0");
        manifests::nad(name, &config)
    };
    all.into_iter().map(nad).collect()
}

/// Writes the file with a node's subnet, as flanneld would.
fn write_subnet_file(cluster: &Cluster, number: u8, node: Node) -> Result<()> {
    let path = cluster.root(node)?.join(SUBNET_FILE);
    fs::create_dir_all(path.parent().context("a folder")?)?;
    let subnet =
        format!("FLANNEL_SUBNET=10.245.{number}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n");
    fs::write(&path, format!("FLANNEL_NETWORK=10.245.0.0/16\n{subnet}"))
        .with_context(|| format!("write {SUBNET_FILE}"))
}

impl Typed {
    fn new(number: u8, node: Node, has_vlan: bool) -> Self {
        // The second address is on the LAN of eth1. The router sends its requests to this address
        // from its loopback address.
        let mut networks = vec![
            (OWN, format!("198.18.3.{}", 10 + number)),
            (SOURCED, format!("198.18.1.{}", 32 + number)),
            (DIRECT, String::new()),
            (FLANNEL, String::new()),
        ];
        if has_vlan {
            networks.push((TAGGED, format!("198.18.5.{}", 10 + number)));
        }
        Self {
            name: format!("{APP}-typed-{node}"),
            node,
            networks,
        }
    }

    fn pod(&self) -> Value {
        let network = |(name, address): &(&str, String)| {
            let ips = if address.is_empty() {
                json!(null)
            } else {
                json!([format!("{address}/24")])
            };
            json!({"name": name, "ips": ips})
        };
        let networks: Vec<Value> = self
            .networks
            .iter()
            .map(network)
            .map(without_null)
            .collect();
        manifests::with_networks(
            &manifests::pod(&self.name, self.node, limit_check::spec()),
            &json!(networks),
        )
    }

    /// Returns the pod's interface in a network and its address there, from the pod's status.
    fn address(&self, cluster: &Cluster, network: &str) -> Result<(String, String)> {
        let at = self
            .networks
            .iter()
            .position(|(name, _)| *name == network)
            .context("no such network")?
            + 1;
        Ok((
            format!("net{at}"),
            attached::address(cluster, &self.name, at)?,
        ))
    }
}

fn without_null(mut network: Value) -> Value {
    if let Some(keys) = network.as_object_mut() {
        keys.retain(|_, value| !value.is_null());
    }
    network
}

fn names(typed: &Typed) -> Vec<String> {
    let own = typed
        .networks
        .iter()
        .map(|(name, _)| format!("default/{name}"));
    std::iter::once("pods".to_owned()).chain(own).collect()
}

/// Returns the state of the device [`DEVICE`] on each node, with the node's name.
fn devices(cluster: &Cluster, nodes: [Node; 2]) -> Result<Vec<(String, Value)>> {
    nodes
        .into_iter()
        .map(|node| Ok((node.to_string(), device(cluster, node)?)))
        .collect()
}

fn device(cluster: &Cluster, node: Node) -> Result<Value> {
    let shown =
        sh::read(&mut cluster.on(node, ["ip", "-j", "-d", "addr", "show", "dev", DEVICE])?)?;
    let shown: Value = serde_json::from_str(&shown).context("parse the device")?;
    let link = &shown[0];
    let flags = link["flags"].as_array().into_iter().flatten();
    let addresses = link["addr_info"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|address| address["scope"] == "global");
    Ok(
        json!({"name": link["ifname"], "mac": link["address"], "mtu": link["mtu"], "alias": link["ifalias"],
        "altnames": link["altnames"], "up": flags.into_iter().any(|flag| flag == "UP"),
        "addresses": addresses.collect::<Vec<_>>()}),
    )
}

/// Fails unless the node's device has moved into the pod: the node no longer has it, and the pod
/// has an interface with its hardware address.
fn check_device(cluster: &Cluster, typed: &Typed, before: &[(String, Value)]) -> Result<()> {
    let links = sh::read(&mut cluster.on(typed.node, ["ip", "-j", "link"])?)?;
    let links: Value = serde_json::from_str(&links).context("parse the links")?;
    let mut links = links.as_array().into_iter().flatten();
    ensure!(
        !links.any(|link| link["ifname"] == DEVICE),
        "{} still has {DEVICE}",
        typed.node
    );
    let (_, was) = before
        .iter()
        .find(|(node, _)| *node == typed.node.to_string())
        .context("a node without device")?;
    let status = pods::network_status(&super::get(cluster, &["pod", &typed.name])?);
    ensure!(
        status[1]["mac"] == was["mac"],
        "{} has another device than {was}: {:?}",
        typed.name,
        status[1]
    );
    Ok(())
}

/// Checks the interface of packets by their source address. Packets from the address of the sbr
/// network must leave by that network's interface. Packets from the pod's other addresses must
/// leave by eth0.
fn check_sources(cluster: &Cluster, typed: &Typed) -> Result<()> {
    let (interface, address) = typed.address(cluster, SOURCED)?;
    let to = BEYOND.to_string();
    for (source, expected) in [(&["from", &address][..], interface.as_str()), (&[], "eth0")] {
        let get = [&["ip", "-j", "route", "get", &to], source].concat();
        let route = attached::in_pod(cluster, typed.node, &typed.name, &get)?;
        ensure!(
            route[0]["dev"] == expected,
            "{}: {route} does not leave by {expected}",
            typed.name
        );
    }
    Ok(())
}

/// Sends requests to the pod `typed` in each of its networks. `other` is a pod on the other node,
/// if there is one.
fn traffic(cluster: &Cluster, typed: &Typed, other: Option<&Typed>) -> Result<()> {
    for (network, _) in &typed.networks {
        let (_, address) = typed.address(cluster, network)?;
        let mut places = match *network {
            OWN | SOURCED => vec![Place::Lan],
            DIRECT | FLANNEL => vec![Place::Node(typed.node)],
            _ => Vec::new(),
        };
        // A request from the other pod to `sourced` would leave by eth0, unless it is bound to the
        // address of the sbr network.
        let is_on_lan = [OWN, TAGGED].contains(network);
        places.extend(
            other
                .filter(|_| is_on_lan)
                .map(|other| Place::Pod(&other.name)),
        );
        for place in &places {
            expect(cluster, place, &address, &typed.name)
                .with_context(|| format!("network {network}"))?;
        }
    }
    let networks: Vec<&str> = typed.networks.iter().map(|(name, _)| *name).collect();
    println!(
        "{} answers in its networks {}",
        typed.name,
        networks.join(", ")
    );
    Ok(())
}
