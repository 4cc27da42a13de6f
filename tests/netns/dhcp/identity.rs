//! Identity of a DHCP lease if a later plugin or the container sets another hardware address, or if
//! the container renames the link.

use super::lost::SHORT;
use super::{Server, address, daemon, lan, macvlan, said, until};
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};

/// Hardware address that the plugin `tuning` sets.
const MAC: &str = "02:00:00:00:00:17";

/// Returns a call for a plugin list: `first` with the IPAM `dhcp`, and then `tuning`, which sets
/// [`MAC`]. If `is_requested`, the runtime requests this address; else it is configured.
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
    if is_requested {
        call.with("runtimeConfig", json!({"mac": MAC}))
    } else {
        call
    }
}

/// Asserts that ADD requests a lease with [`MAC`], that CHECK accepts it, and that DEL releases it.
#[track_caller]
fn assert_leased_to_last_mac(host: &Sandbox, pod: &Ns, call: &Call, server: &Server) {
    let result = call.add().result();
    let leased = server.await_leases(1);
    assert_eq!(leased[0].1, MAC, "{leased:?}");
    let own = result["interfaces"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|own| own["name"] == "eth0");
    assert_eq!(own.expect("the container's interface")["mac"], MAC);
    assert_eq!(pod.the_link("eth0")["address"], MAC);
    assert_eq!(pod.addrs("eth0"), [format!("{}/16", address(&result))]);
    pod.run("ping -n -q -c 1 -w 10 -I eth0 10.3.0.254");
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    server.await_free();
    let log = server.log();
    assert!(
        log.lines()
            .any(|line| line.contains("DHCPRELEASE") && line.contains(MAC)),
        "{log}"
    );
    host.assert_nothing_left();
}

#[test]
fn the_lease_is_requested_with_the_hardware_address_of_a_later_plugin() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    for is_requested in [false, true] {
        let call = tuned(
            &host,
            &pod,
            &json!({"type": "macvlan", "master": "lan"}),
            is_requested,
        );
        assert_leased_to_last_mac(&host, &pod, &call, &server);
    }
    host.run("ip addr flush dev lan");
    let before = host.the_link("lan")["address"].clone();
    let call = tuned(
        &host,
        &pod,
        &json!({"type": "host-device", "device": "lan"}),
        false,
    );
    assert_leased_to_last_mac(&host, &pod, &call, &server);
    assert_eq!(host.the_link("lan")["address"], before);
}

#[test]
fn macspoofchk_allows_the_hardware_address_of_a_later_plugin() {
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
        assert_leased_to_last_mac(&host, &pod, &tuned(&host, &pod, &bridge, false), &server);
    }
}

/// Changes that a container makes to its link, each a list of commands.
const CHANGES: &[&[&str]] = &[
    &["ip link set eth0 address 02:00:00:00:00:99"],
    &[
        "ip link set eth0 down",
        "ip link set eth0 name lan0",
        "ip link set lan0 up",
    ],
    &[
        "ip link set eth0 down",
        "ip link set eth0 name lan0 address 02:00:00:00:00:98",
        "ip link set lan0 up",
    ],
];

/// Returns the name that the container's link has after `change`.
fn name_of(change: &[&str]) -> &'static str {
    if change.iter().any(|command| command.contains("name lan0")) {
        "lan0"
    } else {
        "eth0"
    }
}

#[test]
fn a_lease_is_renewed_and_released_after_a_change_of_name_or_mac() {
    needs!(Dnsmasq);
    for change in CHANGES {
        let host = Sandbox::new();
        let far = lan(&host);
        let server = Server::start(&far, "lan", &[SHORT]);
        let first = daemon(&host, &[]);
        let pod = host.pod("a");
        let call = host.call("macvlan", &pod, macvlan());
        let result = call.add().result();
        let leased = server.await_leases(1);
        change.iter().for_each(|command| drop(pod.run(command)));
        server.await_renewed();
        drop(first);
        let _second = daemon(&host, &[]);
        server.await_renewed();
        let (mac, ip) = (&leased[0].1, &leased[0].2);
        assert!(
            server
                .await_leases(1)
                .iter()
                .all(|(_, now, same)| (now, same) == (mac, ip)),
            "{}",
            server.log()
        );
        assert_eq!(
            pod.addrs(name_of(change)),
            [format!("{}/16", address(&result))],
            "{}",
            said()
        );
        call.del().ok();
        server.await_free();
        assert!(server.log().contains("DHCPRELEASE"), "{}", server.log());
    }
}

#[test]
fn without_the_daemon_a_lease_of_a_changed_link_is_released() {
    needs!(Dnsmasq);
    for change in CHANGES {
        let host = Sandbox::new();
        let far = lan(&host);
        let server = Server::start(&far, "lan", &[]);
        let first = daemon(&host, &[]);
        let pod = host.pod("a");
        let call = host.call("macvlan", &pod, macvlan());
        call.add().result();
        server.await_leases(1);
        change.iter().for_each(|command| drop(pod.run(command)));
        drop(first);
        call.del().ok();
        server.await_free();
    }
}

#[test]
fn a_refused_lease_of_a_changed_link_is_replaced() {
    needs!(Dnsmasq);
    for change in CHANGES {
        let host = Sandbox::new();
        let far = lan(&host);
        let router = "--dhcp-option=option:router,10.3.0.254";
        let server = Server::start(&far, "lan", &[SHORT, router]);
        let _daemon = daemon(&host, &[]);
        let pod = host.pod("a");
        let call = host.call("macvlan", &pod, macvlan());
        call.add().result();
        change.iter().for_each(|command| drop(pod.run(command)));
        drop(server);
        let server = Server::with_range(
            &far,
            "lan",
            "10.3.9.10,10.3.9.99,255.255.0.0,2m",
            &[SHORT, router],
        );
        let addrs = || pod.addrs(name_of(change));
        let is_new = |addr: &String| addr.starts_with("10.3.9.");
        let new = until("there is another address", || {
            addrs().into_iter().find(is_new)
        });
        assert_eq!(addrs(), [new], "{}", said());
        assert!(pod.can_ping("10.3.0.254"));
        call.del().ok();
        server.await_free();
    }
}

#[test]
fn a_new_link_of_the_same_name_does_not_inherit_the_lease() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let _server = Server::start(&far, "lan", &[SHORT]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    host.call("macvlan", &pod, macvlan()).add().result();
    let mac = pod.the_link("eth0")["address"]
        .as_str()
        .expect("an address")
        .to_owned();
    pod.run("ip link del eth0");
    pod.run(&format!(
        "ip link add eth0 address {mac} type veth peer name other"
    ));
    pod.run("ip addr add 10.3.0.200/16 dev eth0");
    until("the daemon drops the lease", || {
        said()
            .contains("interface eth0 no longer exists")
            .then_some(())
    });
    assert_eq!(pod.addrs("eth0"), ["10.3.0.200/16"]);
}
