//! Comparison of braid with the reference plugins: both create the same objects from the same
//! configuration.

use crate::{conf, flannel};
use braid_tests::outcome::{differences, outcome};
use braid_tests::{Call, Feature, Ns, Sandbox, Value, json, needs};

const OVERRULED: &str =
    "sbr: the reference lets a default route of the main table overrule `gateways`";

/// Deliberate differences of braid: a part of the line that reports the difference, and the reason.
const DELIBERATE: &[(&str, &str)] = &[
    (
        ".host.links.veth*.txqlen",
        "the reference makes the host end with a queue of 0 packets, which no qdisc can use later",
    ),
    (
        "/conf/IF/arp_notify",
        "ptp, vlan, dummy and host-device announce their addresses too",
    ),
    (
        "/conf/IF/ndisc_notify",
        "set by every plugin if there is an IPv6 address",
    ),
    (
        "/conf/IF/accept_dad",
        "also set by ptp and dummy, which have unique addresses; unchanged without an IPv6 address",
    ),
    (
        ".pod.links.eth0.tun.pi",
        "the reference leaves it on in one of its ways to create a tap; a program that opens the tap sets it again",
    ),
    (
        "fd00:1::/64 dev eth0 table 100",
        "sbr: only an IPv4 rule selects the table",
    ),
    ("default gateway 10.1.0.1 dev eth0 table 100", OVERRULED),
    ("default gateway 10.1.0.99 dev eth0 table 100", OVERRULED),
    ("default gateway fd00:1::1 dev eth0 table 101", OVERRULED),
    ("default gateway fd00:1::99 dev eth0 table 101", OVERRULED),
];

/// Runs an ADD with braid and with the reference plugins, each in a new sandbox. Returns a line for
/// each difference of the created objects that is not in [`DELIBERATE`].
fn compare(
    plugin: &str,
    conf: &Value,
    more: &Value,
    prepare: impl Fn(&Sandbox, &Ns),
) -> Vec<String> {
    let conf = merged(conf.clone(), more);
    let [theirs, ours] = [true, false].map(|is_reference| {
        let host = Sandbox::new();
        let pod = host.pod("a");
        prepare(&host, &pod);
        let call = host.call(plugin, &pod, conf.clone());
        let call = if is_reference { call.reference() } else { call };
        outcome(&host, &pod, &call.add().result())
    });
    let is_deliberate = |line: &String| DELIBERATE.iter().any(|(what, _)| line.contains(what));
    let lines = differences(&theirs, &ours)
        .into_iter()
        .filter(|line| !is_deliberate(line));
    lines
        .map(|line| format!("{plugin} {more}: {line}"))
        .collect()
}

/// Like [`compare`], but for the plugin `second` behind the plugin `first`, with one call for each
/// as libcni makes it. CHECK and DEL must succeed too.
fn compare_behind(
    first: &Value,
    second: &Value,
    more: &Value,
    prepare: impl Fn(&Sandbox, &Ns),
) -> Vec<String> {
    let second = merged(second.clone(), more);
    let [theirs, ours] = [true, false].map(|is_reference| {
        let host = Sandbox::new();
        let pod = host.pod("a");
        prepare(&host, &pod);
        let of = |conf: &Value| {
            let call = host.call(conf["type"].as_str().unwrap(), &pod, conf.clone());
            if is_reference { call.reference() } else { call }
        };
        let first = of(&merged(first.clone(), &json!({"cniVersion": second["cniVersion"]})));
        let prev = first.add().result();
        let second = of(&second).prev(&prev);
        let outcome = outcome(&host, &pod, &second.add().result());
        second.check(&prev).ok();
        second.del().ok();
        first.prev(&prev).del().ok();
        let left = json!({"links": pod.link_names(), "rules": pod.run("ip rule") + &pod.run("ip -6 rule")});
        json!({"attached": outcome, "left": left})
    });
    let is_deliberate = |line: &String| DELIBERATE.iter().any(|(what, _)| line.contains(what));
    let lines = differences(&theirs, &ours)
        .into_iter()
        .filter(|line| !is_deliberate(line));
    lines
        .map(|line| format!("{} {more}: {line}", second["type"]))
        .collect()
}

/// Asserts that [`compare`] finds no difference in any of `cases`, which are keys that are added to
/// `conf`.
fn same(plugin: &str, conf: &Value, cases: &[Value], prepare: impl Fn(&Sandbox, &Ns)) {
    let lines: Vec<String> = cases
        .iter()
        .flat_map(|more| compare(plugin, conf, more, &prepare))
        .collect();
    assert!(
        lines.is_empty(),
        "the reference (-) and braid (+):\n{}",
        lines.join("\n")
    );
}

fn merged(base: Value, more: &Value) -> Value {
    let mut base = base;
    for (key, value) in more.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

fn nothing(_: &Sandbox, _: &Ns) {}

fn lan(host: &Sandbox, _: &Ns) {
    host.run("ip link add lan type veth peer name lan-far");
    host.run("ip link set lan up");
    host.run("ip link set lan-far up");
}

#[test]
fn bridge() {
    needs!(Reference);
    let routes = json!([{"dst": "192.0.2.0/24"}, {"dst": "198.51.100.0/24", "gw": "10.1.0.254"}]);
    let cases = [
        json!({}),
        json!({"isGateway": false}),
        json!({"isDefaultGateway": true}),
        json!({"mtu": 1400, "hairpinMode": true}),
        json!({"promiscMode": true}),
        json!({"portIsolation": true}),
        json!({"ipam": conf::dual_stack(), "isDefaultGateway": true}),
        json!({"ipam": conf::dual_stack(), "enabledad": true}),
        json!({"ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": routes}}),
        json!({"ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}]}}),
        json!({"dns": {"nameservers": ["192.0.2.53"], "search": ["example.org"]}}),
        json!({"runtimeConfig": {"mac": "c2:11:22:33:44:77"}}),
    ];
    same("bridge", &conf::bridge(), &cases, nothing);
    same(
        "bridge",
        &conf::bridge_l2(),
        &[json!({}), json!({"disableContainerInterface": true})],
        nothing,
    );
}

#[test]
fn dns_of_the_configuration_and_of_the_ipam() {
    needs!(Reference);
    let dns = [
        json!({}),
        json!({"nameservers": null, "domain": ""}),
        json!({"nameservers": []}),
        json!({"search": []}),
        json!({"options": []}),
        json!({"domain": "example.org"}),
    ];
    let ipam = json!({"type": "static", "addresses": [{"address": "10.2.0.9/24", "gateway": "10.2.0.1"}],
        "dns": {"nameservers": ["192.0.2.53"], "search": ["example.com"]}});
    let cases = dns.map(|dns| json!({"dns": dns, "ipam": ipam}));
    same("bridge", &conf::bridge(), &cases, nothing);
    same("ptp", &conf::ptp(), &cases, nothing);
    same("macvlan", &conf::macvlan(), &cases, lan);
}

#[test]
fn bridge_with_vlans() {
    needs!(Reference, VlanFiltering);
    let cases = [
        json!({"vlan": 100}),
        json!({"vlan": 100, "isGateway": false}),
        json!({"vlan": 100, "preserveDefaultVlan": true}),
        json!({"vlanTrunk": [{"minID": 10, "maxID": 12}, {"id": 20}], "isGateway": false}),
        json!({"vlan": 100, "vlanTrunk": [{"id": 20}], "isGateway": false}),
        json!({"vlanTrunk": [], "isGateway": false}),
        json!({"vlan": 1, "isGateway": false}),
    ];
    same("bridge", &conf::bridge(), &cases, nothing);
}

#[test]
fn ptp() {
    needs!(Reference);
    let routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.2.0.1"}]);
    let cases = [
        json!({}),
        json!({"mtu": 1400}),
        json!({"ipam": conf::dual_stack()}),
        json!({"ipam": {"type": "host-local", "subnet": "10.2.0.0/24", "routes": routes}}),
        json!({"dns": {"nameservers": ["192.0.2.53"]}}),
    ];
    same("ptp", &conf::ptp(), &cases, nothing);
}

#[test]
fn bridge_and_ptp_of_netkits_differ_only_in_kind() {
    needs!(Reference, Netkit);
    let of = |sign, kind: &str| {
        [".host.links.veth*", ".pod.links.eth0"].map(|at| format!("{sign} {at}.kind: {kind:?}"))
    };
    let kinds = [of("-", "veth"), of("+", "netkit")].concat();
    for conf in [conf::bridge(), conf::ptp()] {
        for more in [
            json!({}),
            json!({"mtu": 1400}),
            json!({"ipam": conf::dual_stack()}),
        ] {
            // The reference plugins ignore these keys.
            let more = merged(more, &json!({"device": "netkit", "mode": "l2"}));
            let plugin = conf["type"].as_str().unwrap();
            let lines = compare(plugin, &conf, &more, nothing);
            assert_eq!(
                lines,
                kinds
                    .iter()
                    .map(|line| format!("{plugin} {more}: {line}"))
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn macvlan() {
    needs!(Reference);
    let cases = [
        json!({}),
        json!({"mode": "private"}),
        json!({"mode": "vepa"}),
        json!({"mode": "passthru"}),
        json!({"mtu": 1400}),
        json!({"mac": "c2:11:22:33:44:77"}),
        json!({"ipam": {}}),
        json!({"ipam": conf::dual_stack()}),
    ];
    same("macvlan", &conf::macvlan(), &cases, lan);
}

#[test]
fn macvlan_of_the_default_link_and_of_a_link_in_the_container() {
    needs!(Reference);
    let default = |host: &Sandbox, pod: &Ns| {
        lan(host, pod);
        host.run("ip addr add 192.0.2.1/24 dev lan");
        host.run("ip route add default via 192.0.2.254");
    };
    same(
        "macvlan",
        &conf::macvlan(),
        &[json!({"master": ""})],
        default,
    );
    let inside = |_: &Sandbox, pod: &Ns| {
        pod.run("ip link add lan type veth peer name lan-far");
        pod.run("ip link set lan up");
    };
    same(
        "macvlan",
        &conf::macvlan(),
        &[json!({"linkInContainer": true})],
        inside,
    );
}

#[test]
fn ipvlan() {
    needs!(Reference, Ipvlan);
    let conf = merged(conf::macvlan(), &json!({"type": "ipvlan"}));
    let cases = [
        json!({}),
        json!({"mode": "l3"}),
        json!({"mode": "l3s"}),
        json!({"mtu": 1400}),
        json!({"ipam": conf::dual_stack()}),
    ];
    same("ipvlan", &conf, &cases, lan);
}

#[test]
fn vlan() {
    needs!(Reference, Vlan);
    let cases = [
        json!({}),
        json!({"vlanId": 0}),
        json!({"mtu": 1400}),
        json!({"ipam": conf::dual_stack()}),
        json!({"dns": {"domain": "example.org"}}),
    ];
    same("vlan", &conf::vlan(), &cases, lan);
    every_version_of("vlan", &conf::vlan(), lan);
    let inside = |_: &Sandbox, pod: &Ns| {
        pod.run("ip link add lan type veth peer name lan-far");
        pod.run("ip link set lan up");
    };
    same(
        "vlan",
        &conf::vlan(),
        &[json!({"linkInContainer": true})],
        inside,
    );
}

#[test]
fn dummy() {
    needs!(Reference, Dummy);
    let dns = json!({"type": "static", "addresses": [{"address": "10.6.0.9/32"}], "dns": {"nameservers": ["192.0.2.53"]}});
    let cases = [
        json!({}),
        json!({"ipam": conf::dual_stack()}),
        json!({"ipam": dns, "dns": {"domain": "example.org"}}),
    ];
    same("dummy", &conf::dummy(), &cases, nothing);
    every_version_of("dummy", &conf::dummy(), nothing);
}

#[test]
fn tap() {
    needs!(Reference);
    let cases = [
        json!({}),
        json!({"ipam": {}}),
        json!({"mtu": 1400, "mac": "c2:11:22:33:44:77"}),
        json!({"multiQueue": true}),
        json!({"owner": 1000}),
        json!({"group": 107}),
        json!({"owner": 0, "group": 107, "multiQueue": true}),
        json!({"owner": 0, "group": 107}),
        json!({"ipam": conf::dual_stack()}),
        json!({"dns": {"domain": "example.org"}}),
    ];
    same("tap", &conf::tap(), &cases, nothing);
    every_version_of("tap", &conf::tap(), nothing);
    let bridge = |_: &Sandbox, pod: &Ns| drop(pod.run("ip link add br0 type bridge"));
    same("tap", &conf::tap(), &[json!({"bridge": "br0"})], bridge);
}

#[test]
fn host_device() {
    needs!(Reference);
    let device = |host: &Sandbox, _: &Ns| {
        host.run("ip link add dev0 type veth peer name far0");
        host.run("ip link set dev0 address c2:00:00:00:00:01");
        host.run("ip link set far0 up");
    };
    let cases = [
        json!({}),
        json!({"ipam": {}}),
        json!({"ipam": conf::dual_stack()}),
        json!({"device": "", "hwaddr": "c2:00:00:00:00:01"}),
        json!({"device": "", "kernelpath": "/sys/devices/virtual"}),
        json!({"dns": {"domain": "example.org"}}),
    ];
    same("host-device", &conf::host_device(), &cases, device);
    every_version_of("host-device", &conf::host_device(), device);
}

#[test]
fn loopback() {
    needs!(Reference);
    let conf = json!({"cniVersion": "1.1.0", "name": "lo", "type": "loopback"});
    same(
        "loopback",
        &conf,
        &[json!({}), json!({"cniVersion": "1.0.0"})],
        nothing,
    );
}

#[test]
fn tuning() {
    needs!(Reference);
    let cases = [
        json!({}),
        json!({"mtu": 1300, "promisc": true, "allmulti": true, "txQLen": 500}),
        json!({"mac": "c2:11:22:33:44:77"}),
        json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}}),
        json!({"mtu": 1300, "args": {"cni": {"mtu": 1280, "txQLen": 5}}}),
    ];
    let eth0 = |_: &Sandbox, pod: &Ns| drop(pod.run("ip link add eth0 type veth peer name far"));
    same("tuning", &conf::tuning(), &cases, eth0);
}

#[test]
fn sbr() {
    needs!(Reference);
    let ipam = merged(
        conf::dual_stack(),
        &json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"},
        {"dst": "192.0.2.0/24", "gw": "10.1.0.9", "priority": 7}]}),
    );
    let macvlan = merged(conf::macvlan(), &json!({"ipam": ipam}));
    let sbr = json!({"cniVersion": "1.1.0", "name": "net", "type": "sbr"});
    let mut cases = vec![
        json!({"table": 5000}),
        json!({"gateways": ["10.1.0.99", "fd00:1::99"]}),
        json!({"gateways": ["10.1.0.99"], "addSourceHints": true}),
        json!({"addSourceHints": true}),
    ];
    // The lowest version is 0.4.0, because CHECK is also called.
    cases.extend(["0.4.0", "1.0.0", "1.1.0"].map(|version| json!({"cniVersion": version})));
    let lines: Vec<String> = cases
        .iter()
        .flat_map(|more| compare_behind(&macvlan, &sbr, more, lan))
        .collect();
    assert!(
        lines.is_empty(),
        "the reference (-) and braid (+):\n{}",
        lines.join("\n")
    );
}

#[test]
fn vrf() {
    needs!(Reference, Vrf);
    let ipam = merged(
        conf::dual_stack(),
        &json!({"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"},
        {"dst": "192.0.2.0/24", "gw": "10.1.0.9", "priority": 7}]}),
    );
    let macvlan = merged(conf::macvlan(), &json!({"ipam": ipam}));
    let vrf = json!({"cniVersion": "1.1.0", "name": "net", "type": "vrf", "vrfname": "blue"});
    let mut cases = vec![json!({"table": 42})];
    cases.extend(["0.4.0", "1.0.0", "1.1.0"].map(|version| json!({"cniVersion": version})));
    let lines: Vec<String> = cases
        .iter()
        .flat_map(|more| compare_behind(&macvlan, &vrf, more, lan))
        .collect();
    assert!(
        lines.is_empty(),
        "the reference (-) and braid (+):\n{}",
        lines.join("\n")
    );
}

/// The reference `flannel` starts the reference `bridge` with a generated configuration. For CNI
/// versions that no release of `flannel` knows, braid is compared with that `bridge`.
#[test]
fn flannel() {
    needs!(Reference);
    let env = |more: &str| {
        let two = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\n";
        flannel::flanneld(&format!("{two}{more}"));
    };
    let conf = |version: &str| {
        json!({"cniVersion": version, "name": "net", "type": "flannel",
        "delegate": {"bridge": "br0", "hairpinMode": true}, "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}]}})
    };
    let made = |version: &str, ranges: Value, routes: Value| {
        json!({"cniVersion": version, "name": "net", "type": "bridge",
        "bridge": "br0", "hairpinMode": true, "isGateway": true, "mtu": 1472, "ipMasq": false,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": routes}})
    };
    let own = Feature::ReferenceFlannel.is_here();
    for (version, is_six) in [
        ("0.3.1", false),
        ("0.4.0", false),
        ("1.0.0", false),
        ("1.1.0", false),
        ("1.1.0", true),
    ] {
        let [theirs, ours] = [true, false].map(|is_reference| {
            let host = Sandbox::new();
            let pod = host.pod("a");
            let six = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n";
            env(&format!(
                "FLANNEL_IPMASQ=true\n{}",
                if is_six { six } else { "" }
            ));
            let call = match (is_reference, own && version < "1.0.0") {
                (false, _) => host.call("flannel", &pod, conf(version)),
                (true, true) => host.call("flannel", &pod, conf(version)).reference(),
                (true, false) => {
                    let mut ranges = json!([[{"subnet": "10.1.17.0/24"}]]);
                    let mut routes = json!([{"dst": "0.0.0.0/0"}, {"dst": "10.1.0.0/16"}]);
                    if is_six {
                        ranges
                            .as_array_mut()
                            .unwrap()
                            .push(json!([{"subnet": "fc00::/64"}]));
                        routes
                            .as_array_mut()
                            .unwrap()
                            .push(json!({"dst": "fc00::/48"}));
                    }
                    host.call("bridge", &pod, made(version, ranges, routes))
                        .reference()
                }
            };
            let outcome = outcome(&host, &pod, &call.add().result());
            call.del().ok();
            assert_eq!(pod.link_names(), Vec::<String>::new());
            outcome
        });
        let is_deliberate = |line: &String| DELIBERATE.iter().any(|(what, _)| line.contains(what));
        let lines: Vec<String> = differences(&theirs, &ours)
            .into_iter()
            .filter(|line| !is_deliberate(line))
            .collect();
        assert!(
            lines.is_empty(),
            "{version}: the reference (-) and braid (+):\n{}",
            lines.join("\n")
        );
    }
}

#[test]
fn addresses() {
    needs!(Reference);
    let ipam = |more: Value| json!({"ipam": merged(json!({"type": "host-local"}), &more)});
    let cases = [
        ipam(json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.20", "rangeEnd": "10.1.0.30"})),
        ipam(json!({"subnet": "10.1.0.0/24", "gateway": "10.1.0.254"})),
        ipam(
            json!({"ranges": [[{"subnet": "10.1.0.0/30", "rangeStart": "10.1.0.2"}, {"subnet": "10.1.1.0/24"}]]}),
        ),
        ipam(
            json!({"subnet": "10.1.0.0/24", "routes": [{"dst": "192.0.2.0/24", "priority": 7, "table": 100}]}),
        ),
        ipam(
            json!({"subnet": "10.1.0.0/24", "routes": [{"dst": "192.0.2.0/24", "scope": 253, "gw": "0.0.0.0"}]}),
        ),
        ipam(json!({"subnet": "fd00:1::/64", "routes": [{"dst": "::/0"}]})),
        json!({"runtimeConfig": {"ips": ["10.1.0.77"]}}),
        json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.7.0.0/24"}]]}}),
        json!({"args": {"cni": {"ips": ["10.1.0.78"]}}}),
    ];
    same(
        "bridge",
        &merged(conf::bridge(), &json!({"isGateway": false})),
        &cases,
        nothing,
    );
}

const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

/// Compares the result of an ADD, and the objects that it creates, in every CNI version.
fn every_version_of(plugin: &str, conf: &Value, prepare: impl Fn(&Sandbox, &Ns)) {
    let cases =
        VERSIONS.map(|version| json!({"cniVersion": version, "dns": {"domain": "example.org"}}));
    same(plugin, conf, &cases, prepare);
}

#[test]
fn every_version_of_the_result() {
    needs!(Reference);
    every_version_of("bridge", &conf::bridge(), nothing);
    let without = VERSIONS.map(|version| json!({"cniVersion": version, "isDefaultGateway": true}));
    same("bridge", &conf::bridge(), &without, nothing);
}

/// A runtime may call an IPAM plugin directly.
#[test]
fn an_ipam_called_directly() {
    needs!(Reference);
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]}});
    same(
        "host-local",
        &conf,
        &["0.3.1", "1.0.0", "1.1.0"].map(|v| json!({"cniVersion": v})),
        nothing,
    );
    let ipam = json!({"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}], "dns": {"nameservers": ["192.0.2.53"]}});
    same(
        "static",
        &conf,
        &["0.2.0", "0.4.0", "1.1.0"].map(|v| json!({"cniVersion": v, "ipam": ipam})),
        nothing,
    );
}

/// Returns all default routes of the container in the kernel's order, and the route that a packet
/// takes.
fn default_routes(pod: &Ns) -> Vec<String> {
    let mut routes = Vec::new();
    for family in ["-4", "-6"] {
        for route in pod.list(&format!("ip {family} -j route show default")) {
            let hops = route["nexthops"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![route.clone()]);
            routes.extend(
                hops.iter()
                    .map(|hop| format!("{} {} {}", hop["gateway"], hop["dev"], route["metric"])),
            );
        }
    }
    // Only for IPv4, because the kernel balances packets over several IPv6 routes.
    routes.push(
        pod.try_run("ip -4 -j route get 192.0.2.1")
            .unwrap_or_default(),
    );
    routes
}

#[test]
fn the_same_one_of_two_default_routes_is_used() {
    needs!(Reference);
    let ipam = |net: u8, routes: Value| {
        let ranges = [
            [json!({"subnet": format!("10.{net}.0.0/24")})],
            [json!({"subnet": format!("fd00:{net}::/64")})],
        ];
        json!({"type": "host-local", "ranges": ranges, "routes": routes})
    };
    let default = || json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let two = json!([{"dst": "0.0.0.0/0", "gw": "10.1.0.250"}, {"dst": "0.0.0.0/0", "gw": "10.1.0.251"},
        {"dst": "::/0", "gw": "fd00:1::250"}, {"dst": "::/0", "gw": "fd00:1::251"}]);
    let lists = || vec![("eth0", 1, default()), ("net1", 2, default())];
    for (plugin, attached) in [
        ("bridge", lists()),
        ("ptp", lists()),
        ("bridge", vec![("eth0", 1, two)]),
    ] {
        let [theirs, ours] = [true, false].map(|is_reference| {
            let host = Sandbox::new();
            let pod = host.pod("a");
            let calls: Vec<(Call, Value)> = attached
                .iter()
                .map(|(ifname, net, routes)| {
                    let conf = json!({"cniVersion": "1.1.0", "name": format!("net{net}"), "type": plugin,
                        "bridge": format!("br{net}"), "isGateway": true, "ipam": ipam(*net, routes.clone())});
                    let call = host.call(plugin, &pod, conf).ifname(ifname);
                    let call = if is_reference { call.reference() } else { call };
                    let result = call.add().result();
                    (call, result)
                })
                .collect();
            let attached = default_routes(&pod);
            for (call, result) in &calls {
                call.check(result).ok();
            }
            calls[0].0.del().ok();
            (attached, default_routes(&pod))
        });
        assert_eq!(ours, theirs, "{plugin} {attached:?}");
    }
}
