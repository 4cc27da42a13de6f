//! Ownership of host ports: an attachment owns a port until it ends or is replaced. Also mappings
//! that are limited to a host address, and source addresses that `portmap` rewrites.

use super::{
    BOTH, PINS, SERVICE, at_address, bridge_nf, mapped, mapping, network, network_by, outside,
    reaches, tcp,
};
use crate::conf;
use braid_tests::arriving::PATIENCE;
use braid_tests::{Sandbox, Service, Transport, Value, json, state};
use std::net::UdpSocket;
use std::path::Path;

#[test]
fn a_port_belongs_to_one_attachment() {
    for (one, other) in [
        ("nftables", "nftables"),
        ("ebpf", "ebpf"),
        ("ebpf", "nftables"),
        ("nftables", "ebpf"),
    ] {
        assert_belongs_to_one(&network_by("bridge", one), &network_by("bridge", other));
    }
}

fn assert_belongs_to_one(one: &Value, other: &Value) {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, one.clone(), &tcp());
    let result = first.add().result();
    let second = mapped(&host, &b, other.clone(), &tcp());
    // STATUS adds to braid's state which tables and chains the first attachment has created.
    second.status().ok();
    let state = host.state().without_marks();
    second
        .add()
        .refused(999, &["0.0.0.0:8080/tcp", "net a eth0"]);
    state.assert_same(&host.state().without_marks());
    let udp = mapped(&host, &b, other.clone(), &json!([mapping(Transport::Udp)]));
    let of_udp = udp.add().result();
    udp.prev(&of_udp).del().ok();
    first.prev(&result).del().ok();
    let result = second.add().result();
    second.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_port_without_record_is_taken_over_and_survives_the_old_del() {
    of_each_backend(|network| assert_is_taken_over(&network));
}

/// Calls `assert` for each backend, with a short network name and with a long one. A long name
/// makes braid store a digest as the owner.
fn of_each_backend(assert: impl Fn(Value)) {
    for (backend, name) in [
        ("nftables", "net"),
        ("ebpf", "net"),
        ("nftables", &"n".repeat(150)),
        ("ebpf", &"n".repeat(150)),
    ] {
        let mut network = network_by("bridge", backend);
        network["name"] = json!(name);
        assert(network);
    }
}

fn assert_is_taken_over(network: &Value) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let lost = mapped(&host, &a, network.clone(), &tcp());
    lost.add().result();
    std::fs::remove_dir_all("/run/braid/attachments").unwrap();
    let call = mapped(&host, &b, network.clone(), &tcp());
    let result = call.add().result();
    lost.del().ok();
    let _service = Service::start(&b, Transport::Tcp, SERVICE);
    assert_eq!(
        outside.ask(Transport::Tcp, "192.0.2.1:8080"),
        Ok("192.0.2.2".parse().unwrap())
    );
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_port_of_a_terminated_container_is_taken_over_and_survives_its_del() {
    of_each_backend(|network| assert_outlives(&network, &network));
    for (one, other) in [("ebpf", "nftables"), ("nftables", "ebpf")] {
        assert_outlives(&network_by("bridge", one), &network_by("bridge", other));
    }
}

fn assert_outlives(one: &Value, other: &Value) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let dead = mapped(&host, &a, one.clone(), &json!(BOTH.map(mapping)));
    dead.add().result();
    host.end(&a);
    let next = mapped(&host, &b, other.clone(), &json!(BOTH.map(mapping)));
    let result = next.add().result();
    next.check(&result).ok();
    let reaches = || {
        assert!(reaches(&outside, "192.0.2.1:8080", &b));
        assert!(reaches(host.host(), "[::1]:8080", &b));
    };
    reaches();
    let before = state::elements(&host);
    dead.del().ok();
    let of_next = |element: &String| !element.contains(" a eth0") && before.contains(element);
    assert!(state::elements(&host).iter().all(of_next));
    next.check(&result).ok();
    reaches();
    next.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_port_of_a_vanished_container_does_not_reach_the_next_address_owner() {
    of_each_backend(assert_ends_with_the_lease);
}

fn assert_ends_with_the_lease(mut network: Value) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let only = json!({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.2"});
    network["plugins"][0]["ipam"] =
        json!({"type": "host-local", "ranges": [[only]], "routes": [{"dst": "0.0.0.0/0"}]});
    network["plugins"][0]["ipMasq"] = json!(true);
    let vanished = mapped(&host, &a, network.clone(), &tcp());
    vanished.add().result();
    assert!(reaches(&outside, "192.0.2.1:8080", &a));
    host.end(&a);
    let next = host.call("braid", &b, network);
    let result = next.add().result();
    assert_eq!(b.addrs("eth0"), ["10.1.0.2/24"]);
    assert!(!reaches(&outside, "192.0.2.1:8080", &b));
    next.check(&result).ok();
    vanished.del().ok();
    next.check(&result).ok();
    next.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn check_reports_a_missing_port() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network("bridge", "net", 1), &tcp());
    let mut result = call.add().result();
    let elsewhere = "nft add element inet braid hostport4-any { tcp . 8080 : 10.1.0.99 . 80 }";
    let gone = "nft delete element inet braid hostport4-any { tcp . 8080 }";
    for damage in [gone, "nft delete table inet braid"] {
        call.check(&result).ok();
        host.run(damage);
        call.check(&result)
            .refused(999, &["0.0.0.0:8080/tcp", "is not forwarded"]);
        call.clone().prev(&result).del().ok();
        result = call.add().result();
    }
    host.run(gone);
    host.run(elsewhere);
    call.check(&result)
        .refused(999, &["0.0.0.0:8080/tcp", "belongs to"]);
    call.clone().prev(&result).del().ok();
    // The element of another program stays, and braid cannot take its port over.
    call.add()
        .refused(999, &["0.0.0.0:8080/tcp is already used"]);
    host.run(gone);
    host.assert_nothing_left();
}

#[test]
fn check_reports_a_missing_ebpf_port_filter_or_pin() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "ebpf"), &tcp());
    let mut result = call.add().result();
    let veth = result["interfaces"][1]["name"].as_str().unwrap().to_owned();
    let pins = format!("rm -r {PINS}");
    for (damage, said) in [
        (
            format!("tc filter del dev {veth} ingress pref 2842"),
            "does not run the programs",
        ),
        (
            "tc filter del dev br1 egress pref 2842".to_owned(),
            "link br1 in host does not run the programs",
        ),
        (
            format!("find {PINS} -name host_ports -delete"),
            "0.0.0.0:8080/tcp is not forwarded (eBPF)",
        ),
        (pins, "0.0.0.0:8080/tcp is not forwarded (eBPF)"),
        (
            "nft delete element inet braid hostport4-any { tcp . 8080 }".to_owned(),
            "is not forwarded",
        ),
    ] {
        call.check(&result).ok();
        host.run(&damage);
        call.check(&result).refused(999, &[said]);
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        result = call.add().result();
    }
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn del_and_gc_find_ports_without_a_record() {
    for (backend, by_gc) in [
        ("nftables", false),
        ("nftables", true),
        ("ebpf", false),
        ("ebpf", true),
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by("bridge", backend),
            &json!(BOTH.map(mapping)),
        );
        call.add().result();
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        // The runtime does not pass the port mappings to DEL.
        let call = host.call("braid", &pod, network_by("bridge", "nftables"));
        if by_gc {
            call.gc(&[]).ok();
        } else {
            call.del().ok();
        }
        assert_eq!(
            state::elements(&host),
            Vec::<String>::new(),
            "{backend}, by GC: {by_gc}"
        );
        assert!(!Path::new(PINS).exists(), "{backend}, by GC: {by_gc}");
        call.del().ok();
    }
}

#[test]
fn a_udp_client_reaches_a_replaced_container_immediately() {
    for (one, other) in [
        ("nftables", "nftables"),
        ("ebpf", "ebpf"),
        ("nftables", "ebpf"),
        ("ebpf", "nftables"),
    ] {
        assert_is_followed([
            ("a", network_by("bridge", one)),
            ("b", network_by("bridge", other)),
        ]);
    }
}

fn assert_is_followed(containers: [(&str, Value); 2]) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let client = outside.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    outside.enter(|| client.connect("192.0.2.1:8080")).unwrap();
    for (name, network) in containers {
        let pod = host.pod(name);
        let one_more = json!({"hostPort": 8081, "containerPort": 81, "protocol": "udp"});
        let call = mapped(
            &host,
            &pod,
            network,
            &json!([mapping(Transport::Udp), one_more]),
        );
        let result = call.add().result();
        let service = Service::start(&pod, Transport::Udp, SERVICE);
        client.send(b"?").unwrap();
        assert_eq!(
            client
                .recv(&mut [0; 64])
                .map_err(|err| format!("{name}: {err}")),
            Ok("192.0.2.2".len())
        );
        drop(service);
        call.prev(&result).del().ok();
    }
}

#[test]
fn a_host_address_limits_a_mapping_and_precedes_any_address() {
    for backend in ["nftables", "ebpf"] {
        assert_host_address_limits(&network_by("bridge", backend));
    }
}

fn assert_host_address_limits(network: &Value) {
    let host = Sandbox::new();
    let outside = outside(&host);
    host.run("ip addr add 192.0.2.9/24 dev world");
    let (a, b, c) = (host.pod("a"), host.pod("b"), host.pod("c"));
    let mut results = Vec::new();
    for (pod, mappings) in [
        (&a, tcp()),
        (&b, at_address("192.0.2.9")),
        (&c, at_address("127.0.0.1")),
    ] {
        let call = mapped(&host, pod, network.clone(), &mappings);
        results.push((call.add().result(), call));
    }
    assert!(reaches(&outside, "192.0.2.1:8080", &a) && !reaches(&outside, "192.0.2.1:8080", &b));
    assert!(reaches(&outside, "192.0.2.9:8080", &b) && !reaches(&outside, "192.0.2.9:8080", &a));
    assert!(
        reaches(host.host(), "127.0.0.1:8080", &c) && !reaches(host.host(), "127.0.0.1:8080", &a)
    );
    for (result, call) in results {
        call.prev(&result).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn masq_all_rewrites_every_source_and_snat_none() {
    let keys = [("masqAll", "10.1.0.1", true), ("snat", "192.0.2.2", false)];
    for (backend, (key, outside_as, itself_reaches)) in ["nftables", "ebpf"]
        .into_iter()
        .flat_map(|b| keys.map(|k| (b, k)))
    {
        let host = Sandbox::new();
        let outside = outside(&host);
        let pod = host.pod("a");
        let mut conf = network_by("bridge", backend);
        conf["plugins"][1][key] = json!(key == "masqAll");
        let call = mapped(&host, &pod, conf, &tcp());
        let result = call.add().result();
        let _service = Service::start(&pod, Transport::Tcp, SERVICE);
        assert_eq!(
            outside.ask(Transport::Tcp, "192.0.2.1:8080"),
            Ok(outside_as.parse().unwrap()),
            "{key}"
        );
        let by_itself = if itself_reaches {
            pod.ask(Transport::Tcp, "192.0.2.1:8080").is_ok()
        } else {
            pod.asks_in_vain(Transport::Tcp, "192.0.2.1:8080")
        };
        assert!(by_itself, "{key}");
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_separate_portmap_creates_and_deletes_a_mapping() {
    for backend in ["nftables", "ebpf"] {
        assert_separate_portmap_works(backend);
    }
}

fn assert_separate_portmap_works(backend: &str) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let mut main = conf::bridge();
    main["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    let main = host.call("bridge", &pod, main);
    let result = main.add().result();
    let chained =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": backend});
    let call = host
        .call("portmap", &pod, chained.clone())
        .with("runtimeConfig", json!({"portMappings": tcp()}));
    assert_eq!(call.clone().prev(&result).add().result(), result);
    let service = Service::start(&pod, Transport::Tcp, SERVICE);
    assert_eq!(
        outside.ask(Transport::Tcp, "192.0.2.1:8080"),
        Ok("192.0.2.2".parse().unwrap())
    );
    drop(service);
    host.call("portmap", &pod, chained).prev(&result).del().ok();
    assert_eq!(state::elements(&host), Vec::<String>::new());
    main.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_second_family_is_added_to_a_network_with_one() {
    let host = Sandbox::new();
    bridge_nf(&host, false);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let mut one_family = network("bridge", "net", 1);
    one_family["plugins"][0]["ipam"]["ranges"]
        .as_array_mut()
        .unwrap()
        .pop();
    let first = mapped(&host, &a, one_family, &tcp());
    let of_first = first.add().result();
    let second = mapped(
        &host,
        &b,
        network("bridge", "net", 1),
        &json!([mapping(Transport::Udp)]),
    );
    let of_second = second.add().result();
    let chain = host.run("nft list chain inet braid hostport-of-10.1.0.0/24");
    assert_eq!(chain.matches("masquerade").count(), 2, "{chain}");
    second.prev(&of_second).del().ok();
    first.prev(&of_first).del().ok();
    host.assert_nothing_left();
}

#[test]
fn of_parallel_adds_for_one_port_one_succeeds_and_others_are_refused() {
    for backend in ["nftables", "ebpf"] {
        assert_one_of_many_has_it(&network_by("bridge", backend));
    }
}

fn assert_one_of_many_has_it(network: &Value) {
    const PODS: usize = 8;
    let host = Sandbox::new();
    let pods: Vec<_> = (0..PODS)
        .map(|number| host.pod(&format!("p{number}")))
        .collect();
    let calls: Vec<_> = pods
        .iter()
        .map(|pod| mapped(&host, pod, network.clone(), &tcp()))
        .collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .iter()
            .map(|call| scope.spawn(|| call.add()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let attached: Vec<_> = (0..PODS).filter(|at| answers[*at].code == 0).collect();
    assert_eq!(attached.len(), 1, "{attached:?}");
    for (at, answer) in answers.iter().enumerate() {
        if at == attached[0] {
            calls[at].check(&answer.result()).ok();
        } else {
            answer.refused(999, &["8080/tcp", "already used"]);
        }
    }
    for call in &calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn ebpf_filters_cover_all_links_and_foreign_filters_are_kept() {
    const LINKS: usize = 150;
    let host = Sandbox::new();
    for number in 0..LINKS {
        host.run(&format!("ip link add other{number} type bridge"));
    }
    host.run("tc qdisc add dev other0 clsact");
    host.run("tc filter add dev other0 ingress pref 2 protocol ip u32 match u32 0 0 classid 1:1");
    let theirs = host.run("tc filter show dev other0 ingress");
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, network_by("bridge", "ebpf"), &tcp());
    let result = first.add().result();
    let names = state::filters(&host);
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("other") && name.contains("hp_in"))
            .count(),
        LINKS
    );
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("other") && name.contains("hp_out"))
            .count(),
        LINKS
    );
    let second = mapped(
        &host,
        &b,
        network_by("bridge", "ebpf"),
        &json!([mapping(Transport::Udp)]),
    );
    let of_second = second.add().result();
    first.prev(&result).del().ok();
    second.check(&of_second).ok();
    assert!(
        state::filters(&host)
            .iter()
            .any(|name| name.starts_with("other1 ")),
        "one port is left"
    );
    second.prev(&of_second).del().ok();
    assert_eq!(host.run("tc filter show dev other0 ingress"), theirs);
    host.assert_nothing_left();
}
