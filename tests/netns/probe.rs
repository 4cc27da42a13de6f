//! Probes for addresses through a container's link: another namespace on the same link has some.

use braid_core::cni::Attachment;
use braid_core::name::IfName;
use braid_node::ipam::Prober;
use braid_node::ipam::link_probe::LinkProber;
use braid_tests::{Ns, Sandbox, Value};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_millis(100);

/// Connects a container to another namespace, and returns both.
fn link(host: &Sandbox) -> (Rc<Ns>, Rc<Ns>) {
    let (pod, other) = (host.pod("a"), host.pod("other"));
    let path = other.path().display();
    pod.run(&format!(
        "ip link add eth0 type veth peer name eth0 netns {path}"
    ));
    pod.run("ip link set eth0 up");
    other.run("ip link set eth0 up");
    (pod, other)
}

/// Probes for addresses on the container's `eth0`. Returns those that another host has, each with its
/// hardware address, and the time.
fn probe(host: &Ns, netns: &Path, addresses: &[&str]) -> (Vec<String>, Duration) {
    let attachment = Attachment {
        container_id: "a".to_owned(),
        ifname: IfName::parse("eth0").unwrap(),
        netns: Some(netns.to_owned()),
        args: String::new(),
    };
    let addresses: Vec<IpAddr> = addresses
        .iter()
        .map(|address| address.parse().unwrap())
        .collect();
    let begin = Instant::now();
    let conflicts = host.enter(|| LinkProber(&attachment).probe(&addresses));
    let took = begin.elapsed();
    let conflicts = conflicts.unwrap().into_iter();
    let found = conflicts.map(|one| format!("{} {}", one.address, one.mac));
    (found.collect(), took)
}

#[test]
fn addresses_of_another_host_are_found_in_both_families_and_others_are_not() {
    let host = Sandbox::new();
    let (pod, other) = link(&host);
    other.run("ip addr add 10.1.0.7/24 dev eth0");
    other.run("ip addr add fd00:1::7/64 dev eth0 nodad");
    let link = other.the_link("eth0");
    let mac = link["address"].as_str().expect("an address");
    let all = ["10.1.0.7", "10.1.0.8", "fd00:1::7", "fd00:1::8"];
    let (found, took) = probe(host.host(), pod.path(), &all);
    assert_eq!(
        found,
        [format!("10.1.0.7 {mac}"), format!("fd00:1::7 {mac}")]
    );
    assert!(took >= WAIT && took < 5 * WAIT, "{took:?}");
    let (found, took) = probe(
        host.host(),
        pod.path(),
        &["10.1.0.8", "10.1.0.9", "fd00:1::8"],
    );
    assert_eq!(found, [""; 0]);
    assert!(took >= WAIT && took < 5 * WAIT, "{took:?}");
    // The container has got no address, and the other host has learned none.
    let none = [Value::Null; 0];
    assert_eq!(pod.list("ip -j -4 addr show dev eth0"), none);
    assert_eq!(other.list("ip -j -4 neigh"), none);
}

#[test]
fn of_two_hosts_that_probe_for_the_same_address_each_finds_the_other() {
    let host = Sandbox::new();
    let (pod, other) = link(&host);
    let all = ["10.1.0.7", "fd00:1::7"];
    let expected = |of: &Ns| {
        let link = of.the_link("eth0");
        let mac = link["address"].as_str().expect("an address").to_owned();
        all.map(|address| format!("{address} {mac}"))
    };
    let expected = [expected(&other), expected(&pod)];
    let begin = Instant::now();
    loop {
        // On a busy machine, one may end before the other begins.
        let found = std::thread::scope(|scope| {
            let node = host.host();
            let pods = [pod.path(), other.path()];
            let both = pods.map(|path| scope.spawn(move || probe(node, path, &all).0));
            both.map(|one| one.join().expect("an outcome"))
        });
        if found == expected {
            return;
        }
        let is_over = begin.elapsed() > Duration::from_secs(20);
        assert!(!is_over, "{found:?} instead of {expected:?}");
    }
}

#[test]
fn a_link_that_is_down_or_has_no_carrier_or_hardware_address_has_no_other_hosts() {
    let host = Sandbox::new();
    let (pod, other) = link(&host);
    other.run("ip link set eth0 down");
    let all = ["10.1.0.7", "fd00:1::7"];
    let (found, took) = probe(host.host(), pod.path(), &all);
    assert_eq!(found, [""; 0]);
    assert!(took < 5 * WAIT, "{took:?}");
    pod.run("ip link set eth0 down");
    assert_eq!(probe(host.host(), pod.path(), &all).0, [""; 0]);
    pod.run("ip link del eth0");
    assert_eq!(probe(host.host(), pod.path(), &all).0, [""; 0]);
    pod.run("ip tuntap add eth0 mode tun");
    pod.run("ip link set eth0 up");
    assert_eq!(probe(host.host(), pod.path(), &all).0, [""; 0]);
    pod.run("ip link del eth0");
}
