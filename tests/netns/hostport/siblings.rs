//! A container on several networks that has the same host ports on each of them, as with compose
//! and podman.

use super::loopback::AT;
use super::{BOTH, SERVICE, mapped, mapping, network, outside, reaches};
use braid_tests::arriving::PATIENCE;
use braid_tests::{Call, Ns, Sandbox, Service, Transport, Value, json, state};
use std::net::UdpSocket;

const BACKENDS: [[&str; 2]; 4] = [
    ["nftables", "nftables"],
    ["ebpf", "ebpf"],
    ["ebpf", "nftables"],
    ["nftables", "ebpf"],
];

/// Returns the configuration of a container's second network, which has no default route.
fn other(name: &str, backend: &str) -> Value {
    let mut network = network("bridge", name, 2);
    network["plugins"][0]["ipam"]["routes"] = json!([]);
    network["plugins"][1]["backend"] = json!(backend);
    network
}

fn one(name: &str, backend: &str) -> Value {
    let mut network = network("bridge", name, 1);
    network["plugins"][1]["backend"] = json!(backend);
    network
}

/// Returns two calls for the container, one for `eth0` and one for `eth1`. Both have all mappings.
fn both(host: &Sandbox, pod: &Ns, backends: [&str; 2], names: [&str; 2]) -> [Call; 2] {
    let mappings = json!(BOTH.map(mapping));
    let second = mapped(host, pod, other(names[1], backends[1]), &mappings).ifname("eth1");
    [
        mapped(host, pod, one(names[0], backends[0]), &mappings),
        second,
    ]
}

fn forwards_to(host: &Sandbox, addr: &str) -> bool {
    let elements = state::elements(host);
    let ports = elements
        .iter()
        .filter(|element| element.starts_with("inet braid hostport4-any:"));
    ports.clone().count() == 2 && ports.clone().all(|element| element.contains(addr))
}

#[test]
fn the_first_interface_owns_a_port_until_its_del() {
    for backends in BACKENDS {
        for first_to_go in [0, 1] {
            let host = Sandbox::new();
            let outside = outside(&host);
            let pod = host.pod("a");
            let calls = both(&host, &pod, backends, ["net", "other"]);
            let results = [calls[0].add().result(), calls[1].add().result()];
            for (call, result) in calls.iter().zip(&results) {
                call.check(result).ok();
            }
            assert!(forwards_to(&host, "10.1.0.2"), "{backends:?}");
            assert!(reaches(&outside, "192.0.2.1:8080", &pod), "{backends:?}");
            calls[first_to_go]
                .clone()
                .prev(&results[first_to_go])
                .del()
                .ok();
            let left = 1 - first_to_go;
            if left == 1 {
                pod.run("ip route add default via 10.2.0.1");
                pod.run("ip -6 route add default via fd00:2::1");
            }
            calls[left].check(&results[left]).ok();
            assert!(
                forwards_to(&host, ["10.1.0.2", "10.2.0.2"][left]),
                "{backends:?} {first_to_go}"
            );
            for at in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
                assert!(
                    reaches(&outside, at, &pod),
                    "{backends:?} {first_to_go} {at}"
                );
            }
            for at in ["127.0.0.1:8080", AT] {
                assert!(
                    reaches(host.host(), at, &pod),
                    "{backends:?} {first_to_go} {at}"
                );
            }
            calls[left].clone().prev(&results[left]).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn a_port_is_free_only_after_all_interfaces_with_it_are_detached() {
    for backends in BACKENDS {
        let host = Sandbox::new();
        let (a, b) = (host.pod("a"), host.pod("b"));
        let calls = both(&host, &a, backends, ["net", "other"]);
        let results = [calls[0].add().result(), calls[1].add().result()];
        let next = mapped(
            &host,
            &b,
            one("net", backends[0]),
            &json!(BOTH.map(mapping)),
        );
        next.add()
            .refused(999, &["8080/tcp is already used", "a eth0"]);
        calls[0].clone().prev(&results[0]).del().ok();
        next.add()
            .refused(999, &["8080/tcp is already used", "a eth1"]);
        calls[1].clone().prev(&results[1]).del().ok();
        let result = next.add().result();
        next.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn gc_and_del_without_a_record_pass_the_port_to_the_other_interface() {
    for (by, names) in [
        ("GC", ["net", "other"]),
        ("DEL", ["net", "other"]),
        ("DEL", [&"n".repeat(120), "other"]),
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let calls = both(&host, &pod, ["nftables", "nftables"], names);
        calls[0].add().result();
        let result = calls[1].add().result();
        if by == "GC" {
            calls[0].gc(&[]).ok();
        } else {
            if names[0] == "net" {
                std::fs::remove_file("/run/braid/attachments/a/eth0:net:braid.json").unwrap();
            }
            calls[0].del().ok();
        }
        assert!(forwards_to(&host, "10.2.0.2"), "{by} {names:?}");
        calls[1].check(&result).ok();
        calls[1].clone().prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_udp_client_follows_the_port_to_the_other_interface_immediately() {
    for backends in BACKENDS {
        let host = Sandbox::new();
        let outside = outside(&host);
        let pod = host.pod("a");
        let calls = both(&host, &pod, backends, ["net", "other"]);
        let results = [calls[0].add().result(), calls[1].add().result()];
        let client = outside.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        outside.enter(|| client.connect("192.0.2.1:8080")).unwrap();
        let _service = Service::start(&pod, Transport::Udp, SERVICE);
        let answered = || {
            client.send(b"?").unwrap();
            client.recv(&mut [0; 64]).map_err(|err| err.to_string())
        };
        assert_eq!(answered(), Ok("192.0.2.2".len()), "{backends:?}");
        calls[0].clone().prev(&results[0]).del().ok();
        pod.run("ip route add default via 10.2.0.1");
        assert_eq!(answered(), Ok("192.0.2.2".len()), "{backends:?}");
        calls[1].clone().prev(&results[1]).del().ok();
        host.assert_nothing_left();
    }
}
