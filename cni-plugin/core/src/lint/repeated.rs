//! Ranges of `host-local` on links that span nodes: each node gives out the same addresses.

use crate::cni::{Json, NetConf};
use crate::ipam::configuration::Configuration;
use crate::ipam::range::RangeSet;
use crate::k8s::Nad;
use crate::k8s::nad::Definition;
use std::fmt::Write;

/// Plugin types with an interface in the network of its master, which other nodes share.
const SPANNING: [&str; 3] = ["ipvlan", "macvlan", "vlan"];

/// Returns the fault of a NetworkAttachmentDefinition that gives pods on two nodes the same address. One
/// with other faults has none.
pub fn range_on_every_node(nad: &Nad) -> Option<String> {
    let json = Json::parse(nad.config.as_bytes(), "spec.config").ok()?;
    let definition = Definition::parse(json, &nad.name.name).ok()?;
    let mut plugins = definition.plugins().iter();
    plugins.find_map(|plugin| {
        let mut plugin = plugin.clone();
        plugin.set("name", definition.name());
        plugin.set("cniVersion", definition.version().as_str());
        let conf = NetConf::from_json(plugin).ok()?;
        let ipam = Configuration::parse(&conf.ipam, &conf, "").ok()??;
        fault(&conf.plugin, &conf.json, &ipam)
    })
}

/// Returns the fault of a network that gives pods on two nodes the same address. `plugin` is the
/// configuration of a plugin of type `kind`, and `ipam` that of its IPAM.
pub(super) fn fault(kind: &str, plugin: &Json, ipam: &Configuration) -> Option<String> {
    let Configuration::HostLocal(local) = ipam else {
        return None;
    };
    // A master in the container is a link of an earlier network.
    let is_inside = plugin.get("linkInContainer") == Some(&Json::Bool(true));
    if is_inside || !SPANNING.contains(&kind) {
        return None;
    }
    let mut ranges = String::new();
    for range in local.ranges.iter().flat_map(RangeSet::ranges) {
        let separator = if ranges.is_empty() { "" } else { ", " };
        let (start, end) = (range.range_start(), range.range_end());
        let _ = write!(ranges, "{separator}{start}-{end}");
    }
    Some(format!(
        "each node gives out {ranges} on its own, so pods on two nodes get the same address; use \
         the IPAM \"whereabouts\", or no spec.config and a file with an own range on each node"
    ))
}
