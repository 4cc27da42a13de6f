//! `portmap`: who reaches a container through a port of the host, and as whom.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Service, Transport, Value, json, needs, state};
use std::net::UdpSocket;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(crate) const BOTH: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Where the eBPF backend keeps what is the node's.
const PINS: &str = "/sys/fs/bpf/braid";
/// The host's port, and the container's.
const PORT: u16 = 8080;
pub(crate) const SERVICE: u16 = 80;

/// A network with both families; `of` is the third number of its subnets.
pub(crate) fn network(plugin: &str, name: &str, of: u8) -> Value {
    let ipam = json!({"type": "host-local",
        "ranges": [[{"subnet": format!("10.{of}.0.0/24")}], [{"subnet": format!("fd00:{of}::/64")}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
    let mut main = if plugin == "bridge" { conf::bridge() } else { conf::ptp() };
    main["ipam"] = ipam;
    main["bridge"] = json!(format!("br{of}"));
    json!({"cniVersion": "1.1.0", "name": name, "type": "braid",
        "plugins": [main, {"type": "portmap", "capabilities": {"portMappings": true}}]})
}

pub(crate) fn mapping(transport: Transport) -> Value {
    let protocol = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Sctp => "sctp",
    };
    json!({"hostPort": PORT, "containerPort": SERVICE, "protocol": protocol})
}

pub(crate) fn mapped(host: &Sandbox, pod: &Ns, network: Value, mappings: &Value) -> Call {
    host.call("braid", pod, network).with("runtimeConfig", json!({"portMappings": mappings}))
}

pub(crate) fn attach(host: &Sandbox, name: &str, network: Value) -> Rc<Ns> {
    let pod = host.pod(name);
    host.call("braid", &pod, network).add().result();
    pod
}

/// A world outside that knows the host alone, as `192.0.2.1` and `2001:db8::1`.
pub(crate) fn outside(host: &Sandbox) -> Rc<Ns> {
    let outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    host.run("ip addr add 2001:db8::1/64 dev world nodad");
    outside.run("ip addr add 2001:db8::2/64 dev world nodad");
    host.run("ip link set lo up");
    outside
}

pub(crate) fn bridge_nf(host: &Sandbox, on: bool) {
    for key in ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"] {
        if std::fs::exists(format!("/proc/sys/{key}")).unwrap_or(false) {
            host.set_sysctl(key, if on { "1" } else { "0" });
        }
    }
}

/// Who the service takes its clients for: outside, the host by its address and by 127.0.0.1, the container itself, one of
/// the same network, and one of another.
struct Seen {
    outside: [&'static str; 2],
    host: [&'static str; 2],
    loopback: &'static str,
    itself: [&'static str; 2],
    sibling: [&'static str; 2],
    stranger: [&'static str; 2],
}

/// Where the host's NAT sees both ways of all that comes.
const ROUTED: Seen = Seen {
    outside: ["192.0.2.2", "2001:db8::2"],
    host: ["192.0.2.1", "2001:db8::1"],
    loopback: "10.1.0.1",
    itself: ["10.1.0.1", "fd00:1::1"],
    sibling: ["10.1.0.3", "fd00:1::3"],
    stranger: ["10.9.0.2", "fd00:9::2"],
};

/// A new bridge looks for its neighbours when nobody else can have its own address.
pub(crate) fn wait_for_bridges(host: &Sandbox) {
    let is_tentative = || host.run("ip -6 addr show tentative").contains("inet6");
    let start = Instant::now();
    while is_tentative() {
        assert!(start.elapsed() < Duration::from_secs(10), "addresses stay tentative");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// When the container's neighbours come: before its ports, or after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Before,
    After,
}

/// Who is in the world that asks, and what is around.
#[derive(Debug, Clone, Copy)]
struct Matrix {
    plugin: &'static str,
    backend: &'static str,
    bridge_nf: bool,
    others: Others,
    transports: &'static [Transport],
    /// What the administrator and others did to the host before.
    around: &'static [&'static str],
}

const PLAIN: Matrix = Matrix {
    plugin: "bridge",
    backend: "nftables",
    bridge_nf: false,
    others: Others::After,
    transports: &BOTH,
    around: &[],
};

impl Matrix {
    /// The container's network; where others would drop what is forwarded, with a firewall.
    fn network(&self) -> Value {
        let mut network = network(self.plugin, "net", 1);
        network["plugins"][1]["backend"] = json!(self.backend);
        if !self.around.is_empty() {
            network["plugins"].as_array_mut().unwrap().push(json!({"type": "firewall"}));
        }
        network
    }

    fn assert(&self, seen: &Seen) {
        let Self { backend, others, transports, .. } = *self;
        let host = Sandbox::new();
        let outside = outside(&host);
        bridge_nf(&host, self.bridge_nf);
        std::fs::write("/run/kube-proxy.nft", include_str!("kube-proxy.nft")).unwrap();
        for command in self.around {
            host.run(command);
        }
        let come = || (attach(&host, "b", self.network()), attach(&host, "c", network("bridge", "other", 9)));
        let before = (others == Others::Before).then(come);
        let pod = host.pod("a");
        let mappings = json!(transports.iter().map(|transport| mapping(*transport)).collect::<Vec<_>>());
        let call = mapped(&host, &pod, self.network(), &mappings);
        let result = call.add().result();
        let (sibling, stranger) = before.unwrap_or_else(come);
        wait_for_bridges(&host);
        if backend == "ebpf" && others == Others::Before {
            // What comes in from elsewhere is eBPF's alone.
            host.run("nft flush chain inet braid hostport-in");
        }
        for transport in transports {
            let _service = Service::start(&pod, *transport, SERVICE);
            for (family, at) in [(0, "192.0.2.1:8080"), (1, "[2001:db8::1]:8080")] {
                let clients: [(&str, &Ns, &str); 5] = [
                    ("outside", &outside, seen.outside[family]),
                    ("host", host.host(), seen.host[family]),
                    ("itself", &pod, seen.itself[family]),
                    ("sibling", &sibling, seen.sibling[family]),
                    ("stranger", &stranger, seen.stranger[family]),
                ];
                for (who, client, expected) in clients {
                    let found = client.ask(*transport, at);
                    assert_eq!(found, Ok(expected.parse().unwrap()), "{who} to {at} by {transport:?}: {self:?}");
                }
            }
            let by_loopback = host.host().ask(*transport, "127.0.0.1:8080");
            assert_eq!(by_loopback, Ok(seen.loopback.parse().unwrap()), "{self:?}");
            // No route leads from ::1 to a container.
            assert!(host.host().ask(*transport, "[::1]:8080").is_err(), "{transport:?}");
        }
        if !(backend == "ebpf" && others == Others::Before) {
            call.check(&result).ok();
        }
        call.prev(&result).del().ok();
        assert!(outside.ask(transports[0], "192.0.2.1:8080").is_err());
        assert!(!state::elements(&host).iter().any(|element| element.contains("net a ")));
        assert_eq!(state::filters(&host), Vec::<String>::new());
        assert!(!Path::new(PINS).exists());
    }
}

#[test]
fn everybody_reaches_a_port_of_a_bridge() {
    // What the bridge carries back passes no NAT, so neighbours are taken for the bridge.
    let seen = Seen { sibling: ["10.1.0.1", "fd00:1::1"], ..ROUTED };
    PLAIN.assert(&seen);
}

#[test]
fn everybody_reaches_a_port_of_a_ptp() {
    Matrix { plugin: "ptp", ..PLAIN }.assert(&ROUTED);
}

/// The container sees itself as the address that it asked for; all others keep their own.
const BY_EBPF: Seen = Seen { itself: ["192.0.2.1", "2001:db8::1"], ..ROUTED };

#[test]
fn everybody_reaches_a_port_of_a_bridge_by_ebpf() {
    Matrix { backend: "ebpf", others: Others::Before, ..PLAIN }
        .assert(&Seen { sibling: ["10.1.0.2", "fd00:1::2"], ..BY_EBPF });
}

#[test]
fn everybody_reaches_a_port_of_a_ptp_by_ebpf() {
    Matrix { plugin: "ptp", backend: "ebpf", others: Others::Before, ..PLAIN }
        .assert(&Seen { sibling: ["10.1.0.2", "fd00:1::2"], ..BY_EBPF });
}

#[test]
fn who_comes_later_reaches_a_port_as_well() {
    for plugin in ["bridge", "ptp"] {
        Matrix { plugin, backend: "ebpf", ..PLAIN }.assert(&BY_EBPF);
    }
}

#[test]
fn neighbours_keep_their_address_where_the_hosts_nat_sees_what_a_bridge_carries() {
    needs!(BridgeNf);
    Matrix { bridge_nf: true, ..PLAIN }.assert(&ROUTED);
    Matrix { backend: "ebpf", bridge_nf: true, ..PLAIN }.assert(&BY_EBPF);
}

/// Others who drop what they did not allow, what no connection explains, and what comes in where no answer would leave; and
/// kube-proxy's rules.
const AMONG_OTHERS: &[&str] = &[
    "iptables -P FORWARD DROP",
    "ip6tables -P FORWARD DROP",
    "nft table inet own { chain f { type filter hook forward priority 0; ct state invalid drop; }; }",
    "nft add chain inet own i { type filter hook input priority 0; }",
    "nft add rule inet own i ct state invalid drop",
    "nft add chain inet own o { type filter hook output priority 0; }",
    "nft add rule inet own o ct state invalid drop",
    "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1 net.ipv4.conf.world.rp_filter=1",
    "nft -f /run/kube-proxy.nft",
];

#[test]
fn everybody_reaches_a_port_among_others_rules() {
    let bridged = Seen { sibling: ["10.1.0.1", "fd00:1::1"], ..ROUTED };
    let around = Matrix { around: AMONG_OTHERS, ..PLAIN };
    around.assert(&bridged);
    Matrix { plugin: "ptp", ..around }.assert(&ROUTED);
}

#[test]
fn everybody_reaches_a_port_by_ebpf_among_others_rules() {
    let around = Matrix { backend: "ebpf", around: AMONG_OTHERS, ..PLAIN };
    for plugin in ["bridge", "ptp"] {
        Matrix { plugin, ..around }.assert(&BY_EBPF);
        let seen = Seen { sibling: ["10.1.0.2", "fd00:1::2"], ..BY_EBPF };
        Matrix { plugin, others: Others::Before, ..around }.assert(&seen);
    }
}

#[test]
fn everybody_reaches_a_port_among_others_rules_where_they_see_what_a_bridge_carries() {
    needs!(BridgeNf);
    let around = Matrix { bridge_nf: true, around: AMONG_OTHERS, ..PLAIN };
    around.assert(&ROUTED);
    Matrix { backend: "ebpf", ..around }.assert(&BY_EBPF);
}

#[test]
fn everybody_reaches_a_port_of_sctp() {
    needs!(Sctp);
    let sctp = Matrix { transports: &[Transport::Sctp], ..PLAIN };
    sctp.assert(&Seen { sibling: ["10.1.0.1", "fd00:1::1"], ..ROUTED });
    Matrix { plugin: "ptp", ..sctp }.assert(&ROUTED);
    Matrix { backend: "ebpf", ..sctp }.assert(&Seen { sibling: ["10.1.0.1", "fd00:1::1"], ..ROUTED });
}

/// A network whose host ports are led by `backend`.
fn network_by(backend: &str) -> Value {
    let mut network = network("bridge", "net", 1);
    network["plugins"][1]["backend"] = json!(backend);
    network
}

fn tcp() -> Value {
    json!([mapping(Transport::Tcp)])
}

#[test]
fn a_port_belongs_to_one_attachment() {
    for (one, other) in [("nftables", "nftables"), ("ebpf", "ebpf"), ("ebpf", "nftables"), ("nftables", "ebpf")] {
        assert_belongs_to_one(&network_by(one), &network_by(other));
    }
}

fn assert_belongs_to_one(one: &Value, other: &Value) {
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, one.clone(), &tcp());
    let result = first.add().result();
    let second = mapped(&host, &b, other.clone(), &tcp());
    // What the first one of the node made is noted now.
    second.status().ok();
    let state = host.state().without_marks();
    second.add().refused(999, &["0.0.0.0:8080/tcp", "net a eth0"]);
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
fn a_port_of_an_owner_without_record_is_taken_over_and_its_del_leaves_it_alone() {
    for backend in ["nftables", "ebpf"] {
        assert_is_taken_over(&network_by(backend));
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
    assert_eq!(outside.ask(Transport::Tcp, "192.0.2.1:8080"), Ok("192.0.2.2".parse().unwrap()));
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn check_misses_a_port() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network("bridge", "net", 1), &tcp());
    let mut result = call.add().result();
    let elsewhere = "nft add element inet braid hostport4-any { tcp . 8080 : 10.1.0.99 . 80 }";
    let gone = "nft delete element inet braid hostport4-any { tcp . 8080 }";
    for damage in [gone, "nft delete table inet braid"] {
        call.check(&result).ok();
        host.run(damage);
        call.check(&result).refused(999, &["0.0.0.0:8080/tcp", "leads nowhere"]);
        call.clone().prev(&result).del().ok();
        result = call.add().result();
    }
    host.run(gone);
    host.run(elsewhere);
    call.check(&result).refused(999, &["0.0.0.0:8080/tcp", "belongs to"]);
    call.clone().prev(&result).del().ok();
    // Somebody else's stays, and is nobody's to take.
    call.add().refused(999, &["0.0.0.0:8080/tcp is taken"]);
    host.run(gone);
    host.assert_nothing_left();
}

#[test]
fn check_misses_a_port_a_filter_and_the_pins_of_ebpf() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("ebpf"), &tcp());
    let mut result = call.add().result();
    let veth = result["interfaces"][1]["name"].as_str().unwrap().to_owned();
    let pins = format!("rm -r {PINS}");
    for (damage, said) in [
        (format!("tc filter del dev {veth} ingress pref 2842"), "does not run the programs"),
        ("tc filter del dev br1 egress pref 2842".to_owned(), "link br1 in host does not run the programs"),
        (format!("find {PINS} -name host_ports -delete"), "0.0.0.0:8080/tcp leads nowhere (eBPF)"),
        (pins, "0.0.0.0:8080/tcp leads nowhere (eBPF)"),
        ("nft delete element inet braid hostport4-any { tcp . 8080 }".to_owned(), "leads nowhere"),
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
    for (backend, by_gc) in [("nftables", false), ("nftables", true), ("ebpf", false), ("ebpf", true)] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = mapped(&host, &pod, network_by(backend), &json!(BOTH.map(mapping)));
        call.add().result();
        std::fs::remove_dir_all("/run/braid/attachments").unwrap();
        // The runtime sends no mappings when it deletes.
        let call = host.call("braid", &pod, network_by("nftables"));
        if by_gc {
            call.gc(&[]).ok();
        } else {
            call.del().ok();
        }
        assert_eq!(state::elements(&host), Vec::<String>::new(), "{backend}, by GC: {by_gc}");
        assert!(!Path::new(PINS).exists(), "{backend}, by GC: {by_gc}");
        call.del().ok();
    }
}

#[test]
fn a_client_of_udp_follows_a_replaced_container_at_once() {
    for (one, other) in [("nftables", "nftables"), ("ebpf", "ebpf"), ("nftables", "ebpf"), ("ebpf", "nftables")] {
        assert_is_followed([("a", network_by(one)), ("b", network_by(other))]);
    }
}

fn assert_is_followed(containers: [(&str, Value); 2]) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let client = outside.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    outside.enter(|| client.connect("192.0.2.1:8080")).unwrap();
    for (name, network) in containers {
        let pod = host.pod(name);
        let call = mapped(&host, &pod, network, &json!([mapping(Transport::Udp)]));
        let result = call.add().result();
        let service = Service::start(&pod, Transport::Udp, SERVICE);
        client.send(b"?").unwrap();
        assert_eq!(client.recv(&mut [0; 64]).map_err(|err| format!("{name}: {err}")), Ok("192.0.2.2".len()));
        drop(service);
        call.prev(&result).del().ok();
    }
}

#[test]
fn a_host_address_limits_a_mapping_and_goes_before_all() {
    for backend in ["nftables", "ebpf"] {
        assert_host_address_limits(&network_by(backend));
    }
}

fn assert_host_address_limits(network: &Value) {
    let host = Sandbox::new();
    let outside = outside(&host);
    host.run("ip addr add 192.0.2.9/24 dev world");
    let (a, b, c) = (host.pod("a"), host.pod("b"), host.pod("c"));
    let with = |host_ip: &str| {
        let mut mapping = mapping(Transport::Tcp);
        mapping["hostIP"] = json!(host_ip);
        json!([mapping])
    };
    let mut results = Vec::new();
    for (pod, mappings) in [(&a, tcp()), (&b, with("192.0.2.9")), (&c, with("127.0.0.1"))] {
        let call = mapped(&host, pod, network.clone(), &mappings);
        results.push((call.add().result(), call));
    }
    let reaches = |client: &Ns, at: &str, server: &Ns| {
        let _service = Service::start(server, Transport::Tcp, SERVICE);
        client.ask(Transport::Tcp, at).is_ok()
    };
    assert!(reaches(&outside, "192.0.2.1:8080", &a) && !reaches(&outside, "192.0.2.1:8080", &b));
    assert!(reaches(&outside, "192.0.2.9:8080", &b) && !reaches(&outside, "192.0.2.9:8080", &a));
    assert!(reaches(host.host(), "127.0.0.1:8080", &c) && !reaches(host.host(), "127.0.0.1:8080", &a));
    for (result, call) in results {
        call.prev(&result).del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn masq_all_rewrites_every_source_and_snat_none() {
    let keys = [("masqAll", "10.1.0.1", true), ("snat", "192.0.2.2", false)];
    for (backend, (key, outside_as, itself_reaches)) in
        ["nftables", "ebpf"].into_iter().flat_map(|b| keys.map(|k| (b, k)))
    {
        let host = Sandbox::new();
        let outside = outside(&host);
        let pod = host.pod("a");
        let mut conf = network_by(backend);
        conf["plugins"][1][key] = json!(key == "masqAll");
        let call = mapped(&host, &pod, conf, &tcp());
        let result = call.add().result();
        let _service = Service::start(&pod, Transport::Tcp, SERVICE);
        assert_eq!(outside.ask(Transport::Tcp, "192.0.2.1:8080"), Ok(outside_as.parse().unwrap()), "{key}");
        assert_eq!(pod.ask(Transport::Tcp, "192.0.2.1:8080").is_ok(), itself_reaches, "{key}");
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_plugin_of_its_own_maps_and_ends_it() {
    for backend in ["nftables", "ebpf"] {
        assert_maps_by_itself(backend);
    }
}

fn assert_maps_by_itself(backend: &str) {
    let host = Sandbox::new();
    let outside = outside(&host);
    let pod = host.pod("a");
    let mut main = conf::bridge();
    main["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    let main = host.call("bridge", &pod, main);
    let result = main.add().result();
    let chained = json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": backend});
    let call = host.call("portmap", &pod, chained.clone()).with("runtimeConfig", json!({"portMappings": tcp()}));
    assert_eq!(call.clone().prev(&result).add().result(), result);
    let service = Service::start(&pod, Transport::Tcp, SERVICE);
    assert_eq!(outside.ask(Transport::Tcp, "192.0.2.1:8080"), Ok("192.0.2.2".parse().unwrap()));
    drop(service);
    host.call("portmap", &pod, chained).prev(&result).del().ok();
    assert_eq!(state::elements(&host), Vec::<String>::new());
    main.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_second_family_is_added_where_the_first_has_its_subnet_already() {
    let host = Sandbox::new();
    bridge_nf(&host, false);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let mut one_family = network("bridge", "net", 1);
    one_family["plugins"][0]["ipam"]["ranges"].as_array_mut().unwrap().pop();
    let first = mapped(&host, &a, one_family, &tcp());
    let of_first = first.add().result();
    let second = mapped(&host, &b, network("bridge", "net", 1), &json!([mapping(Transport::Udp)]));
    let of_second = second.add().result();
    let chain = host.run("nft list chain inet braid hostport-of-10.1.0.0/24");
    assert_eq!(chain.matches("masquerade").count(), 2, "{chain}");
    second.prev(&of_second).del().ok();
    first.prev(&of_first).del().ok();
    host.assert_nothing_left();
}

#[test]
fn of_many_that_ask_for_a_port_at_once_one_has_it_and_the_others_are_told() {
    for backend in ["nftables", "ebpf"] {
        assert_one_of_many_has_it(&network_by(backend));
    }
}

fn assert_one_of_many_has_it(network: &Value) {
    const PODS: usize = 8;
    let host = Sandbox::new();
    let pods: Vec<_> = (0..PODS).map(|number| host.pod(&format!("p{number}"))).collect();
    let calls: Vec<_> = pods.iter().map(|pod| mapped(&host, pod, network.clone(), &tcp())).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = calls.iter().map(|call| scope.spawn(|| call.add())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let attached: Vec<_> = (0..PODS).filter(|at| answers[*at].code == 0).collect();
    assert_eq!(attached.len(), 1, "{attached:?}");
    for (at, answer) in answers.iter().enumerate() {
        if at == attached[0] {
            calls[at].check(&answer.result()).ok();
        } else {
            answer.refused(999, &["8080/tcp", "taken"]);
        }
    }
    for call in &calls {
        call.del().ok();
    }
    host.assert_nothing_left();
}

#[test]
fn the_first_port_by_ebpf_finds_any_number_of_links_and_the_last_leaves_others_filters() {
    const LINKS: usize = 150;
    let host = Sandbox::new();
    for number in 0..LINKS {
        host.run(&format!("ip link add other{number} type bridge"));
    }
    host.run("tc qdisc add dev other0 clsact");
    host.run("tc filter add dev other0 ingress pref 2 protocol ip u32 match u32 0 0 classid 1:1");
    let theirs = host.run("tc filter show dev other0 ingress");
    let (a, b) = (host.pod("a"), host.pod("b"));
    let first = mapped(&host, &a, network_by("ebpf"), &tcp());
    let result = first.add().result();
    let names = state::filters(&host);
    assert_eq!(names.iter().filter(|name| name.starts_with("other") && name.contains("hp_in")).count(), LINKS);
    assert_eq!(names.iter().filter(|name| name.starts_with("other") && name.contains("hp_out")).count(), LINKS);
    let second = mapped(&host, &b, network_by("ebpf"), &json!([mapping(Transport::Udp)]));
    let of_second = second.add().result();
    first.prev(&result).del().ok();
    second.check(&of_second).ok();
    assert!(state::filters(&host).iter().any(|name| name.starts_with("other1 ")), "one port is left");
    second.prev(&of_second).del().ok();
    assert_eq!(host.run("tc filter show dev other0 ingress"), theirs);
    host.assert_nothing_left();
}
