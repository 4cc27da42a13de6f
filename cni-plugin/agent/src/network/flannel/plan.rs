//! Decisions of mode `flannel`: the VXLAN link, the other nodes as they published themselves, and
//! the annotations of the own Node.

use super::net_conf::{Backend, NetConf};
use crate::cluster::config::Mode;
use crate::cluster::flannel::{self, Annotations, BACKEND_TYPE, Family, MANAGED};
use crate::cluster::node::Node;
use crate::cluster::ranges::Accepted;
use crate::network::kernel::Uplink;
use crate::network::peers::{self, Lookups, Situation, Unrouted};
use crate::network::routes::Desired;
use crate::network::vxlan::{self, Found, Name, Settings, Underlay, Vxlan};
use braid_core::name::Mac;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Annotation by which an administrator sets the address that flanneld binds to.
const NODE_PUBLIC: [&str; 2] = ["node-public-ip", "node-public-ipv6"];

/// Returns the name of the family's link. With host-gw there may be one of an earlier backend.
pub(super) fn link_name(conf: &NetConf, family: Family) -> Name {
    let id = match &conf.backend {
        Backend::Vxlan(vxlan) => vxlan.id,
        Backend::HostGw => super::net_conf::DEFAULT_ID,
    };
    match family {
        Family::V4 => Name::Flannel(id),
        Family::V6 => Name::FlannelV6(id),
    }
}

/// Returns addresses that may be the node's end of traffic with other nodes, the best one first: the
/// address of the existing link, the published one, the addresses of the Node.
pub(super) fn candidates(own: &Node, family: Family, found: Option<&Found>) -> Vec<IpAddr> {
    let [v4, v6] = NODE_PUBLIC;
    let bound = match family {
        Family::V4 => own.flannel.get(v4),
        Family::V6 => own.flannel.get(v6),
    };
    let settings = found.and_then(|found| found.settings);
    let mut all = Vec::new();
    all.extend(settings.map(|settings| settings.local));
    all.extend(bound.and_then(|text| text.parse::<IpAddr>().ok()));
    all.extend(own.flannel.address(family));
    all.extend(&own.addresses);
    all.retain(|address| family.has(*address));
    all
}

/// Returns the desired VXLAN link. An existing one that flanneld would use stays, with its MAC.
pub(super) fn link(
    conf: &NetConf,
    family: Family,
    own: &Node,
    uplink: &Uplink,
    found: Option<&Found>,
) -> Option<Vxlan> {
    let Backend::Vxlan(vxlan) = &conf.backend else {
        return None;
    };
    let existing = found.and_then(|found| Some((found.settings?, found.mac?)));
    let (settings, mac) = existing
        .filter(|(settings, _)| is_usable(settings, vxlan, uplink))
        .unwrap_or_else(|| {
            let settings = Settings {
                id: vxlan.id,
                port: vxlan.port(),
                local: uplink.address,
                underlay: Some(uplink.index),
            };
            let published = own.flannel.mac(family);
            (settings, published.unwrap_or_else(|| vxlan::mac(&own.name)))
        });
    Some(Vxlan {
        name: link_name(conf, family),
        settings,
        mac,
        mtu: link_mtu(conf, family, uplink.mtu),
    })
}

/// True if flanneld would use a link with these settings.
fn is_usable(found: &Settings, vxlan: &super::net_conf::Vxlan, uplink: &Uplink) -> bool {
    let underlay = found.underlay.unwrap_or(uplink.index);
    found.id == vxlan.id
        && vxlan.port.is_none_or(|port| port == found.port)
        && found.local == uplink.address
        && underlay == uplink.index
}

/// Returns the MTU of the family's link in bytes. Flanneld requests that of pods. The kernel reduces it
/// by the underlay's overhead when it creates the link, and refuses a larger one later.
fn link_mtu(conf: &NetConf, family: Family, uplink_mtu: u32) -> u32 {
    let underlay = match family {
        Family::V4 => Underlay::V4,
        Family::V6 => Underlay::V6,
    };
    mtu(conf, uplink_mtu).min(uplink_mtu.saturating_sub(underlay.overhead()))
}

/// Returns the MTU of pods in bytes. Flanneld subtracts the overhead of IPv4 for both families.
pub(super) fn mtu(conf: &NetConf, uplink_mtu: u32) -> u32 {
    match &conf.backend {
        Backend::HostGw => uplink_mtu,
        Backend::Vxlan(vxlan) => {
            let mtu = vxlan.mtu.unwrap_or(uplink_mtu);
            mtu.saturating_sub(Underlay::V4.overhead())
        }
    }
}

/// The node's end of traffic with other nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The published address.
    pub(super) address: IpAddr,
    /// The VXLAN link, if the backend has one.
    pub(super) link: Option<Vxlan>,
}

/// Returns the desired state of a family, and the ranges without a route.
pub(super) fn desired(
    conf: &NetConf,
    family: Family,
    own: &Node,
    end: End,
    accepted: &[Accepted<'_>],
    lookups: &Lookups,
) -> (Desired, Vec<Unrouted>) {
    let mut ranges: Vec<IpNet> = own.ranges.iter().flatten().copied().collect();
    ranges.retain(|range| family.has_range(range));
    let own = Node {
        addresses: vec![end.address],
        ..own.clone()
    };
    let situation = Situation {
        mode: mode(conf),
        own: &own,
        ranges: &ranges,
        link: end.link,
        mac: mac(family),
        accepted,
        lookups,
    };
    peers::desired(&situation, &BTreeSet::new())
}

/// Returns the mode of traffic that has the backend's paths.
fn mode(conf: &NetConf) -> Mode {
    match &conf.backend {
        Backend::HostGw => Mode::Direct,
        Backend::Vxlan(vxlan) if vxlan.is_direct => Mode::Flannel,
        Backend::Vxlan(_) => Mode::Vxlan,
    }
}

/// Returns the MAC that a node published.
fn mac(family: Family) -> fn(&Node) -> Option<Mac> {
    match family {
        Family::V4 => |node| node.flannel.mac(Family::V4),
        Family::V6 => |node| node.flannel.mac(Family::V6),
    }
}

/// Another node as it published itself, with one of its ranges.
pub(super) type Published = (Node, IpNet);

/// Returns the ranges of a family, with the nodes that take part in the network. Their addresses
/// are the published ones. Others are reported.
pub(super) fn published(
    conf: &NetConf,
    family: Family,
    accepted: &[Accepted<'_>],
    unrouted: &mut Vec<Unrouted>,
) -> Vec<Published> {
    let mut published = Vec::new();
    for Accepted { node, range } in accepted {
        if !family.has_range(range) {
            continue;
        }
        let reason = match (node.flannel.backend(), node.flannel.address(family)) {
            (Some(backend), Some(address)) if backend == conf.backend.name() => {
                let addresses = vec![address];
                let node = Node {
                    addresses,
                    ..(*node).clone()
                };
                published.push((node, *range));
                continue;
            }
            (Some(_), Some(_)) => "the node has another backend of flannel",
            (None, _) => "the node has no annotations of flannel",
            (Some(_), None) => "the node published no address of the range's family",
        };
        unrouted.push(Unrouted {
            node: node.name.clone(),
            range: *range,
            reason,
        });
    }
    published
}

/// Returns the annotations of the own Node that differ from the present ones. `ends` are the
/// node's addresses, with the MACs of VXLAN links.
pub(super) fn annotations(
    conf: &NetConf,
    own: &Annotations,
    ends: &[(Family, IpAddr, Option<Mac>)],
) -> BTreeMap<String, String> {
    let mut desired = BTreeMap::from([
        (BACKEND_TYPE, conf.backend.name().to_owned()),
        (MANAGED, "true".to_owned()),
    ]);
    for (family, address, mac) in ends {
        let data = match (&conf.backend, mac) {
            (Backend::Vxlan(vxlan), Some(mac)) => flannel::data(vxlan.id, *mac),
            (Backend::Vxlan(_) | Backend::HostGw, _) => "null".to_owned(),
        };
        desired.insert(family.data(), data);
        let overwritten = own.get(family.overwrite()).filter(|text| !text.is_empty());
        let address = overwritten.map_or_else(|| address.to_string(), str::to_owned);
        desired.insert(family.public(), address);
    }
    desired.retain(|name, value| own.get(name) != Some(value.as_str()));
    let named = |(name, value)| (format!("{}{name}", flannel::PREFIX), value);
    desired.into_iter().map(named).collect()
}
