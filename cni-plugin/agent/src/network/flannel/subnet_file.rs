//! Flanneld's file about a node, which the plugin type `flannel` reads.

use super::net_conf::NetConf;
use crate::cluster::flannel::Family;
use ipnet::IpNet;
use std::fmt::Write;
use std::net::IpAddr;

/// Returns the text as flanneld writes it. `ranges` are the node's; `mtu` is that of pods in bytes.
pub(super) fn text(conf: &NetConf, ranges: &[IpNet], mtu: u32, is_masquerading: bool) -> String {
    let mut text = String::new();
    for (family, key) in [(Family::V4, ""), (Family::V6, "IPV6_")] {
        let range = ranges.iter().find(|range| family.has_range(range));
        if let (Some(network), Some(range)) = (conf.network(family), range) {
            let (first, length) = (second_address(range), range.prefix_len());
            // Writing to a string never fails.
            let _ = write!(
                text,
                "FLANNEL_{key}NETWORK={network}\nFLANNEL_{key}SUBNET={first}/{length}\n"
            );
        }
    }
    let _ = write!(
        text,
        "FLANNEL_MTU={mtu}\nFLANNEL_IPMASQ={is_masquerading}\n"
    );
    text
}

/// Returns the address after the range's first: the one of the node's bridge.
fn second_address(range: &IpNet) -> IpAddr {
    match range.network() {
        IpAddr::V4(address) => IpAddr::V4(u32::from(address).wrapping_add(1).into()),
        IpAddr::V6(address) => IpAddr::V6(u128::from(address).wrapping_add(1).into()),
    }
}
