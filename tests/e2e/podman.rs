//! podman 4 with the conflist that it writes for CNI: bridge with masquerading and host-local, port
//! mapping, firewall, tuning.

use crate::engine::Podman;
use crate::program::{needs_programs, skip};
use braid_tests::{Sandbox, needs};
use std::net::TcpListener;

const INSPECT: &str = "inspect --format {{.NetworkSettings.Networks.lan.IPAddress}}";

#[test]
fn podman_containers_reach_each_other_and_outside_and_leave_nothing() {
    needs_programs!("podman", "conmon", "runc", "busybox", "iptables");
    needs!(Reference);
    let host = Sandbox::new();
    let outside = host.outside("wan", "192.0.2.1/24", "192.0.2.2/24");
    let podman = Podman::start(&host);
    if !podman.has_cni() {
        skip!("needs podman 4 with CNI, as in Debian 12");
    }
    podman.import();
    podman.run("network create --disable-dns --subnet 10.89.0.0/24 lan");
    for name in ["a", "b"] {
        podman.container(name, "lan");
    }
    let [a, b] = ["a", "b"].map(|name| podman.run(&format!("{INSPECT} {name}")));
    assert_eq!([a.as_str(), b.as_str()], ["10.89.0.2", "10.89.0.3"]);
    for (name, own, other) in [("a", &a, &b), ("b", &b, &a)] {
        let shown = podman.run(&format!("exec {name} ip -o -4 addr show dev eth0"));
        assert!(
            shown.contains(&format!("inet {own}/24 ")),
            "{name}: {shown}"
        );
        podman.run(&format!("exec {name} ping -q -c 1 -w 5 {other}"));
    }
    let listener = outside
        .enter(|| TcpListener::bind("192.0.2.2:0"))
        .expect("listen outside");
    let port = listener.local_addr().expect("own address").port();
    podman.run(&format!("exec a nc -w 5 192.0.2.2 {port} -e true"));
    let (_, seen) = listener.accept().expect("the container's connection");
    assert_eq!(
        seen.ip().to_string(),
        "192.0.2.1",
        "the container is masqueraded"
    );

    podman.run("rm -f -t 0 a b");
    host.assert_nothing_left();
    let rules = host.run("nft list ruleset");
    assert!(
        ![a, b].iter().any(|addr| rules.contains(addr)),
        "rules for a container: {rules}"
    );
    assert_eq!(host.link_names(), ["wan", "cni-podman1"]);
}
