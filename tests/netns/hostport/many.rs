//! Containers with many host ports.

use super::{PINS, mapped, network_by, outside};
use braid_tests::{Sandbox, Service, Transport, Value, json};
use std::path::Path;

/// Returns mappings of `ports` port numbers, each for TCP and UDP.
fn mappings(ports: u16) -> Value {
    let of = |port: u16| {
        ["tcp", "udp"]
            .map(|protocol| json!({"hostPort": port, "containerPort": port, "protocol": protocol}))
    };
    (1000..1000 + ports).flat_map(of).collect()
}

#[test]
fn thousands_of_ports_are_forwarded_to_a_container() {
    const PORTS: u16 = 1500;
    for backend in ["nftables", "ebpf"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let (a, b) = (host.pod("a"), host.pod("b"));
        let call = mapped(&host, &a, network_by("bridge", backend), &mappings(PORTS));
        let result = call.add().result();
        call.check(&result).ok();
        for port in [1000, 1000 + PORTS - 1] {
            for transport in [Transport::Tcp, Transport::Udp] {
                let _service = Service::start(&a, transport, port);
                for at in [format!("192.0.2.1:{port}"), format!("[2001:db8::1]:{port}")] {
                    assert!(outside.ask(transport, &at).is_ok(), "{backend}: {at}");
                }
                assert!(
                    host.host().ask(transport, &format!("[::1]:{port}")).is_ok(),
                    "{backend}: [::1]:{port}"
                );
            }
        }
        mapped(&host, &b, network_by("bridge", backend), &mappings(PORTS))
            .add()
            .refused(999, &["already used", "net a eth0"]);
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn more_ports_than_the_ebpf_map_holds_are_refused_before_any_change() {
    for (backend, ports, said) in [("ebpf", 4500, "eBPF"), ("nftables", 9000, "[::1]")] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = mapped(&host, &pod, network_by("bridge", backend), &mappings(ports));
        call.status().ok();
        let before = host.state().without_marks();
        call.add().refused(7, &[said, "16384 host ports", "18000"]);
        before.assert_same(&host.state().without_marks());
    }
}

#[test]
fn ports_beyond_the_free_space_of_the_ebpf_map_are_refused() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, network_by("bridge", "ebpf"), &mappings(4000));
    let result = first.add().result();
    let more = |from: u16, count: u16| -> Value {
        let of = |port| json!({"hostPort": port, "containerPort": port, "protocol": "tcp"});
        (from..from + count).map(of).collect()
    };
    let many = mapped(&host, &b, network_by("bridge", "ebpf"), &more(20000, 200));
    many.status().ok();
    let before = host.state().without_marks();
    many.add().refused(999, &["16384 host ports", "16000"]);
    before.assert_same(&host.state().without_marks());
    // After this, the map has room for one more element.
    let rest = mapped(&host, &b, network_by("bridge", "ebpf"), &more(20000, 191));
    let of_rest = rest.add().result();
    let c = host.pod("c");
    let few = mapped(&host, &c, network_by("bridge", "ebpf"), &more(30000, 2));
    let before = host.state().without_marks();
    few.add().refused(999, &["16384 host ports"]);
    before.assert_same(&host.state().without_marks());
    rest.prev(&of_rest).del().ok();
    first.prev(&result).del().ok();
    assert!(!Path::new(PINS).exists());
    host.assert_nothing_left();
}

#[test]
fn connections_of_any_number_of_ports_are_listed_in_one_request() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(
        &host,
        &pod,
        network_by("bridge", "nftables"),
        &mappings(100),
    );
    let result = call
        .clone()
        .under("strace -f -qq -e trace=sendto -o /run/strace")
        .add()
        .result();
    let sent = std::fs::read_to_string("/run/strace").unwrap();
    // braid lists the connections with one request per address family.
    assert_eq!(sent.matches("IPCTNL_MSG_CT_GET").count(), 2, "{sent}");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
