//! Decisions of mode `flannel`, printed as the commands of an administrator.

use super::net_conf::NetConf;
use super::plan::{self, End};
use super::subnet_file;
use crate::cluster::flannel::{Annotations, Family, PREFIX};
use crate::cluster::node::Node;
use crate::cluster::ranges::Accepted;
use crate::network::changes::{Change, Command, changes, handed_over};
use crate::network::kernel::Uplink;
use crate::network::peers::{Lookups, addresses};
use crate::network::routes::{Desired, Lookup, Present};
use crate::network::vxlan::{Found, Name, Settings, mac};
use braid_core::name::Mac;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

const VXLAN: &str = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}"#;
const DIRECT: &str =
    r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "DirectRouting": true}}"#;
const HOST_GW: &str = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}"#;
const BOTH: &str = r#"{"Network": "10.244.0.0/16", "EnableIPv6": true,
    "IPv6Network": "fd00::/48", "Backend": {"Type": "vxlan"}}"#;

fn conf(text: &str) -> NetConf {
    NetConf::parse(text).expect("a configuration")
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn range(text: &str) -> IpNet {
    text.parse().expect("a range")
}

/// Returns node number `number` with these annotations, as `key=value`.
fn node(number: u8, annotations: &[&str]) -> Node {
    let mut all = BTreeMap::new();
    for pair in annotations {
        let (key, value) = pair.split_once('=').expect("a pair");
        all.insert(format!("{PREFIX}{key}"), value.to_owned());
    }
    Node {
        name: format!("n{number}"),
        uid: format!("n{number}"),
        created: 0,
        ranges: vec![
            Ok(range(&format!("10.244.{number}.0/24"))),
            Ok(range(&format!("fd00:0:0:{number}::/64"))),
        ],
        addresses: vec![addr(&format!("192.0.2.{number}"))],
        is_network_unavailable: false,
        flannel: Annotations::of(&all),
    }
}

/// Returns a node as flanneld publishes it.
fn published(number: u8, backend: &str) -> Node {
    let address = format!("public-ip=192.0.2.{number}");
    let address6 = format!("public-ipv6=fd99::{number}");
    let data = format!(r#"{{"VNI":1,"VtepMAC":"02:00:00:00:00:0{number}"}}"#);
    node(
        number,
        &[
            &format!("backend-type={backend}"),
            "kube-subnet-manager=true",
            &format!("backend-data={data}"),
            &format!("backend-v6-data={data}"),
            &address,
            &address6,
        ],
    )
}

fn uplink(address: &str) -> Uplink {
    Uplink {
        index: 3,
        name: "eth0".into(),
        mtu: 1500,
        address: addr(address),
        networks: Vec::new(),
        others: Vec::new(),
    }
}

/// Returns the desired state of node 1, and the reasons of ranges without a route.
fn desired(
    conf: &NetConf,
    family: Family,
    own: &Node,
    others: &[Node],
    present: &Present,
) -> (Desired, Vec<&'static str>) {
    let mut accepted = Vec::new();
    for node in others {
        for range in node.ranges.iter().flatten() {
            let range = *range;
            accepted.push(Accepted { node, range });
        }
    }
    let mut unrouted = Vec::new();
    let nodes = plan::published(conf, family, &accepted, &mut unrouted);
    let mut accepted = Vec::new();
    for (node, range) in &nodes {
        let range = *range;
        accepted.push(Accepted { node, range });
    }
    let uplink = uplink(if family == Family::V4 {
        "192.0.2.1"
    } else {
        "fd99::1"
    });
    let mut lookups = Lookups::new();
    for address in addresses(&accepted) {
        let is_near = address != addr("192.0.2.9");
        let lookup = if is_near {
            Lookup::OnLink(3)
        } else {
            Lookup::Elsewhere
        };
        lookups.insert(address, lookup);
    }
    let link = plan::link(conf, family, own, &uplink, present.link.as_ref());
    let end = End {
        address: uplink.address,
        link,
    };
    let (desired, more) = plan::desired(conf, family, own, end, &accepted, &lookups);
    unrouted.extend(more);
    (desired, unrouted.into_iter().map(|it| it.reason).collect())
}

fn printed(changes: &[Change], link: Name) -> Vec<String> {
    let command = |change| Command { change, link }.to_string();
    changes.iter().map(command).collect()
}

fn nothing(name: Name) -> Present {
    Present {
        name,
        ..Present::default()
    }
}

/// Returns the link of flanneld, with the MAC `02:…:01`.
fn flannelds(port: u16) -> Found {
    Found {
        index: 9,
        kind: "vxlan".into(),
        settings: Some(Settings {
            id: 1,
            port,
            local: addr("192.0.2.1"),
            underlay: Some(3),
        }),
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        mtu: 1450,
        is_up: true,
    }
}

#[test]
fn a_new_node_gets_flannels_link_and_entries_for_nodes_as_they_published_themselves() {
    let conf = conf(VXLAN);
    let present = nothing(Name::Flannel(1));
    let others = [published(2, "vxlan"), published(3, "host-gw"), node(4, &[])];
    let (desired, reasons) = desired(&conf, Family::V4, &node(1, &[]), &others, &present);
    let mac = mac("n1");
    assert_eq!(
        printed(&changes(&present, &desired), present.name),
        [
            &format!(
                "ip link add flannel.1 address {mac} mtu 1450 up type vxlan id 1 \
                 local 192.0.2.1 dev if3 dstport 8472 nolearning"
            ),
            "ip address add 10.244.1.0/32 dev flannel.1",
            "bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent",
            "ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent \
             protocol 98",
            "ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 98",
        ]
    );
    assert_eq!(
        reasons,
        [
            "the node has another backend of flannel",
            "the node has no annotations of flannel"
        ]
    );
}

#[test]
fn the_state_that_flanneld_left_stays_and_what_nobody_published_goes() {
    let conf = conf(VXLAN);
    let mut present = nothing(Name::Flannel(1));
    present.link = Some(flannelds(8472));
    let both = [published(2, "vxlan"), published(3, "vxlan")];
    present.state = desired(&conf, Family::V4, &node(1, &[]), &both, &present)
        .0
        .state;
    let same = desired(&conf, Family::V4, &node(1, &[]), &both, &present).0;
    assert_eq!(changes(&present, &same), []);
    let less = desired(&conf, Family::V4, &node(1, &[]), &both[..1], &present).0;
    assert_eq!(
        printed(&changes(&present, &less), present.name),
        [
            "ip route del 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink proto 98",
            "bridge fdb del 02:00:00:00:00:03 dev flannel.1 dst 192.0.2.3 self permanent",
            "ip neigh del 10.244.3.0 lladdr 02:00:00:00:00:03 dev flannel.1 nud permanent \
             protocol 98",
        ]
    );
    // After the end of the backend, other nodes may still send through the link.
    assert_eq!(
        changes(&present, &Desired::default())
            .iter()
            .filter(|change| **change == Change::DeleteLink)
            .count(),
        0
    );
}

#[test]
fn a_link_stays_only_if_flanneld_would_use_it_and_a_new_one_gets_the_published_mac() {
    let with_port = r#"{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "Port": 4789}}"#;
    let own = published(1, "vxlan");
    for (text, port, stays) in [
        (VXLAN, 8472, true),
        (VXLAN, 4789, true),
        (with_port, 4789, true),
        (with_port, 8472, false),
    ] {
        let found = flannelds(port);
        let uplink = uplink("192.0.2.1");
        let link = plan::link(&conf(text), Family::V4, &own, &uplink, Some(&found));
        let link = link.expect("a link");
        assert_eq!(
            Some(link.settings) == found.settings,
            stays,
            "{text} {port}"
        );
        assert_eq!(link.mac, Mac([2, 0, 0, 0, 0, 1]));
    }
}

#[test]
fn host_gw_and_direct_routing_use_the_published_addresses() {
    let others = [published(2, "vxlan"), {
        let data = r#"backend-data={"VNI":1,"VtepMAC":"02:00:00:00:00:09"}"#;
        let pairs = ["backend-type=vxlan", "kube-subnet-manager=true", data];
        node(9, &[&pairs[..], &["public-ip=192.0.2.9"]].concat())
    }];
    let present = Present {
        of_flanneld: [range("10.244.2.0/24")].into(),
        ..nothing(Name::Flannel(1))
    };
    let (with_direct, _) = desired(&conf(DIRECT), Family::V4, &node(1, &[]), &others, &present);
    let commands = printed(&changes(&present, &with_direct), present.name);
    let routes: Vec<&String> = commands.iter().filter(|it| it.contains("route")).collect();
    assert_eq!(
        routes,
        [
            "ip route replace 10.244.2.0/24 via 192.0.2.2 dev if3 proto 98",
            "ip route add 10.244.9.0/24 via 10.244.9.0 dev flannel.1 onlink proto 98",
        ]
    );
    let others = [published(2, "host-gw"), published(3, "host-gw")];
    let (by_gw, reasons) = desired(&conf(HOST_GW), Family::V4, &node(1, &[]), &others, &present);
    assert_eq!(reasons, [""; 0]);
    assert_eq!(
        printed(&changes(&present, &by_gw), present.name),
        [
            "ip route replace 10.244.2.0/24 via 192.0.2.2 dev if3 proto 98",
            "ip route add 10.244.3.0/24 via 192.0.2.3 dev if3 proto 98",
        ]
    );
    let after = Present {
        state: by_gw.state,
        ..Present::default()
    };
    assert_eq!(
        printed(&handed_over(&after), after.name),
        [
            "ip route change 10.244.2.0/24 via 192.0.2.2 proto boot",
            "ip route change 10.244.3.0/24 via 192.0.2.3 proto boot",
        ]
    );
}

#[test]
fn ipv6_has_a_link_of_its_own() {
    let conf = conf(BOTH);
    let present = nothing(Name::FlannelV6(1));
    let own = node(1, &[]);
    let (desired, _) = desired(&conf, Family::V6, &own, &[published(2, "vxlan")], &present);
    let commands = printed(&changes(&present, &desired), present.name);
    assert!(commands[0].contains("flannel-v6.1 ") && commands[0].contains("local fd99::1"));
    let ends = [
        "bridge fdb replace 02:00:00:00:00:02 dev flannel-v6.1 dst fd99::2 self permanent",
        "ip -6 route add fd00:0:0:2::/64 via fd00:0:0:2:: dev flannel-v6.1 onlink proto 98",
    ];
    assert_eq!([&commands[2], &commands[4]], ends);
}

#[test]
fn the_link_that_the_kernel_made_smaller_for_the_underlay_of_ipv6_stays() {
    let conf = conf(BOTH);
    let mut present = nothing(Name::FlannelV6(1));
    present.link = Some(Found {
        settings: Some(Settings {
            id: 1,
            port: 8472,
            local: addr("fd99::1"),
            underlay: Some(3),
        }),
        mtu: 1430,
        ..flannelds(8472)
    });
    let own = [node(1, &[])];
    let (wanted, _) = desired(&conf, Family::V6, &own[0], &[], &present);
    assert_eq!(wanted.link.map(|link| link.mtu), Some(1430));
}

#[test]
fn flannelds_file_has_the_keys_of_each_family() {
    let ranges = [range("10.244.1.0/24"), range("fd00:0:0:1::/64")];
    assert_eq!(
        subnet_file::text(&conf(VXLAN), &ranges, 1450, true),
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\n\
         FLANNEL_IPMASQ=true\n"
    );
    assert_eq!(
        subnet_file::text(&conf(BOTH), &ranges, 1450, false),
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n\
         FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:1::1/64\n\
         FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
    );
}

#[test]
fn only_annotations_that_differ_are_written() {
    let mac = Some(Mac([2, 0, 0, 0, 0, 1]));
    let ends = [(Family::V4, addr("192.0.2.1"), mac)];
    let own = published(1, "vxlan");
    assert!(plan::annotations(&conf(VXLAN), &own.flannel, &ends).is_empty());
    let missing = plan::annotations(&conf(VXLAN), &node(1, &[]).flannel, &ends);
    let value = |name: &str| missing.get(&format!("{PREFIX}{name}")).map(String::as_str);
    assert_eq!(missing.len(), 4);
    assert_eq!(
        value("backend-data"),
        Some(r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}"#)
    );
    assert_eq!(value("public-ip"), Some("192.0.2.1"));
    let behind_nat = node(1, &["public-ip-overwrite=203.0.113.1"]);
    let ends = [(Family::V4, addr("192.0.2.1"), None)];
    let missing = plan::annotations(&conf(HOST_GW), &behind_nat.flannel, &ends);
    let value = |name: &str| missing.get(&format!("{PREFIX}{name}")).map(String::as_str);
    assert_eq!(value("public-ip"), Some("203.0.113.1"));
    assert_eq!(
        (value("backend-type"), value("backend-data")),
        (Some("host-gw"), Some("null"))
    );
}
