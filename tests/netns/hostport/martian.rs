//! Packets from other machines to `127.0.0.1`. The host routes this address to the links of
//! containers, so it must not accept such packets from outside.

use super::{PORT, SERVICE, at_address, attach, mapped, network_by, outside};
use braid_tests::{Ns, Sandbox, Service, Transport};
use std::net::UdpSocket;

/// Port of a service that runs on the host itself.
const OWN: u16 = 7000;

/// Configures a namespace so that it sends packets for `127.0.0.1` to `gateway`, and accepts the
/// answers.
fn route_loopback_by(ns: &Ns, gateway: &str) {
    ns.run("ip addr flush dev lo");
    ns.run("sysctl -qw net.ipv4.conf.all.route_localnet=1");
    ns.run(&format!("ip route add 127.0.0.1/32 via {gateway}"));
}

#[test]
fn the_loopback_address_of_the_host_is_unreachable_from_outside() {
    for backend in ["nftables", "ebpf"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let network = network_by("bridge", backend);
        let (pod, neighbour) = (host.pod("a"), attach(&host, "b", network.clone()));
        mapped(&host, &pod, network, &at_address("127.0.0.1"))
            .add()
            .result();
        // braid sets this sysctl on the container's link only.
        host.set_sysctl("net/ipv4/conf/world/route_localnet", "1");
        route_loopback_by(&outside, "192.0.2.1");
        route_loopback_by(&neighbour, "10.1.0.1");
        let _service = Service::start(&pod, Transport::Tcp, SERVICE);
        let _own = Service::start(host.host(), Transport::Tcp, OWN);
        let of_the_pod = format!("127.0.0.1:{PORT}");
        let of_the_host = format!("127.0.0.1:{OWN}");
        let assert_held = |what: &str, places: &[&String]| {
            for at in places {
                assert!(
                    host.host().ask(Transport::Tcp, at).is_ok(),
                    "{backend} {what}: {at}"
                );
            }
            for (who, client) in [("outside", &outside), ("neighbour", &neighbour)] {
                for at in places {
                    assert!(
                        client.asks_in_vain(Transport::Tcp, at),
                        "{backend} {what}: {who} to {at}"
                    );
                }
            }
        };
        assert_held("as it is", &[&of_the_pod, &of_the_host]);
        host.run("nft add table ip untracked");
        host.run("nft add chain ip untracked pre { type filter hook prerouting priority -300 ; }");
        host.run("nft add rule ip untracked pre iif != lo ip daddr 127.0.0.0/8 notrack");
        assert_held("untracked", &[&of_the_host]);
        // Without braid's rules the host accepts these packets.
        for chain in ["hostport-martian-new", "hostport-martian"] {
            host.run(&format!("nft flush chain inet braid {chain}"));
        }
        for client in [&outside, &neighbour] {
            assert!(
                client.ask(Transport::Tcp, &of_the_host).is_ok(),
                "{backend}: no other rule blocks it"
            );
        }
    }
}

#[test]
fn foreign_dnat_of_the_loopback_address_is_blocked() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let network = network_by("bridge", "nftables");
    let (pod, other) = (host.pod("a"), attach(&host, "b", network.clone()));
    mapped(&host, &pod, network, &at_address("127.0.0.1"))
        .add()
        .result();
    route_loopback_by(&outside, "192.0.2.1");
    // Of the chains with the same priority, the newest one runs first.
    host.run("nft add table ip other");
    host.run("nft add chain ip other pre { type nat hook prerouting priority -100 ; }");
    let addr = other.list("ip -j -4 addr show eth0")[0]["addr_info"][0]["local"]
        .as_str()
        .unwrap()
        .to_owned();
    host.run(&format!(
        "nft add rule ip other pre ip daddr 127.0.0.1 tcp dport {OWN} dnat to {addr}:{SERVICE}"
    ));
    let _service = Service::start(&other, Transport::Tcp, SERVICE);
    let at = format!("127.0.0.1:{OWN}");
    assert!(outside.asks_in_vain(Transport::Tcp, &at));
    host.run("nft flush chain inet braid hostport-martian-new");
    assert!(
        outside.ask(Transport::Tcp, &at).is_ok(),
        "nothing else holds it"
    );
}

#[test]
fn a_container_cannot_connect_from_a_loopback_address() {
    let host = Sandbox::new();
    let _outside = outside(&host);
    let network = network_by("bridge", "nftables");
    let (pod, neighbour) = (host.pod("a"), attach(&host, "b", network.clone()));
    mapped(&host, &pod, network, &at_address("127.0.0.1"))
        .add()
        .result();
    route_loopback_by(&neighbour, "10.1.0.1");
    neighbour.run("ip addr add 127.0.0.53/32 dev eth0");
    let spoofing = neighbour
        .enter(|| UdpSocket::bind("127.0.0.53:7000"))
        .unwrap();
    let forwarded = || {
        spoofing.send_to(b"?", "192.0.2.2:7000").unwrap();
        host.json("nstat -jasz IpForwDatagrams")["kernel"]["IpForwDatagrams"]
            .as_u64()
            .unwrap()
    };
    // The very first packet would wait until the gateway's hardware address is known.
    assert!(neighbour.can_ping("10.1.0.1"));
    assert_eq!((forwarded(), forwarded()), (0, 0));
    host.run("nft flush chain inet braid hostport-martian-new");
    assert_eq!(forwarded(), 1, "nothing else holds it");
}
