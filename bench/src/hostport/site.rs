//! A node whose ports lead to pods, one of which is measured from outside.

use super::cli::Position;
use crate::call::Call;
use crate::chain;
use crate::conflist::Conflist;
use crate::netlink;
use crate::node::{self, Node, Pod};
use crate::outside;
use crate::site;
use crate::traffic::{End, Entrance, Way};
use crate::verify;
use anyhow::{Context, Result};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;

/// The first port of the host that leads to a pod.
const FIRST_PORT: u16 = 10_000;
/// How many ports lead to each pod that is not measured, at most.
const EACH: u16 = 100;
/// The port in the pods.
const CONTAINER_PORT: u16 = 80;

/// All of it goes when it is dropped, as its namespaces do.
pub(crate) struct Site {
    pub(crate) node: Node,
    /// How many ports lead to pods.
    pub(crate) ports: u16,
    /// Behind the node's uplink.
    outside: Pod,
    pod: Pod,
    address: IpAddr,
    /// The measured port; `None` where the pod has none.
    entrance: Option<Entrance>,
    _others: Vec<Pod>,
}

impl Site {
    /// A node with so many ports. Those that are not measured lead to other pods, attached before the measured one and
    /// after it.
    pub(crate) fn new(conflist: &Conflist, dir: &Path, ports: u16, position: Position) -> Result<Self> {
        let node = site::node_for(conflist, dir)?;
        let outside = connected(&node)?;
        let others = ports.saturating_sub(1);
        let before = position.before(others);
        let measured = FIRST_PORT + before;
        let add = |name: &str, mappings| attach(&node, conflist, dir, name, mappings);
        let other = |ports: Range<u16>| Ok(add(&format!("pod{}", ports.start), ports.map(tcp).collect())?.0);
        let mut pods = chunks(FIRST_PORT..measured).map(other).collect::<Result<Vec<_>>>()?;
        let own = if ports > 0 { vec![tcp(measured), mapping(measured, "udp")] } else { Vec::new() };
        let (pod, result) = add("measured", own)?;
        for ports in chunks(measured + 1..FIRST_PORT + others + 1) {
            pods.push(other(ports)?);
        }
        let entrance = Entrance { at: SocketAddr::new(node::UPLINK_ADDRESS.into(), measured), port: CONTAINER_PORT };
        Ok(Site {
            node,
            ports,
            outside,
            pod,
            address: address(&result).context("ADD's result has no IPv4 address")?,
            entrance: (ports > 0).then_some(entrance),
            _others: pods,
        })
    }

    /// From the client to the pod.
    pub(crate) fn way(&self) -> Way<'_> {
        Way {
            from: End { netns: &self.outside.netns, address: node::UPLINK_GATEWAY.into() },
            to: End { netns: &self.pod.netns, address: self.address },
            entrance: self.entrance,
        }
    }
}

fn attach(node: &Node, conflist: &Conflist, dir: &Path, name: &str, mappings: Vec<Value>) -> Result<(Pod, Value)> {
    let conflist = conflist.with_capability("portMappings", &mappings.into());
    let mut pod = node.add_pod(name)?;
    let call = Call { verb: "ADD", dir, container: name, netns: &pod.path, trace: None };
    let (_, result) = node.run(|| chain::add(&conflist, call))?;
    verify::added(&mut pod, &result, true)?;
    Ok((pod, result))
}

/// The ports of one pod after the other.
fn chunks(ports: Range<u16>) -> impl Iterator<Item = Range<u16>> {
    let end = ports.end;
    ports.step_by(EACH.into()).map(move |start| start..end.min(start + EACH))
}

fn tcp(port: u16) -> Value {
    mapping(port, "tcp")
}

fn mapping(port: u16, protocol: &str) -> Value {
    json!({"hostPort": port, "containerPort": CONTAINER_PORT, "protocol": protocol})
}

fn address(result: &Value) -> Option<IpAddr> {
    let addresses = result["ips"].as_array()?.iter().filter_map(|ip| ip["address"].as_str()?.parse::<IpNet>().ok());
    addresses.map(|address| address.addr()).find(IpAddr::is_ipv4)
}

/// The namespace behind the uplink, from where the node is the way to everywhere.
fn connected(node: &Node) -> Result<Pod> {
    let mut outside = outside::move_outside(node)?;
    outside::serve(node, &mut outside, IpNet::new(node::UPLINK_GATEWAY.into(), 24)?)?;
    let link = outside.socket.link(node::OUTSIDE)?.context("the uplink has no far end")?;
    outside
        .socket
        .run([netlink::add_default_route(link.header.index, node::UPLINK_ADDRESS)])
        .context("add the way to the node")?;
    Ok(outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_one_pod_s() {
        assert_eq!(chunks(10_000..10_250).collect::<Vec<_>>(), [10_000..10_100, 10_100..10_200, 10_200..10_250]);
        assert_eq!(chunks(10_000..10_000).count(), 0);
    }

    #[test]
    fn the_pod_is_reached_by_ipv4() {
        let result = json!({"ips": [{"address": "fd00::2/64"}, {"address": "10.1.0.2/16"}]});
        assert_eq!(address(&result), Some([10, 1, 0, 2].into()));
        assert_eq!(address(&json!({})), None);
    }
}
