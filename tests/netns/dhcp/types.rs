//! Plugin types with a link to a DHCP server, and types with which the IPAM `dhcp` is refused.

use super::{Server, address, daemon, lan};
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};

const ROUTER: &str = "--dhcp-option=option:router,10.3.0.254";

fn dhcp(kind: &str, keys: &Value) -> Value {
    let mut conf =
        json!({"cniVersion": "1.1.0", "name": "net", "type": kind, "ipam": {"type": "dhcp"}});
    for (key, value) in keys.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// Returns a call for a plugin list: a macvlan on `lan` whose address comes from DHCP, and then the
/// plugin `behind`.
fn macvlan_and(host: &Sandbox, pod: &Ns, behind: &Value) -> Call {
    let plugins = json!([dhcp("macvlan", &json!({"master": "lan"})), behind]);
    host.call(
        "braid",
        pod,
        json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins}),
    )
}

/// Asserts that ADD, traffic, CHECK and a repeated DEL work, and that the server sees the lease and
/// its release.
#[track_caller]
fn assert_leases_and_releases(host: &Sandbox, pod: &Ns, call: &Call, server: &Server) {
    let result = call.add().result();
    server.await_address(&address(&result));
    assert_eq!(pod.addrs("eth0"), [format!("{}/16", address(&result))]);
    pod.run("ping -n -q -c 1 -w 10 -I eth0 10.3.0.254");
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    server.await_free();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_host_device_releases_its_address_before_it_is_returned() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    host.run("ip addr flush dev lan");
    let server = Server::start(&far, "lan", &[ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let device = host.the_link("lan")["address"].clone();
    let call = host.call(
        "host-device",
        &pod,
        dhcp("host-device", &json!({"device": "lan"})),
    );
    for _ in 0..2 {
        assert_leases_and_releases(&host, &pod, &call, &server);
        assert_eq!(host.the_link("lan")["address"], device);
    }
    let list = json!([dhcp("host-device", &json!({"device": "lan"})), {"type": "tuning", "mtu": 1400}, {"type": "sbr"}]);
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": list});
    assert_leases_and_releases(&host, &pod, &host.call("braid", &pod, list), &server);
    assert_eq!(host.the_link("lan")["mtu"], 1500);
}

#[test]
fn a_vlan_gets_its_address_from_the_server_of_the_vlan() {
    needs!(Dnsmasq, Vlan);
    let host = Sandbox::new();
    let far = lan(&host);
    far.run("ip addr flush dev lan");
    far.run("ip link add link lan name five type vlan id 5");
    far.run("ip addr add 10.3.0.254/16 dev five");
    far.run("ip link set five up");
    let server = Server::start(&far, "five", &[ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call(
        "vlan",
        &pod,
        dhcp("vlan", &json!({"master": "lan", "vlanId": 5})),
    );
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn a_vxlan_gets_its_address_from_a_server_on_another_host() {
    needs!(Dnsmasq, Vxlan);
    let host = Sandbox::new();
    let far = host.outside("lan", "192.0.2.1/24", "192.0.2.2/24");
    far.run("ip link add five type vxlan id 5 dev lan remote 192.0.2.1 dstport 4789");
    far.run("ip addr add 10.3.0.254/16 dev five");
    far.run("ip link set five up");
    let server = Server::start(&far, "five", &[ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let keys = json!({"id": 5, "dev": "lan", "remote": "192.0.2.2"});
    let call = host.call("vxlan", &pod, dhcp("vxlan", &keys));
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn an_ipvlan_gets_an_address_by_broadcast_answers() {
    needs!(Dnsmasq, Ipvlan);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[ROUTER]);
    let _daemon = daemon(&host, &["-broadcast"]);
    let pod = host.pod("a");
    let call = host.call("ipvlan", &pod, dhcp("ipvlan", &json!({"master": "lan"})));
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn a_netkit_on_a_bridge_reaches_a_server() {
    needs!(Dnsmasq, Netkit);
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    host.run("ip addr add 10.3.0.254/16 dev br0");
    host.run("ip link set br0 up");
    let server = Server::start(host.host(), "br0", &[ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = host.call(
        "bridge",
        &pod,
        dhcp("bridge", &json!({"bridge": "br0", "device": "netkit"})),
    );
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn sbr_creates_a_table_for_a_leased_address() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = macvlan_and(&host, &pod, &json!({"type": "sbr"}));
    let result = call.add().result();
    let rules = pod.list("ip -j rule");
    let own = rules
        .iter()
        .find(|rule| rule["src"] == address(&result).as_str())
        .expect("a rule of the address");
    assert_eq!(own["table"], "100");
    assert!(
        pod.run("ip route show table 100")
            .contains("default via 10.3.0.254")
    );
    call.del().ok();
    server.await_free();
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn a_lease_is_renewed_through_a_link_in_a_vrf() {
    needs!(Dnsmasq, Vrf);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[ROUTER, super::lost::SHORT]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = macvlan_and(&host, &pod, &json!({"type": "vrf", "vrfname": "blue"}));
    let result = call.add().result();
    assert_eq!(pod.the_link("eth0")["master"], "blue");
    server.await_renewed();
    call.check(&result).ok();
    call.del().ok();
    server.await_free();
    assert_leases_and_releases(&host, &pod, &call, &server);
}

#[test]
fn types_without_a_path_to_a_server_are_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    let refused: &[(&str, Value, &str)] = &[
        ("ptp", json!({}), "it connects only to this node"),
        (
            "ptp",
            json!({"routed": true}),
            "it connects only to this node",
        ),
        (
            "netkit",
            json!({"mode": "l2"}),
            "it connects only to this node",
        ),
        ("dummy", json!({}), "it drops all packets"),
        (
            "tap",
            json!({}),
            "the program that serves it has not opened it yet",
        ),
        (
            "ipvlan",
            json!({"mode": "l3"}),
            "in layer 3 it carries no broadcast",
        ),
        (
            "ipvlan",
            json!({"mode": "l3s"}),
            "in layer 3 it carries no broadcast",
        ),
        (
            "host-device",
            json!({"device": "lan", "DPDKMode": true}),
            "a program drives the device",
        ),
    ];
    for (kind, keys, why) in refused {
        let sentence =
            format!("\"ipam\": type \"dhcp\" needs a DHCP server behind the link of {kind}: {why}");
        let call = host.call(kind, &pod, dhcp(kind, keys));
        call.add().refused(7, &[&sentence]);
        call.del().ok();
        before.assert_same(&host.state());
    }
}
