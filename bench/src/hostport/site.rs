//! A node whose ports lead to pods, one of which is measured from outside.

use super::cli::Position;
use crate::call::Call;
use crate::chain;
use crate::conflist::Conflist;
use crate::netlink;
use crate::node::{self, Node, Pod};
use crate::outside;
use crate::ports;
use crate::site;
use crate::traffic::{End, Entrance, Way};
use crate::verify;
use anyhow::{Context, Result};
use ipnet::IpNet;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;

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
    pub(crate) fn new(conflist: &Conflist, dir: &Path, count: u16, position: Position) -> Result<Self> {
        let node = site::node_for(conflist, dir)?;
        let outside = connected(&node)?;
        let others = count.saturating_sub(1);
        let before = position.before(others);
        let measured = ports::FIRST + before;
        let add = |name: &str, mappings| attach(&node, conflist, dir, name, mappings);
        let other = |range: Range<u16>| Ok(add(&format!("pod{}", range.start), range.map(ports::tcp).collect())?.0);
        let mut pods = ports::chunks(ports::FIRST..measured).map(other).collect::<Result<Vec<_>>>()?;
        let own = if count > 0 { vec![ports::tcp(measured), ports::mapping(measured, "udp")] } else { Vec::new() };
        let (pod, result) = add("measured", own)?;
        for range in ports::chunks(measured + 1..ports::FIRST + others + 1) {
            pods.push(other(range)?);
        }
        let entrance =
            Entrance { at: SocketAddr::new(node::UPLINK_ADDRESS.into(), measured), port: ports::CONTAINER_PORT };
        Ok(Site {
            node,
            ports: count,
            outside,
            pod,
            address: address(&result).context("ADD's result has no IPv4 address")?,
            entrance: (count > 0).then_some(entrance),
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
    let conflist = ports::lead(conflist, mappings)?;
    let mut pod = node.add_pod(name)?;
    let call = Call { verb: "ADD", dir, container: name, netns: &pod.path, trace: None };
    let (_, result) = node.run(|| chain::add(&conflist, call))?;
    verify::added(&mut pod, &result, true)?;
    Ok((pod, result))
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
    use serde_json::json;

    #[test]
    fn the_pod_is_reached_by_ipv4() {
        let result = json!({"ips": [{"address": "fd00::2/64"}, {"address": "10.1.0.2/16"}]});
        assert_eq!(address(&result), Some([10, 1, 0, 2].into()));
        assert_eq!(address(&json!({})), None);
    }
}
