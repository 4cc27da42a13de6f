//! Objects of the node's own network.

use super::breaks::{Of, World};
use anyhow::{Context, Result};
use braid_testbed::sh;
use serde_json::Value;

const LINK: &str = "braid-vxlan";
const ROUTES: [&str; 2] = [
    "ip -j route show proto 98 table all",
    "ip -j -6 route show proto 98 table all",
];
const NEIGHBOURS: &str = "ip -j neigh show dev braid-vxlan nud permanent";
const FDB: &str = "bridge -j fdb show dev braid-vxlan";
const ADDRESSES: &str = "ip -j addr show dev braid-vxlan scope global";
/// The agent's table, and that of the calls.
const TABLES: [&str; 2] = [
    "nft -j list chain inet braid-cluster postrouting",
    "nft -j list table inet braid",
];
/// Takes the uplink down and up again, and adds the routes of a network manager.
const UPLINK: &str = "
before4=$(ip route show default dev eth0)
before6=$(ip -6 route show default dev eth0)
address6=$(ip -6 -o addr show dev eth0 scope global | sed 's/.*inet6 \\([^ ]*\\).*/\\1/')
ip link set eth0 down
sleep 1
ip link set eth0 up
for address in $address6; do ip addr add $address dev eth0 nodad; done
[ -z \"$before4\" ] || ip route replace $before4 dev eth0
[ -z \"$before6\" ] || ip -6 route replace $before6 dev eth0
";
/// Loads the rules of all other programs again, as a firewall service does.
const RELOAD: &str = "
set -e
file=$(mktemp)
echo 'flush ruleset' > $file
nft list tables | grep -v braid | while read table; do nft list $table >> $file; done
nft -f $file
rm $file
";

/// Routes, neighbours, FDB entries and rules of the routing policy.
pub(super) fn routes(world: &World<'_>) -> Result<()> {
    let listed = world.read(ROUTES[0])?;
    let listed: Value = serde_json::from_str(&listed).context("parse the routes")?;
    for route in listed.as_array().into_iter().flatten() {
        let to = route["dst"].as_str().unwrap_or_default();
        let table = route["table"].as_str().unwrap_or("main");
        world.breaks(
            &format!("ip route del {to} proto 98 table {table}"),
            &ROUTES,
            &["route"],
            (Of::Node, "lost route"),
        )?;
    }
    let listed = world.read(FDB)?;
    let listed: Value = serde_json::from_str(&listed).context("parse the FDB")?;
    if let Some(entry) = listed.as_array().and_then(|all| all.first()) {
        let [mac, to] = ["mac", "dst"].map(|key| entry[key].as_str().unwrap_or_default());
        world.breaks(
            &format!("bridge fdb del {mac} dev {LINK} dst {to}"),
            &[FDB],
            &["fdb"],
            (Of::Node, "lost FDB entry"),
        )?;
        world.breaks(
            "ip neigh flush dev braid-vxlan nud permanent",
            &[NEIGHBOURS],
            &["neighbour"],
            (Of::Node, "lost neighbour"),
        )?;
    }
    Ok(())
}

/// The VXLAN link and the uplink.
pub(super) fn links(world: &World<'_>) -> Result<()> {
    let all = [&ROUTES[..], &[NEIGHBOURS, FDB, ADDRESSES]].concat();
    let is_there = sh::read(&mut world.cluster.on(world.node, ["ip", "link", "show", LINK])?);
    if is_there.is_ok() {
        for command in [
            "ip link del braid-vxlan",
            "ip link set braid-vxlan down",
            "ip link set braid-vxlan mtu 1300",
        ] {
            let words = (Of::Node, "lost link");
            world.breaks(command, &all, &["link"], words)?;
        }
        let command = "ip addr flush dev braid-vxlan";
        let words = (Of::Node, "lost address");
        world.breaks(command, &all, &["address"], words)?;
    }
    // In mode `auto` the direct path ends with the uplink. So the routes go through VXLAN until it
    // answers again.
    world.recovers(UPLINK, &all)
}

/// Rules of nf_tables, and forwarding.
pub(super) fn rules(world: &World<'_>) -> Result<()> {
    let words = (Of::Node, "table inet braid-cluster");
    for command in [
        RELOAD,
        "nft delete table inet braid-cluster",
        "nft flush table inet braid-cluster",
    ] {
        world.breaks(command, &TABLES, &["table"], words)?;
    }
    for command in [
        "nft delete table inet braid",
        "nft flush table inet braid",
        "nft delete table inet braid; nft delete table inet braid-cluster",
    ] {
        world.breaks(command, &TABLES, &["table"], (Of::Pods, "table"))?;
    }
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        let path = key.replace('.', "/");
        world.breaks(
            &format!("sysctl -qw {key}=0"),
            &[&format!("sysctl -n {key}")],
            &["sysctl"],
            (Of::Node, &path),
        )?;
    }
    Ok(())
}
