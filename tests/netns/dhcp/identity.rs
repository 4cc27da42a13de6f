//! The identity that a lease belongs to: hardware addresses that later plugins or the container give, other names.

use super::{Server, address, daemon, lan};
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};

/// The hardware address that `tuning` gives.
const MAC: &str = "02:00:00:00:00:17";

/// A list of one plugin with addresses by DHCP, and `tuning` behind it with `MAC`.
fn tuned(host: &Sandbox, pod: &Ns, first: &Value, is_requested: bool) -> Call {
    let mut first = first.clone();
    first["ipam"] = json!({"type": "dhcp"});
    let tuning = if is_requested {
        json!({"type": "tuning", "capabilities": {"mac": true}})
    } else {
        json!({"type": "tuning", "mac": MAC, "mtu": 1400})
    };
    let call = host.call(
        "braid",
        pod,
        json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [first, tuning]}),
    );
    if is_requested { call.with("runtimeConfig", json!({"mac": MAC})) } else { call }
}

/// ADD asks with the last hardware address, CHECK accepts it, DEL releases with it.
#[track_caller]
fn assert_leased_to_the_last(host: &Sandbox, pod: &Ns, call: &Call, server: &Server) {
    let result = call.add().result();
    let leased = server.await_leases(1);
    assert_eq!(leased[0].1, MAC, "{leased:?}");
    let own = result["interfaces"].as_array().into_iter().flatten().find(|own| own["name"] == "eth0");
    assert_eq!(own.expect("the container's interface")["mac"], MAC);
    assert_eq!(pod.the_link("eth0")["address"], MAC);
    assert_eq!(pod.addrs("eth0"), [format!("{}/16", address(&result))]);
    pod.run("ping -n -q -c 1 -w 10 -I eth0 10.3.0.254");
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    server.await_free();
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("DHCPRELEASE") && line.contains(MAC)), "{log}");
    host.assert_nothing_left();
}

#[test]
fn the_server_is_asked_with_the_hardware_address_of_a_later_plugin() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    for is_requested in [false, true] {
        let call = tuned(&host, &pod, &json!({"type": "macvlan", "master": "lan"}), is_requested);
        assert_leased_to_the_last(&host, &pod, &call, &server);
    }
    host.run("ip addr flush dev lan");
    let before = host.the_link("lan")["address"].clone();
    let call = tuned(&host, &pod, &json!({"type": "host-device", "device": "lan"}), false);
    assert_leased_to_the_last(&host, &pod, &call, &server);
    assert_eq!(host.the_link("lan")["address"], before);
}

#[test]
fn a_port_that_is_held_to_one_hardware_address_is_held_to_that_of_a_later_plugin() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    host.run("ip addr add 10.3.0.254/16 dev br0");
    host.run("ip link set br0 up");
    let server = Server::start(host.host(), "br0", &[]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    for spoof_check in [false, true] {
        let bridge = json!({"type": "bridge", "bridge": "br0", "macspoofchk": spoof_check});
        assert_leased_to_the_last(&host, &pod, &tuned(&host, &pod, &bridge, false), &server);
    }
}
