//! `portmap` at `[::1]`, for sockets of the host. eBPF programs at the root of cgroup v2 redirect
//! these sockets while at least one host port exists.

use super::{
    BOTH, PINS, PORT, SERVICE, at_address, mapped, mapping, network_by, outside, reaches, tcp,
};
use braid_tests::arriving::PATIENCE;
use braid_tests::feature::pretend;
use braid_tests::sandbox::cgroup2;
use braid_tests::{Call, Feature, Ns, Sandbox, Service, Transport, Value, json, needs, state};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

pub(super) const AT: &str = "[::1]:8080";
/// Address of the host in the container's subnet. It is the container's gateway.
const GATEWAY: &str = "fd00:1::1";
/// Names of the BPF attach types of the programs.
const PLACES: [&str; 4] = ["connect6", "sendmsg6", "recvmsg6", "getpeername6"];

fn both() -> Value {
    json!(BOTH.map(mapping))
}

/// Returns the path at which the BPF link of the program for the attach type `place` is pinned.
fn pin_of(place: &str) -> String {
    let pins = state::tree(Path::new(PINS)).into_keys();
    let is_it = |path: &String| {
        Path::new(path)
            .file_name()
            .is_some_and(|name| is_of(&name.to_string_lossy(), place))
    };
    let found: Vec<String> = pins.filter(is_it).collect();
    assert_eq!(found.len(), 1, "{place}: {found:?}");
    found[0].clone()
}

fn is_of(name: &str, place: &str) -> bool {
    name.starts_with(&format!("lo_{place}_"))
}

/// Returns the IDs of the programs that redirect this host's sockets, from their pinned links.
/// Returns nothing without `bpftool`.
pub(super) fn programs(host: &Ns) -> Vec<u64> {
    if Feature::Bpftool.missing().is_some() {
        return Vec::new();
    }
    let links =
        PLACES.map(|place| host.json(&format!("bpftool -j link show pinned {}", pin_of(place))));
    links
        .iter()
        .map(|link| link["prog_id"].as_u64().unwrap())
        .collect()
}

/// Returns those of `programs` that run at the root of cgroup v2.
pub(super) fn at_the_root(host: &Ns, programs: &[u64]) -> Vec<u64> {
    if programs.is_empty() {
        return Vec::new();
    }
    let all = host.list(&format!(
        "bpftool -j cgroup show {}",
        cgroup2().unwrap().display()
    ));
    all.iter()
        .filter_map(|program| program["id"].as_u64())
        .filter(|id| programs.contains(id))
        .collect()
}

#[test]
fn a_socket_sees_the_requested_address_and_the_container_the_gateway() {
    for backend in ["nftables", "ebpf"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = mapped(&host, &pod, network_by("bridge", backend), &both());
        let result = call.add().result();
        let _services = BOTH.map(|transport| Service::start(&pod, transport, SERVICE));
        let at: SocketAddr = AT.parse().unwrap();
        let stream = host
            .enter(|| TcpStream::connect_timeout(&at, PATIENCE))
            .unwrap();
        assert_eq!(stream.peer_addr().unwrap(), at, "{backend}");
        for is_connected in [false, true] {
            let socket = host.enter(|| UdpSocket::bind("[::]:0")).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            if is_connected {
                socket.connect(at).unwrap();
                assert_eq!(socket.peer_addr().unwrap(), at, "{backend}");
                socket.send(b"?").unwrap();
            } else {
                socket.send_to(b"?", at).unwrap();
            }
            let mut text = [0; 64];
            let (len, from) = socket.recv_from(&mut text).unwrap();
            assert_eq!(
                (from, &text[..len]),
                (at, GATEWAY.as_bytes()),
                "{backend}, connected: {is_connected}"
            );
        }
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_socket_of_the_container_address_gets_answers_from_that_address() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &both());
    let result = call.add().result();
    let _service = Service::start(&pod, Transport::Udp, SERVICE);
    let socket = host.enter(|| UdpSocket::bind("[::]:0")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let its_own: SocketAddr = "[fd00:1::2]:80".parse().unwrap();
    socket.send_to(b"?", its_own).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 64]).unwrap().1, its_own);
    call.prev(&result).del().ok();
}

#[test]
fn sockets_of_other_namespaces_are_not_redirected() {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &both());
    let result = call.add().result();
    let _services = BOTH.map(|transport| Service::start(&pod, transport, SERVICE));
    for transport in BOTH {
        assert_eq!(host.host().ask(transport, AT), Ok(GATEWAY.parse().unwrap()));
        assert!(outside.ask(transport, AT).is_err(), "{transport:?}");
        let _own = Service::start(&outside, transport, PORT);
        assert_eq!(
            outside.ask(transport, AT),
            Ok("::1".parse().unwrap()),
            "{transport:?}"
        );
    }
    call.prev(&result).del().ok();
}

/// A packet from `::1` cannot reach a container. nf_tables would redirect it, but the kernel does
/// not route it out of a link.
#[test]
fn a_socket_bound_to_the_loopback_address_is_not_redirected() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &both());
    let result = call.add().result();
    let service = pod.enter(|| UdpSocket::bind(("::", SERVICE))).unwrap();
    service
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let socket = host.enter(|| UdpSocket::bind("[::1]:0")).unwrap();
    socket.connect(AT).unwrap();
    assert_eq!(socket.peer_addr().unwrap(), AT.parse().unwrap());
    let sent = socket.send(b"?");
    assert!(service.recv_from(&mut [0; 64]).is_err(), "{sent:?}");
    // The socket can still reach other ports of the loopback address.
    let server = host.enter(|| UdpSocket::bind("[::1]:0")).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(server.local_addr().unwrap()).unwrap();
    socket.send(b"?").unwrap();
    assert_eq!(
        server.recv_from(&mut [0; 64]).unwrap().1,
        socket.local_addr().unwrap()
    );
    call.prev(&result).del().ok();
}

#[test]
fn a_mapping_of_the_loopback_address_precedes_one_of_any_address() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let all = mapped(&host, &a, network_by("bridge", "nftables"), &tcp());
    let of_all = all.add().result();
    let alone = mapped(
        &host,
        &b,
        network_by("bridge", "nftables"),
        &at_address("::1"),
    );
    let of_alone = alone.add().result();
    let reaches = |pod: &Ns| reaches(host.host(), AT, pod);
    assert!(reaches(&b) && !reaches(&a));
    alone.prev(&of_alone).del().ok();
    assert!(reaches(&a) && !reaches(&b));
    all.prev(&of_all).del().ok();
    host.assert_nothing_left();
}

#[test]
fn programs_are_created_with_the_first_port_and_deleted_with_the_last() {
    needs!(Bpftool);
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, network_by("bridge", "nftables"), &tcp());
    let of_first = first.add().result();
    let ids = programs(&host);
    assert_eq!(at_the_root(&host, &ids).len(), PLACES.len());
    let second = mapped(
        &host,
        &b,
        network_by("ptp", "nftables"),
        &json!([mapping(Transport::Udp)]),
    );
    let of_second = second.add().result();
    assert_eq!(programs(&host), ids);
    first.prev(&of_first).del().ok();
    second.check(&of_second).ok();
    assert_eq!(at_the_root(&host, &ids).len(), PLACES.len());
    second.prev(&of_second).del().ok();
    assert_eq!(at_the_root(&host, &ids), [0; 0]);
    host.assert_nothing_left();
}

#[test]
fn programs_of_another_version_are_replaced() {
    needs!(Bpftool);
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, network_by("bridge", "nftables"), &tcp());
    let of_first = first.add().result();
    let old = programs(&host);
    for place in PLACES {
        let pin = pin_of(place);
        let folder = Path::new(&pin).parent().unwrap();
        std::fs::rename(&pin, folder.join(format!("lo_{place}_0123456789abcdef"))).unwrap();
    }
    first.check(&of_first).ok();
    let second = mapped(
        &host,
        &b,
        network_by("bridge", "nftables"),
        &json!([mapping(Transport::Udp)]),
    );
    let of_second = second.add().result();
    let new = programs(&host);
    assert_eq!(at_the_root(&host, &old), [0; 0]);
    assert_eq!(at_the_root(&host, &new).len(), PLACES.len());
    for (call, result) in [(first, of_first), (second, of_second)] {
        call.check(&result).ok();
        call.prev(&result).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn check_reports_a_missing_program_element_or_pin() {
    needs!(Bpftool);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &tcp());
    let mut result = call.add().result();
    let not_there = "is not attached to the root of cgroup2";
    let nowhere = "[::]:8080/tcp is not forwarded ([::1])";
    let mut damages: Vec<_> = PLACES
        .map(|place| {
            (
                format!("bpftool link detach pinned {}", pin_of(place)),
                not_there,
            )
        })
        .into();
    let ports = state::tree(Path::new(PINS))
        .into_keys()
        .find(|path| path.ends_with("loopback_ports"))
        .unwrap();
    // The key is port 8080, TCP, any address.
    damages.push((
        format!("bpftool map delete pinned {ports} key hex 1f 90 06 01"),
        nowhere,
    ));
    damages.push((format!("rm {}", pin_of("connect6")), not_there));
    damages.push((format!("rm -r {PINS}"), nowhere));
    for (damage, said) in damages {
        call.check(&result).ok();
        host.run(&damage);
        call.check(&result).refused(999, &[said]);
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        result = call.add().result();
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_loopback_port_without_record_is_replaced_and_survives_the_old_del() {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let lost = mapped(&host, &a, network_by("bridge", "nftables"), &both());
    lost.add().result();
    std::fs::remove_dir_all("/run/braid/attachments").unwrap();
    let call = mapped(&host, &b, network_by("bridge", "nftables"), &both());
    let result = call.add().result();
    lost.del().ok();
    for transport in BOTH {
        let _service = Service::start(&b, transport, SERVICE);
        assert_eq!(
            host.host().ask(transport, AT),
            Ok(GATEWAY.parse().unwrap()),
            "{transport:?}"
        );
    }
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn del_and_gc_delete_the_programs_without_a_record() {
    for by_gc in [false, true] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        mapped(&host, &pod, network_by("bridge", "nftables"), &both())
            .add()
            .result();
        let ids = programs(&host);
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        // The runtime does not pass the port mappings to DEL.
        let call = host.call("braid", &pod, network_by("bridge", "nftables"));
        if by_gc {
            call.gc(&[]).ok();
        } else {
            call.del().ok();
        }
        assert!(!Path::new(PINS).exists(), "by GC: {by_gc}");
        assert_eq!(at_the_root(&host, &ids), [0; 0], "by GC: {by_gc}");
        call.del().ok();
    }
}

#[test]
fn without_cgroup_bpf_other_addresses_still_work() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pretend(&[], &["cgroup_bpf"]);
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &both());
    call.status().ok();
    let result = call.add().result();
    let _service = Service::start(&pod, Transport::Tcp, SERVICE);
    assert!(host.host().ask(Transport::Tcp, "127.0.0.1:8080").is_ok());
    assert!(host.host().asks_in_vain(Transport::Tcp, AT));
    assert!(!Path::new(PINS).exists());
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn an_ipv4_attachment_makes_no_bpf_call() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let mut network = network_by("bridge", "nftables");
    network["plugins"][0]["ipam"]["ranges"]
        .as_array_mut()
        .unwrap()
        .pop();
    let call = mapped(&host, &pod, network, &both());
    let traced = |call: &Call, verb: &str| {
        let strace = "strace -f -qq -e trace=bpf -o /run/strace";
        let answer = call.clone().under(strace).run(verb);
        assert_eq!(answer.code, 0, "{verb}: {}", answer.stdout);
        assert_eq!(
            std::fs::read_to_string("/run/strace").unwrap(),
            "",
            "{verb}"
        );
        answer
    };
    let result = traced(&call, "ADD").result();
    traced(&call.prev(&result), "DEL");
    host.assert_nothing_left();
}
