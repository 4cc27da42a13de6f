//! What others ask of `127.0.0.1`, which the host routes to containers' links and is to take from
//! nobody else.

use super::{PORT, SERVICE, at_address, attach, mapped, network_by, outside};
use braid_tests::{Ns, Sandbox, Service, Transport};
use std::net::UdpSocket;

/// Where a service of the host itself listens.
const OWN: u16 = 7000;

/// Has a namespace send by `gateway` what is for `127.0.0.1`, and take the answers.
fn goes_for_loopback(ns: &Ns, gateway: &str) {
    ns.run("ip addr flush dev lo");
    ns.run("sysctl -qw net.ipv4.conf.all.route_localnet=1");
    ns.run(&format!("ip route add 127.0.0.1/32 via {gateway}"));
}

#[test]
fn nobody_else_reaches_the_loopback_address_of_the_host() {
    for backend in ["nftables", "ebpf"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let network = network_by("bridge", backend);
        let (pod, neighbour) = (host.pod("a"), attach(&host, "b", network.clone()));
        mapped(&host, &pod, network, &at_address("127.0.0.1"))
            .add()
            .result();
        // As the container's link, which braid sets so.
        host.set_sysctl("net/ipv4/conf/world/route_localnet", "1");
        goes_for_loopback(&outside, "192.0.2.1");
        goes_for_loopback(&neighbour, "10.1.0.1");
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
        // Those that are held are held by braid's rules alone.
        for chain in ["hostport-martian-new", "hostport-martian"] {
            host.run(&format!("nft flush chain inet braid {chain}"));
        }
        for client in [&outside, &neighbour] {
            assert!(
                client.ask(Transport::Tcp, &of_the_host).is_ok(),
                "{backend}: nothing else holds it"
            );
        }
    }
}

#[test]
fn what_others_translate_for_the_loopback_address_is_held_before() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let network = network_by("bridge", "nftables");
    let (pod, other) = (host.pod("a"), attach(&host, "b", network.clone()));
    mapped(&host, &pod, network, &at_address("127.0.0.1"))
        .add()
        .result();
    goes_for_loopback(&outside, "192.0.2.1");
    // Of chains with the same priority the one that came last is asked first.
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
fn a_container_begins_no_connection_in_the_name_of_a_loopback_address() {
    let host = Sandbox::new();
    let _outside = outside(&host);
    let network = network_by("bridge", "nftables");
    let (pod, neighbour) = (host.pod("a"), attach(&host, "b", network.clone()));
    mapped(&host, &pod, network, &at_address("127.0.0.1"))
        .add()
        .result();
    goes_for_loopback(&neighbour, "10.1.0.1");
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
    // The first one would wait for the gateway's hardware address.
    assert!(neighbour.can_ping("10.1.0.1"));
    assert_eq!((forwarded(), forwarded()), (0, 0));
    host.run("nft flush chain inet braid hostport-martian-new");
    assert_eq!(forwarded(), 1, "nothing else holds it");
}
