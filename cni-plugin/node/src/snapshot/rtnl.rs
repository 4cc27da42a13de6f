//! Links, addresses, routes, rules, neighbours, forwarding databases and qdiscs.

use super::attributes::{Attribute, Fields, Form, add, numbers, object};
use super::listing::{Listing, MOST};
use crate::sys::netlink::{KernelError, Socket, find};
use crate::sys::rtnl::{text_of, u16_of, u32_at};
use serde_json::Value;
use std::cell::Cell;

/// A kind of objects that rtnetlink lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Links, with their counters.
    Links,
    /// Addresses of links.
    Addresses,
    /// Routes of all tables.
    Routes,
    /// Policy routing rules.
    Rules,
    /// Neighbours (ARP and IPv6 neighbour discovery).
    Neighbours,
    /// Entries of the forwarding databases of bridges and VXLANs.
    Fdb,
    /// Queueing disciplines, with their counters.
    Qdiscs,
}

/// Request, header and attributes of a kind.
struct Layout {
    /// Type of the request for a dump.
    request: u16,
    /// Address family of the request.
    family: u8,
    /// Fields of the header (`include/uapi/linux/rtnetlink.h`, `neighbour.h`, `fib_rules.h`). A
    /// field without a name is not shown.
    header: &'static [(&'static str, usize)],
    attributes: &'static [Attribute],
}

const AF_UNSPEC: u8 = 0;
const AF_BRIDGE: u8 = 7;

const STATS: &[(&str, usize)] = &[
    ("rx_packets", 8),
    ("tx_packets", 8),
    ("rx_bytes", 8),
    ("tx_bytes", 8),
    ("rx_errors", 8),
    ("tx_errors", 8),
    ("rx_dropped", 8),
    ("tx_dropped", 8),
];

/// `enum` of `IFLA_*` in `include/uapi/linux/if_link.h`.
const LINK: &[Attribute] = &[
    (1, "address", Form::Mac),
    (2, "broadcast", Form::Mac),
    (3, "ifname", Form::Text),
    (4, "mtu", Form::Number),
    (5, "link_index", Form::Number),
    (6, "qdisc", Form::Text),
    (7, "stats", Form::Skipped),
    (10, "master", Form::Number),
    (13, "txqlen", Form::Number),
    (14, "map", Form::Skipped),
    (16, "operstate", Form::Number),
    (17, "linkmode", Form::Number),
    // With a table for each kind.
    (18, "linkinfo", Form::Skipped),
    (20, "ifalias", Form::Text),
    (23, "stats64", Form::Struct(STATS)),
    (26, "af_spec", Form::Skipped),
    (27, "group", Form::Number),
    (30, "promiscuity", Form::Number),
    (31, "num_tx_queues", Form::Number),
    (32, "num_rx_queues", Form::Number),
    (33, "carrier", Form::Number),
    (35, "carrier_changes", Form::Number),
    (37, "link_netnsid", Form::Number),
    (40, "gso_max_segs", Form::Number),
    (41, "gso_max_size", Form::Number),
    (43, "xdp", Form::Nested(&[(1, "attached", Form::Number)])),
    (47, "carrier_up_count", Form::Number),
    (48, "carrier_down_count", Form::Number),
    (50, "min_mtu", Form::Number),
    (51, "max_mtu", Form::Number),
    (52, "altnames", Form::Nested(&[(53, "altname", Form::Text)])),
    (54, "permaddr", Form::Mac),
    (56, "parentdev", Form::Text),
    (57, "parentbus", Form::Text),
    (58, "gro_max_size", Form::Number),
    (59, "tso_max_size", Form::Number),
    (60, "tso_max_segs", Form::Number),
    (61, "allmulti", Form::Number),
    (63, "gso_ipv4_max_size", Form::Number),
    (64, "gro_ipv4_max_size", Form::Number),
];

const BRIDGE: &[Attribute] = &[
    (5, "stp_state", Form::Number),
    (7, "vlan_filtering", Form::Number),
    (11, "bridge_id", Form::Mac),
    (39, "vlan_default_pvid", Form::Number),
];
const BRIDGE_PORT: &[Attribute] = &[
    (1, "state", Form::Number),
    (4, "hairpin", Form::Number),
    (8, "learning", Form::Number),
    (9, "flood", Form::Number),
    (33, "isolated", Form::Number),
];
const VLAN: &[Attribute] = &[
    (1, "id", Form::Number),
    (5, "protocol", Form::NetworkNumber),
];
const VXLAN: &[Attribute] = &[
    (1, "id", Form::Number),
    (2, "group", Form::Ip),
    (3, "link", Form::Number),
    (4, "local", Form::Ip),
    (5, "ttl", Form::Number),
    (7, "learning", Form::Number),
    (8, "ageing", Form::Number),
    (15, "port", Form::NetworkNumber),
    (16, "group6", Form::Ip),
    (17, "local6", Form::Ip),
];
const MODE: &[Attribute] = &[(1, "mode", Form::Number)];
const VRF: &[Attribute] = &[(1, "table", Form::Number)];

/// `enum` of `IFA_*` in `include/uapi/linux/if_addr.h`.
const ADDRESS: &[Attribute] = &[
    (1, "address", Form::Ip),
    (2, "local", Form::Ip),
    (3, "label", Form::Text),
    (4, "broadcast", Form::Ip),
    (
        6,
        "lifetime",
        Form::Struct(&[("preferred", 4), ("valid", 4)]),
    ),
    (8, "flags", Form::Number),
    (9, "metric", Form::Number),
    (11, "protocol", Form::Number),
];

/// `enum rtattr_type_t` in `include/uapi/linux/rtnetlink.h`.
const ROUTE: &[Attribute] = &[
    (1, "dst", Form::Ip),
    (2, "src", Form::Ip),
    (3, "iif", Form::Number),
    (4, "oif", Form::Number),
    (5, "gateway", Form::Ip),
    (6, "metric", Form::Number),
    (7, "prefsrc", Form::Ip),
    (
        8,
        "metrics",
        Form::Nested(&[
            (1, "lock", Form::Number),
            (2, "mtu", Form::Number),
            (8, "advmss", Form::Number),
        ]),
    ),
    (12, "cacheinfo", Form::Skipped),
    (15, "table", Form::Number),
    (16, "mark", Form::Number),
    (20, "pref", Form::Number),
    (30, "nhid", Form::Number),
];

/// `enum` of `FRA_*` in `include/uapi/linux/fib_rules.h`.
const RULE: &[Attribute] = &[
    (1, "dst", Form::Ip),
    (2, "src", Form::Ip),
    (3, "iif", Form::Text),
    (4, "goto", Form::Number),
    (6, "priority", Form::Number),
    (10, "fwmark", Form::Number),
    (13, "suppress_ifgroup", Form::Number),
    (14, "suppress_prefixlen", Form::Number),
    (15, "table", Form::Number),
    (16, "fwmask", Form::Number),
    (17, "oif", Form::Text),
    (19, "l3mdev", Form::Number),
    (21, "protocol", Form::Number),
    (22, "ipproto", Form::Number),
];

/// `enum` of `NDA_*` in `include/uapi/linux/neighbour.h`.
const NEIGHBOUR: &[Attribute] = &[
    (1, "dst", Form::Ip),
    (2, "lladdr", Form::Mac),
    (3, "cacheinfo", Form::Skipped),
    (4, "probes", Form::Number),
    (5, "vlan", Form::Number),
    (6, "port", Form::NetworkNumber),
    (7, "vni", Form::Number),
    (8, "ifindex", Form::Number),
    (9, "master", Form::Number),
    (10, "link_netnsid", Form::Number),
    (11, "src_vni", Form::Number),
    (12, "protocol", Form::Number),
];
const NEIGHBOUR_HEADER: &[(&str, usize)] = &[
    ("family", 1),
    ("", 3),
    ("ifindex", 4),
    ("state", 2),
    ("flags", 1),
    ("type", 1),
];

/// `enum` of `TCA_*` in `include/uapi/linux/rtnetlink.h`, and the counters in `gen_stats.h`.
const QDISC: &[Attribute] = &[
    (1, "kind", Form::Text),
    (3, "stats", Form::Skipped),
    (4, "xstats", Form::Skipped),
    (
        7,
        "stats2",
        Form::Nested(&[
            (1, "basic", Form::Struct(&[("bytes", 8), ("packets", 4)])),
            (
                3,
                "queue",
                Form::Struct(&[
                    ("qlen", 4),
                    ("backlog", 4),
                    ("drops", 4),
                    ("requeues", 4),
                    ("overlimits", 4),
                ]),
            ),
            (4, "app", Form::Skipped),
            (7, "basic_hw", Form::Skipped),
            (8, "pkt64", Form::Number),
        ]),
    ),
];

impl Kind {
    fn layout(self) -> Layout {
        match self {
            Self::Links => Layout {
                request: libc::RTM_GETLINK,
                family: AF_UNSPEC,
                header: &[
                    ("family", 1),
                    ("", 1),
                    ("type", 2),
                    ("ifindex", 4),
                    ("flags", 4),
                    ("", 4),
                ],
                attributes: LINK,
            },
            Self::Addresses => Layout {
                request: libc::RTM_GETADDR,
                family: AF_UNSPEC,
                header: &[
                    ("family", 1),
                    ("prefixlen", 1),
                    ("", 1),
                    ("scope", 1),
                    ("ifindex", 4),
                ],
                attributes: ADDRESS,
            },
            Self::Routes => Layout {
                request: libc::RTM_GETROUTE,
                family: AF_UNSPEC,
                header: &[
                    ("family", 1),
                    ("dst_len", 1),
                    ("src_len", 1),
                    ("tos", 1),
                    ("", 1),
                    ("protocol", 1),
                    ("scope", 1),
                    ("type", 1),
                    ("flags", 4),
                ],
                attributes: ROUTE,
            },
            Self::Rules => Layout {
                request: libc::RTM_GETRULE,
                family: AF_UNSPEC,
                header: &[
                    ("family", 1),
                    ("dst_len", 1),
                    ("src_len", 1),
                    ("tos", 1),
                    ("", 3),
                    ("action", 1),
                    ("flags", 4),
                ],
                attributes: RULE,
            },
            Self::Neighbours | Self::Fdb => Layout {
                request: libc::RTM_GETNEIGH,
                family: if self == Self::Fdb {
                    AF_BRIDGE
                } else {
                    AF_UNSPEC
                },
                header: NEIGHBOUR_HEADER,
                attributes: NEIGHBOUR,
            },
            Self::Qdiscs => Layout {
                request: libc::RTM_GETQDISC,
                family: AF_UNSPEC,
                header: &[
                    ("", 4),
                    ("ifindex", 4),
                    ("handle", 4),
                    ("parent", 4),
                    ("", 4),
                ],
                attributes: QDISC,
            },
        }
    }
}

/// Lists the objects of a kind in the namespace of `socket`.
pub fn list(socket: &mut Socket, kind: Kind) -> Result<Listing, KernelError> {
    let layout = kind.layout();
    let header_len: usize = layout.header.iter().map(|(_, len)| len).sum();
    let request = |out: &mut Vec<u8>| {
        let start = out.len();
        out.resize(start + header_len, 0);
        out[start] = layout.family;
    };
    let seen = Cell::new(0);
    let first = |out: &mut Vec<u8>| {
        // An interrupted dump starts over, and so does the count.
        seen.set(0);
        request(out);
    };
    let is_wanted = |_: &[u8]| {
        seen.set(seen.get() + 1);
        seen.get() <= MOST
    };
    let messages = socket.dump_those(layout.request, first, is_wanted)?;
    let mut listing = Listing::default();
    for message in &messages {
        let object = parse(kind, &layout, header_len, &message.body);
        listing.objects.extend(object);
    }
    listing.left_out = seen.get() - messages.len();
    Ok(listing)
}

fn parse(kind: Kind, layout: &Layout, header_len: usize, body: &[u8]) -> Option<Value> {
    let (header, attributes) = body.split_at_checked(header_len)?;
    let mut fields = Fields::new();
    if let Value::Object(header) = numbers(header, layout.header) {
        fields.extend(header);
    }
    fields.remove("");
    add(attributes, layout.attributes, &mut fields);
    match kind {
        Kind::Links => add_info(attributes, &mut fields),
        Kind::Routes => add_next_hops(attributes, &mut fields),
        Kind::Addresses | Kind::Rules | Kind::Neighbours | Kind::Fdb | Kind::Qdiscs => {}
    }
    Some(Value::Object(fields))
}

/// Adds the properties of a link's kind, and those that it has as a port of its master.
fn add_info(attributes: &[u8], fields: &mut Fields) {
    const LINKINFO: u16 = 18;
    let info = find(LINKINFO, attributes).unwrap_or_default();
    let parts = [
        ("info_kind", 1, "info_data", 2),
        ("info_slave_kind", 4, "info_slave_data", 5),
    ];
    for (kind_name, kind, data_name, data) in parts {
        let Some(kind) = find(kind, info).map(text_of) else {
            continue;
        };
        let table = match kind.as_str() {
            "bridge" if data == 5 => BRIDGE_PORT,
            "bridge" => BRIDGE,
            "vlan" => VLAN,
            "vxlan" => VXLAN,
            "macvlan" | "ipvlan" => MODE,
            "vrf" => VRF,
            _ => &[],
        };
        fields.insert(kind_name.to_owned(), kind.into());
        if let Some(data) = find(data, info) {
            fields.insert(data_name.to_owned(), object(data, table));
        }
    }
}

/// Adds the next hops of a route with several (`struct rtnexthop`).
fn add_next_hops(attributes: &[u8], fields: &mut Fields) {
    const MULTIPATH: u16 = 9;
    const HEAD: usize = 8;
    let Some(mut left) = find(MULTIPATH, attributes) else {
        return;
    };
    fields.remove("attribute 9");
    let mut hops = Vec::new();
    while let Some(len) = u16_of(left).map(usize::from)
        && let Some(inside) = left.get(HEAD..len)
    {
        let mut hop = Fields::new();
        hop.insert("oif".to_owned(), u32_at(left, 4).into());
        hop.insert("weight".to_owned(), (u32::from(left[3]) + 1).into());
        add(inside, ROUTE, &mut hop);
        hops.push(Value::Object(hop));
        left = left.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    fields.insert("nexthops".to_owned(), Value::Array(hops));
}
