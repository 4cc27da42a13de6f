//! CHECK: it succeeds after ADD, and reports each kind of damage.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};
use std::rc::Rc;

/// Attaches a container to a bridge, with everything that [`DAMAGES`] damages. Returns the
/// container, the call and the result.
fn attached(host: &Sandbox) -> (Rc<Ns>, Call, Value) {
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24"}, {"dst": "2001:db8::/64"}]});
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", ipam)
        .with("ipMasq", true);
    let call = call
        .with("hairpinMode", true)
        .with("promiscMode", false)
        .with("portIsolation", true);
    let result = call.add().result();
    call.check(&result).ok();
    (pod, call, result)
}

/// Namespace in which a command does its damage.
#[derive(Clone, Copy)]
enum At {
    Host,
    Pod,
}

/// Damages to an attachment: the namespace, the command, and a word of the resulting error. `PORT`
/// stands for the host end of the veth.
const DAMAGES: &[(At, &str, &str)] = &[
    (At::Pod, "ip addr del 10.1.0.2/24 dev eth0", "10.1.0.2/24"),
    (At::Pod, "ip addr del fd00:1::2/64 dev eth0", "fd00:1::2/64"),
    (At::Pod, "ip route del default", "0.0.0.0/0"),
    (At::Pod, "ip route del 192.0.2.0/24", "192.0.2.0/24"),
    (At::Pod, "ip -6 route del 2001:db8::/64", "2001:db8::/64"),
    (At::Pod, "ip link set eth0 down", "eth0"),
    (
        At::Pod,
        "ip link set eth0 address c2:00:00:00:00:99",
        "c2:00:00:00:00:99",
    ),
    (At::Pod, "ip link del eth0", "eth0"),
    (At::Pod, "ip link set eth0 name other", "eth0"),
    (
        At::Host,
        "ip link set PORT nomaster",
        "is not a port of br0",
    ),
    (At::Host, "ip link set PORT down", "PORT"),
    (
        At::Host,
        "bridge link set dev PORT hairpin off",
        "Hairpin(true)",
    ),
    (
        At::Host,
        "bridge link set dev PORT isolated off",
        "Isolated(true)",
    ),
    (At::Host, "ip link del br0", "br0"),
    (At::Host, "ip link set br0 down", "br0"),
    (At::Host, "ip addr del 10.1.0.1/24 dev br0", "10.1.0.1/24"),
    (At::Host, "ip addr del fd00:1::1/64 dev br0", "fd00:1::1/64"),
    (
        At::Host,
        "nft delete element inet braid masquerade4 { 10.1.0.2 }",
        "10.1.0.2 is not masqueraded",
    ),
    (
        At::Host,
        "nft delete element inet braid masquerade6 { fd00:1::2 }",
        "fd00:1::2 is not masqueraded",
    ),
    (
        At::Host,
        "nft delete table inet braid",
        "10.1.0.2 is not masqueraded",
    ),
    (
        At::Host,
        "rm /var/lib/cni/networks/net/10.1.0.2 /var/lib/cni/networks/net/fd00:1::2",
        "host-local: Failed to find",
    ),
];

#[test]
fn each_damage_fails_check_by_name_and_check_repairs_nothing() {
    for (at, damage, word) in DAMAGES {
        let host = Sandbox::new();
        let (pod, call, result) = attached(&host);
        let port = result["interfaces"][1]["name"].as_str().unwrap();
        let ns: &Ns = if matches!(at, At::Host) {
            host.host()
        } else {
            &pod
        };
        ns.run(&damage.replace("PORT", port));
        let before = host.state();
        let answer = call.check(&result);
        assert_eq!(answer.code, 1, "CHECK did not see: {damage}");
        answer.refused(999, &[&word.replace("PORT", port)]);
        before.assert_same(&host.state());
        call.del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn check_reports_a_changed_node_sysctl() {
    let host = Sandbox::new();
    let (_, call, result) = attached(&host);
    host.set_sysctl("net/ipv4/ip_forward", "0");
    call.check(&result).refused(999, &["net/ipv4/ip_forward"]);
}

#[test]
fn without_a_record_check_compares_the_result() {
    let host = Sandbox::new();
    let (pod, call, result) = attached(&host);
    std::fs::remove_dir_all("/run/braid").unwrap();
    call.check(&result).ok();
    pod.run("ip addr del 10.1.0.2/24 dev eth0");
    call.check(&result).refused(999, &["10.1.0.2"]);
}

#[test]
fn a_missing_or_different_namespace_fails_check() {
    let host = Sandbox::new();
    let (pod, call, result) = attached(&host);
    let other = host.pod("b");
    call.clone()
        .netns(other.path())
        .check(&result)
        .refused(7, &["Sandbox in prevResult doesn't match", "/run/netns/b"]);
    host.end(&pod);
    call.check(&result).refused(8, &["/run/netns/a"]);
    call.del().ok();
}

#[test]
fn check_reports_macvlan_and_ptp_damage() {
    for plugin in ["macvlan", "ptp"] {
        let host = Sandbox::new();
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        let conf = if plugin == "ptp" {
            conf::ptp()
        } else {
            conf::macvlan()
        };
        let call = host.call(plugin, &pod, conf);
        let result = call.add().result();
        let address = result["ips"][0]["address"].as_str().unwrap();
        call.check(&result).ok();
        pod.run(&format!("ip addr del {address} dev eth0"));
        call.check(&result).refused(999, &[address]);
        pod.run("ip link del eth0");
        pod.run("ip link add eth0 type bridge");
        call.check(&result).refused(999, &["eth0", "bridge"]);
    }
}

#[test]
fn check_covers_the_host_side_of_a_ptp() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("ptp", &pod, conf::ptp());
    let result = call.add().result();
    host.run("ip route del 10.2.0.2");
    call.check(&result).refused(999, &["10.2.0.2/32"]);
}

#[test]
fn changes_by_later_plugins_do_not_fail_check() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [
        conf::bridge(), {"type": "tuning", "mac": "c2:11:22:33:44:55", "mtu": 1400},
    ]});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    assert_eq!(pod.the_link("eth0")["address"], "c2:11:22:33:44:55");
    call.check(&result).ok();
}

#[test]
fn check_distinguishes_routes_to_one_destination_by_interface() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let attach = |ifname: &str, net: u8| {
        let ipam = json!({"type": "host-local", "ranges":
            [[{"subnet": format!("10.{net}.0.0/24")}], [{"subnet": format!("fd00:{net}::/64")}]]});
        let call = host
            .call("bridge", &pod, conf::bridge())
            .ifname(ifname)
            .with("bridge", format!("br{net}"));
        let call = call.with("isDefaultGateway", true).with("ipam", ipam);
        let result = call.add().result();
        (call, result)
    };
    let [(_, _), (second, second_result)] = [attach("eth0", 1), attach("eth1", 2)];
    second.check(&second_result).ok();
    pod.run("ip -6 route del default via fd00:2::1 dev eth1");
    second.check(&second_result).refused(999, &["::/0", "eth1"]);
}

#[test]
fn table_0_of_a_route_means_the_main_table() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24",
        "routes": [{"dst": "10.66.0.0/16", "table": 0, "scope": 0, "priority": 0, "mtu": 0}]});
    let call = host.call("bridge", &pod, conf::bridge()).with("ipam", ipam);
    let result = call.add().result();
    assert_eq!(result["routes"][0]["table"], 0);
    call.check(&result).ok();
    std::fs::remove_dir_all("/run/braid").unwrap();
    call.check(&result).ok();
}

#[test]
fn an_ipam_called_directly_needs_no_namespace() {
    let host = Sandbox::new();
    let addresses = json!([{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}]);
    for (plugin, ipam) in [
        (
            "host-local",
            json!({"type": "host-local", "subnet": "10.1.0.0/24"}),
        ),
        ("static", json!({"type": "static", "addresses": addresses})),
    ] {
        // The first path has no network namespace. The second is the host's, in which no plugin may
        // work.
        for (at, netns) in ["/run/netns/nowhere", "/proc/self/ns/net"]
            .into_iter()
            .enumerate()
        {
            let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": ipam.clone()});
            let call = Call::new(plugin, conf)
                .container(&format!("c{at}"))
                .env("CNI_NETNS", netns);
            let result = call.add().result();
            call.check(&result).ok();
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

/// Returns a call of `plugin`, after creating the link that the plugin needs.
fn recordless(host: &Sandbox, pod: &Ns, plugin: &str) -> Call {
    let conf = match plugin {
        "bridge" => conf::bridge(),
        "ptp" => conf::ptp(),
        "macvlan" => conf::macvlan(),
        "loopback" => json!({"cniVersion": "1.1.0", "name": "net", "type": "loopback"}),
        other => {
            json!({"cniVersion": "1.1.0", "name": "net", "type": other, "mtu": 1400, "promisc": true,
            "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "capabilities": {"bandwidth": true},
            "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/24", "interface": 0}],
                "interfaces": [{"name": "eth0", "sandbox": pod.path(), "mac": "c2:00:00:00:00:01"}]}})
        }
    };
    if plugin == "macvlan" {
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    }
    if conf.get("prevResult").is_some() {
        pod.run("ip link add eth0 address c2:00:00:00:00:01 type veth peer name far");
        pod.run("ip addr add 10.9.0.2/24 dev eth0");
    }
    let call = host.call(plugin, pod, conf);
    if plugin == "loopback" {
        call.ifname("lo")
    } else {
        call
    }
}

/// Damages that CHECK finds without a record, from configuration and result alone. It finds them
/// for attachments of the reference plugins too.
const RECORDLESS_DAMAGES: &[(&str, At, &str, &str)] = &[
    ("bridge", At::Pod, "ip link set eth0 down", "eth0"),
    ("bridge", At::Pod, "ip link del eth0", "eth0"),
    ("bridge", At::Host, "ip link set PORT down", "PORT"),
    (
        "bridge",
        At::Host,
        "ip link set PORT nomaster",
        "is not a port of br0",
    ),
    (
        "bridge",
        At::Host,
        "ip link set PORT address c2:00:00:00:00:99",
        "PORT",
    ),
    (
        "bridge",
        At::Host,
        "ip link set br0 address c2:00:00:00:00:99",
        "br0",
    ),
    ("bridge", At::Host, "ip link set br0 down", "br0"),
    (
        "bridge",
        At::Host,
        "ip addr del 10.1.0.1/24 dev br0",
        "10.1.0.1/24",
    ),
    (
        "bridge",
        At::Host,
        "sysctl -w net.ipv4.ip_forward=0",
        "net/ipv4/ip_forward",
    ),
    ("ptp", At::Pod, "ip link set eth0 down", "eth0"),
    ("ptp", At::Host, "ip link set PORT down", "PORT"),
    ("ptp", At::Host, "ip route del 10.2.0.2", "10.2.0.2/32"),
    ("macvlan", At::Pod, "ip link set eth0 down", "eth0"),
    (
        "macvlan",
        At::Pod,
        "ip link set eth0 type macvlan mode private",
        "mode",
    ),
    ("macvlan", At::Pod, "ip link del eth0", "eth0"),
    ("loopback", At::Pod, "ip link set lo down", "lo"),
    ("tuning", At::Pod, "ip link set eth0 mtu 1300", "eth0"),
    ("tuning", At::Pod, "ip link set eth0 promisc off", "eth0"),
    (
        "tuning",
        At::Pod,
        "sysctl -w net.ipv4.conf.eth0.arp_filter=0",
        "arp_filter",
    ),
    ("tuning", At::Pod, "ip link del eth0", "eth0"),
    ("firewall", At::Pod, "ip link del eth0", "eth0"),
    (
        "firewall",
        At::Pod,
        "ip link set eth0 address c2:00:00:00:00:99",
        "c2:00:00:00:00:99",
    ),
    (
        "portmap",
        At::Pod,
        "ip addr del 10.9.0.2/24 dev eth0",
        "10.9.0.2/24",
    ),
    ("bandwidth", At::Pod, "ip link del eth0", "eth0"),
];

fn assert_damage_is_found_without_a_record(is_reference: bool) {
    for (plugin, at, damage, word) in RECORDLESS_DAMAGES {
        if is_reference && ["firewall", "portmap", "bandwidth"].contains(plugin) {
            continue;
        }
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = recordless(&host, &pod, plugin);
        let result = if is_reference {
            call.clone().reference()
        } else {
            call.clone()
        }
        .add()
        .result();
        let _ = std::fs::remove_dir_all("/run/braid");
        call.check(&result).ok();
        let ends = result["interfaces"].as_array().into_iter().flatten();
        let end = ends
            .filter_map(|one| one["name"].as_str())
            .find(|name| name.starts_with("veth"));
        let port = end.unwrap_or_default();
        let ns: &Ns = if matches!(at, At::Host) {
            host.host()
        } else {
            &pod
        };
        ns.run(&damage.replace("PORT", port));
        let answer = call.check(&result);
        assert_eq!(answer.code, 1, "{plugin}: CHECK did not see: {damage}");
        answer.refused(999, &[&word.replace("PORT", port)]);
    }
}

#[test]
fn without_a_record_configuration_and_result_reveal_each_damage() {
    assert_damage_is_found_without_a_record(false);
}

#[test]
fn attachments_of_reference_plugins_are_checked_in_the_same_way() {
    braid_tests::needs!(Reference);
    assert_damage_is_found_without_a_record(true);
}

#[test]
fn check_after_del_fails() {
    for plugin in ["bridge", "ptp", "macvlan", "loopback"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = recordless(&host, &pod, plugin);
        let result = call.add().result();
        call.check(&result).ok();
        call.del().ok();
        assert_eq!(call.check(&result).code, 1, "{plugin}");
    }
}

#[test]
fn a_next_hop_of_all_zeros_means_no_gateway() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
        "routes": [{"dst": "192.0.2.0/24", "gw": "0.0.0.0"}, {"dst": "2001:db8::/64", "gw": "::"}]});
    let call = host.call("bridge", &pod, conf::bridge()).with("ipam", ipam);
    let result = call.add().result();
    assert_eq!(
        [&result["routes"][0]["gw"], &result["routes"][1]["gw"]],
        ["0.0.0.0", "::"]
    );
    for (family, dst) in [("-4", "192.0.2.0/24"), ("-6", "2001:db8::/64")] {
        let route = pod
            .routes(family)
            .into_iter()
            .find(|route| route["dst"] == dst)
            .expect("the route");
        assert_eq!(
            (&route["dev"], route.get("gateway")),
            (&json!("eth0"), None)
        );
    }
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}
