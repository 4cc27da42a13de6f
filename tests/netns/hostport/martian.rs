//! What others ask of `127.0.0.1`, which the host routes to containers' links and is to take from nobody else.

use super::{PORT, SERVICE, at_address, attach, mapped, network_by, outside};
use braid_tests::{Ns, Sandbox, Service, Transport};

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
        mapped(&host, &pod, network, &at_address("127.0.0.1")).add().result();
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
                assert!(host.host().ask(Transport::Tcp, at).is_ok(), "{backend} {what}: {at}");
            }
            for (who, client) in [("outside", &outside), ("neighbour", &neighbour)] {
                for at in places {
                    assert!(client.ask(Transport::Tcp, at).is_err(), "{backend} {what}: {who} to {at}");
                }
            }
        };
        assert_held("as it is", &[&of_the_pod, &of_the_host]);
        host.run("nft add table ip untracked");
        host.run("nft add chain ip untracked pre { type filter hook prerouting priority -300 ; }");
        host.run("nft add rule ip untracked pre iif != lo ip daddr 127.0.0.0/8 notrack");
        assert_held("untracked", &[&of_the_host]);
        // Those that are held are held by braid's rules alone.
        for chain in ["hostport-in", "hostport-martian"] {
            host.run(&format!("nft flush chain inet braid {chain}"));
        }
        for client in [&outside, &neighbour] {
            assert!(client.ask(Transport::Tcp, &of_the_host).is_ok(), "{backend}: nothing else holds it");
        }
    }
}
