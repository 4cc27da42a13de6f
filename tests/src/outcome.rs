//! Comparison of the ADDs of two implementations. Names and addresses that each implementation
//! chooses by itself are left out.

use crate::ns::Ns;
use serde_json::{Map, Value, json};

/// Sysctls of the container's interface that plugins write.
const POD_SYSCTLS: &[&str] = &[
    "ipv4/conf/IF/arp_notify",
    "ipv6/conf/IF/disable_ipv6",
    "ipv6/conf/IF/keep_addr_on_down",
    "ipv6/conf/IF/accept_dad",
    "ipv6/conf/IF/enhanced_dad",
    "ipv6/conf/IF/ndisc_notify",
];
/// Sysctls of the node that plugins write.
const HOST_SYSCTLS: &[&str] = &["ipv4/ip_forward", "ipv6/conf/all/forwarding"];

/// Returns an ADD's result, and the links, addresses, routes and sysctls of the container and the
/// host. Host ends of veths and netkits are renamed to `veth*`, and hardware addresses to `mac`.
pub fn outcome(host: &Ns, pod: &Ns, result: &Value) -> Value {
    json!({
        "result": without_choices(result),
        "pod": side(pod, POD_SYSCTLS),
        "host": side(host, HOST_SYSCTLS),
    })
}

/// Replaces generated host link names and all hardware addresses in a result.
pub fn without_choices(result: &Value) -> Value {
    let mut result = result.clone();
    for interface in result["interfaces"].as_array_mut().into_iter().flatten() {
        if let Some(name) = interface["name"].as_str().map(general) {
            interface["name"] = name.into();
        }
        if interface.get("mac").is_some() {
            interface["mac"] = "mac".into();
        }
    }
    result
}

/// Returns `veth*` for the name of a host link that was chosen at random or by hash, and other
/// names unchanged.
fn general(name: &str) -> String {
    let is_chosen = name.len() > 8 && (name.starts_with("veth") || name.starts_with("nk"));
    if is_chosen {
        "veth*".to_owned()
    } else {
        name.to_owned()
    }
}

fn side(ns: &Ns, sysctls: &[&str]) -> Value {
    let links = ns.list("ip -d -j addr");
    let mut seen = Map::new();
    for link in links.iter().filter(|link| link["ifname"] != "lo") {
        let name = link["ifname"].as_str().unwrap_or_default();
        let values = sysctls.iter().filter(|key| key.contains("IF")).map(|key| {
            let path = format!("net/{}", key.replace("IF", name));
            let value = ns
                .enter(|| std::fs::read_to_string(format!("/proc/sys/{path}")))
                .unwrap_or_default();
            ((*key).to_owned(), Value::from(value.trim()))
        });
        let mut of = self::link(link);
        of["sysctls"] = values.collect::<Map<_, _>>().into();
        seen.insert(general(name), of);
    }
    let node: Map<_, _> = sysctls
        .iter()
        .filter(|key| !key.contains("IF"))
        .map(|key| {
            (
                (*key).to_owned(),
                Value::from(ns.sysctl(&format!("net/{key}"))),
            )
        })
        .collect();
    // The kernel creates these routes, some of them with a delay. A VRF's table holds them beside
    // other routes.
    let is_own = |route: &Value| {
        ["local", "broadcast", "anycast", "multicast"]
            .iter()
            .any(|kind| route["type"] == *kind)
    };
    let routes = ["-4", "-6"]
        .iter()
        .flat_map(|family| ns.routes(family))
        .filter(|route| !is_own(route));
    let mut routes: Vec<String> = routes.map(|r| route(&r)).collect();
    routes.sort();
    routes.dedup();
    json!({"links": seen, "routes": routes, "rules": rules(ns), "sysctls": node, "vlans": vlans(ns)})
}

/// Returns the policy routing rules as text.
fn rules(ns: &Ns) -> Vec<String> {
    let all = ["-4", "-6"]
        .iter()
        .flat_map(|family| ns.list(&format!("ip {family} -j rule")));
    all.map(|rule| rule.to_string()).collect()
}

/// Returns the VLANs of bridge ports as text; empty on a kernel without VLAN filtering.
fn vlans(ns: &Ns) -> Vec<String> {
    let ports = ns.list("bridge -j vlan show");
    let of = |port: &Value| {
        let name = general(port["ifname"].as_str().unwrap_or_default());
        let vlans = port["vlans"].as_array().cloned().unwrap_or_default();
        vlans
            .into_iter()
            .map(|vlan| format!("{name} {} {}", vlan["vlan"], vlan["flags"]))
            .collect::<Vec<_>>()
    };
    let mut vlans: Vec<String> = ports.iter().flat_map(of).collect();
    vlans.sort();
    vlans
}

/// Returns the options of a tap link; null for other kinds of links.
fn tun(link: &Value) -> Value {
    let info = &link["linkinfo"];
    if info["info_kind"] == "tun" {
        info["info_data"].clone()
    } else {
        Value::Null
    }
}

fn link(link: &Value) -> Value {
    let has = |flag: &str| {
        link["flags"]
            .as_array()
            .is_some_and(|flags| flags.iter().any(|f| f == flag))
    };
    let port = &link["linkinfo"]["info_slave_data"];
    let infos = link["addr_info"].as_array().into_iter().flatten();
    let mut addrs: Vec<String> = infos
        .filter(|info| info["scope"] == "global" || info["family"] == "inet")
        .filter_map(|info| {
            Some(format!(
                "{}/{} brd {}",
                info["local"].as_str()?,
                info["prefixlen"],
                info["broadcast"]
            ))
        })
        .collect();
    addrs.sort();
    json!({
        "kind": link["linkinfo"]["info_kind"],
        "mode": link["linkinfo"]["info_data"]["mode"],
        "id": link["linkinfo"]["info_data"]["id"],
        "tun": tun(link),
        "vlan_filtering": link["linkinfo"]["info_data"]["vlan_filtering"],
        "mtu": link["mtu"],
        "txqlen": link["txqlen"],
        "up": has("UP"),
        "promisc": has("PROMISC"),
        "allmulti": has("ALLMULTI"),
        "master": link["master"],
        "hairpin": port["hairpin"],
        "isolated": port["isolated"],
        "addrs": addrs,
    })
}

/// Formats a route as text, without its protocol.
fn route(route: &Value) -> String {
    let mut words = vec![route["dst"].as_str().unwrap_or_default().to_owned()];
    for key in [
        "gateway", "dev", "table", "scope", "metric", "prefsrc", "mtu", "advmss", "type", "metrics",
    ] {
        match &route[key] {
            Value::Null => {}
            Value::String(value) => words.extend([key.to_owned(), general(value)]),
            value => words.extend([key.to_owned(), value.to_string()]),
        }
    }
    words.join(" ")
}

/// Returns a line for each difference between two outcomes. `-` marks lines of `one`, `+` lines of
/// `other`.
pub fn differences(one: &Value, other: &Value) -> Vec<String> {
    let (one, other) = (flat(one), flat(other));
    let only = |sign: &str, here: &[String], there: &[String]| -> Vec<String> {
        here.iter()
            .filter(|line| !there.contains(line))
            .map(|line| format!("{sign} {line}"))
            .collect()
    };
    [only("-", &one, &other), only("+", &other, &one)].concat()
}

fn flat(value: &Value) -> Vec<String> {
    fn walk(path: &str, value: &Value, lines: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    walk(&format!("{path}.{key}"), value, lines);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, value)| walk(&format!("{path}[{at}]"), value, lines));
            }
            Value::Array(items) => items
                .iter()
                .for_each(|value| lines.push(format!("{path}: {value}"))),
            value => lines.push(format!("{path}: {value}")),
        }
    }
    let mut lines = Vec::new();
    walk("", value, &mut lines);
    lines
}
