//! Traffic between nodes: VXLAN, direct routes, and the probes that decide between them.
//!
//! ```text
//!  sandbox: node a, 192.0.2.1 ── veth ── namespace "other": node b, 192.0.2.2
//!  sandbox: node a, 192.0.2.1 ── namespace "router" ── namespace "far": node b, 198.51.100.2
//! ```
//!
//! Addresses of `lo` stand for pods. The other node has an agent too, or is set up by hand.

use super::{Agent, Pair, ask, await_true, is_ready, serde_json_of};
use crate::{World, json, write_kubeconfig};
use braid_testbed::relay::relay;
use braid_tests::{Ns, Value};
use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LINK: &str = "braid-vxlan";

/// A way from the other node's namespace to the API server.
pub(super) struct Relay {
    ns: Rc<Ns>,
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Relay {
    pub(super) fn new(world: &World, ns: &Rc<Ns>) -> Self {
        let listener = ns.enter(|| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let address = listener.local_addr().expect("its address");
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, server) = (Arc::clone(&is_over), world.server);
        let listening = std::thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.expect("a connection");
                std::thread::spawn(move || {
                    relay(client, server.connect(), Duration::ZERO).expect("sockets twice");
                });
            }
        });
        Self {
            ns: Rc::clone(ns),
            address,
            is_over,
            listening: Some(listening),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let address = self.address;
        let _ = self.ns.enter(|| TcpStream::connect(address));
        let _ = self.listening.take().map(JoinHandle::join);
    }
}

impl Pair {
    /// Creates two nodes with these ranges and addresses on the network of `connect`, which returns
    /// the other node's namespace.
    fn on(
        test: &str,
        connect: impl FnOnce(&World) -> Rc<Ns>,
        nodes: [(&[&str], &[&str]); 2],
    ) -> Option<Self> {
        let world = World::new(test)?;
        let other = connect(&world);
        Some(Self::in_world(world, other, nodes))
    }

    fn host(&self) -> &Ns {
        self.world.sandbox.host()
    }

    /// Starts an agent on the other node.
    fn start_other(&self, mode: &str) -> (Agent, Relay) {
        let relay = Relay::new(&self.world, &self.other);
        let namespace = &self.world.namespace;
        let create = ["create", "token", "agent", "-n", namespace];
        let token = self.world.server.kubectl(&create, None);
        let url = format!("https://{}", relay.address);
        let cluster = json!({"server": url, "certificate-authority": "/run/ca.crt"});
        fs::write("/run/ca.crt", &self.world.server.authority).expect("a certificate");
        fs::create_dir_all("/run/other").expect("a folder");
        let written = write_kubeconfig(&cluster, &json!({"token": token.trim()}));
        let kubeconfig = "/run/other/kubeconfig";
        fs::rename(written, kubeconfig).expect("a kubeconfig");
        let braid = braid_tests::binary::braid();
        let name = &self.names[1];
        let child = self.other.enter(|| {
            Command::new(braid)
                .args(["agent", "--kubeconfig", kubeconfig])
                .args(["--node-name", name])
                .args(["--service-account", &format!("{namespace}/agent")])
                .args(["--config-map", &format!("{namespace}/braid")])
                .args(["--conflist", "/run/other/net.d/00-braid.conflist"])
                .args(["--call-kubeconfig", "/run/other/net.d/kubeconfig"])
                .args(["--call-credentials", "/run/other/api"])
                .env("BRAID_MODE", mode)
                .spawn()
                .expect("the agent starts")
        });
        (Agent { child }, relay)
    }

    /// Adds an address of a pod to each node.
    fn add_pods(&self, pods: [&str; 2]) {
        for (ns, pod) in [self.host(), &self.other].into_iter().zip(pods) {
            let nodad = if pod.contains(':') { " nodad" } else { "" };
            ns.run(&format!("ip addr add {pod} dev lo{nodad}"));
        }
    }
}

/// Sends pings between pods of the two nodes, one of them as large as fits.
#[track_caller]
fn assert_pings(from: &Ns, own: &str, to: &str, largest: usize) {
    for size in [56, largest] {
        await_true(&format!("answer from {to} to {size} bytes"), || {
            let ping = format!("ping -q -c 1 -W 1 -M do -s {size} -I {own} {to}");
            from.try_run(&ping).is_ok()
        });
    }
}

/// Returns the device of the agent's route to `range`.
fn device(ns: &Ns, range: &str) -> String {
    let option = if range.contains(':') { "-6 " } else { "" };
    let routes = ns.list(&format!("ip -j {option}route show {range} proto 98"));
    let dev = routes.first().map(|route| route["dev"].clone());
    dev.unwrap_or_default()
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[track_caller]
fn await_device(ns: &Ns, range: &str, expected: &str) {
    await_true(
        &format!("route to {range} on {expected} in {}", ns.name()),
        || device(ns, range) == expected,
    );
}

/// Returns the MAC that docs/agent.md defines.
pub(super) fn mac(node: &str) -> String {
    let printed = Command::new("sh")
        .args(["-c", "printf %s \"$0\" | sha256sum", node])
        .output()
        .expect("sha256sum");
    let digest = String::from_utf8(printed.stdout).expect("text");
    let pair = |index: usize| digest[2 * index..2 * index + 2].to_owned();
    let first = u8::from_str_radix(&pair(0), 16).expect("a byte") & 0xfc | 2;
    let mut bytes = vec![format!("{first:02x}")];
    bytes.extend((1..6).map(pair));
    bytes.join(":")
}

/// Returns `MAC destination` of the link's permanent FDB entries.
fn fdb(ns: &Ns) -> BTreeSet<String> {
    let entries = ns.list(&format!("bridge -j fdb show dev {LINK}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for entry in entries {
        assert_eq!(entry["state"], "permanent", "{entry}");
        found.insert(format!("{} {}", text(&entry["mac"]), text(&entry["dst"])));
    }
    found
}

/// Returns `address MAC` of the link's permanent neighbours.
fn neighbours(ns: &Ns) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for option in ["-4", "-6"] {
        let listed = ns.list(&format!(
            "ip -j {option} neigh show dev {LINK} nud permanent"
        ));
        for neighbour in listed {
            let [dst, mac] = ["dst", "lladdr"].map(|key| text(&neighbour[key]));
            found.insert(format!("{dst} {mac}"));
        }
    }
    found
}

fn set(texts: &[String]) -> BTreeSet<String> {
    texts.iter().cloned().collect()
}

/// Connects the nodes by a router, which drops all packets with addresses of pods.
fn behind_a_router(world: &World) -> Rc<Ns> {
    let router = world
        .sandbox
        .outside("router", "192.0.2.1/24", "192.0.2.254/24");
    let far = world.sandbox.pod("far");
    let path = far.path().display();
    router.run(&format!(
        "ip link add far type veth peer name uplink netns {path}"
    ));
    router.run("ip addr add 198.51.100.254/24 dev far");
    router.run("ip link set far up");
    for command in [
        "ip link set lo up",
        "ip addr add 198.51.100.2/24 dev uplink",
        "ip link set uplink up",
        "ip route add default via 198.51.100.254",
    ] {
        far.run(command);
    }
    router.set_sysctl("net/ipv4/ip_forward", "1");
    let host = world.sandbox.host();
    host.run("ip route add 198.51.100.0/24 via 192.0.2.254");
    far
}

fn on_one_link(world: &World) -> Rc<Ns> {
    let outside = |ours, theirs| world.sandbox.outside("other", ours, theirs);
    outside("192.0.2.1/24", "192.0.2.2/24")
}

#[test]
fn nodes_behind_a_router_reach_each_other_through_vxlan_in_both_families() {
    let nodes: [(&[&str], &[&str]); 2] = [
        (&["10.101.1.0/24", "fd81:1::/64"], &["192.0.2.1"]),
        (&["10.101.2.0/24", "fd81:2::/64"], &["198.51.100.2"]),
    ];
    let Some(pair) = Pair::on("fabric-router", behind_a_router, nodes) else {
        return;
    };
    let _agent = pair.start_in("auto");
    let (_other, _relay) = pair.start_other("auto");
    for (ns, range) in [
        (pair.host(), "10.101.2.0/24"),
        (&pair.other, "10.101.1.0/24"),
    ] {
        await_device(ns, range, LINK);
    }
    await_true("readiness", is_ready);
    let link = pair.world.sandbox.host().the_link(LINK);
    let data = &link["linkinfo"]["info_data"];
    assert_eq!((&data["id"], &data["port"]), (&json!(4626), &json!(4789)));
    assert_eq!(
        (&data["learning"], &data["local"]),
        (&json!(false), &json!("192.0.2.1"))
    );
    assert_eq!(link["mtu"], 1450);
    assert_eq!(link["address"], mac("fabric-router-a"));
    assert_eq!(link["inet6_addr_gen_mode"], "none");
    let peer = mac("fabric-router-b");
    let entries = fdb(pair.host());
    assert!(
        entries.contains(&format!("{peer} 198.51.100.2")),
        "{entries:?}"
    );
    let found = neighbours(pair.host());
    for dst in ["10.101.2.0", "fd81:2::"] {
        assert!(found.contains(&format!("{dst} {peer}")), "{found:?}");
    }
    let conflist = serde_json_of(super::CONFLIST);
    assert_eq!(conflist["plugins"][0]["plugins"][0]["mtu"], 1450);
    pair.add_pods(["10.101.1.5/32", "10.101.2.5/32"]);
    pair.add_pods(["fd81:1::5/128", "fd81:2::5/128"]);
    assert_pings(pair.host(), "10.101.1.5", "10.101.2.5", 1422);
    assert_pings(&pair.other, "10.101.2.5", "10.101.1.5", 1422);
    assert_pings(pair.host(), "fd81:1::5", "fd81:2::5", 1402);
    // A node's own packets have an address that is routed back through VXLAN.
    assert!(pair.host().can_ping("10.101.2.5") && pair.other.can_ping("fd81:1::5"));
}

#[test]
fn mode_auto_takes_the_direct_path_while_it_passes_packets_of_pods() {
    let nodes: [(&[&str], &[&str]); 2] = [
        (&["10.102.1.0/24"], &["192.0.2.1"]),
        (&["10.102.2.0/24"], &["192.0.2.2"]),
    ];
    let Some(pair) = Pair::on("fabric-auto", on_one_link, nodes) else {
        return;
    };
    // The strictest check of reverse paths: packets must arrive where answers leave.
    for ns in [pair.host(), &pair.other] {
        ns.set_sysctl("net/ipv4/conf/other/rp_filter", "1");
    }
    // A cloud that drops packets with addresses of pods.
    let rules = "add table netdev cloud\n\
         add chain netdev cloud in { type filter hook ingress device other priority 0; policy accept; }\n\
         add rule netdev cloud in ip saddr 10.102.0.0/16 counter drop\n";
    fs::write("/run/cloud.nft", rules).expect("rules");
    pair.other.run("nft -f /run/cloud.nft");
    let _agent = pair.start_in("auto");
    let (_other, _relay) = pair.start_other("auto");
    await_device(pair.host(), "10.102.2.0/24", LINK);
    await_device(&pair.other, "10.102.1.0/24", LINK);
    await_true("readiness", is_ready);
    pair.add_pods(["10.102.1.5/32", "10.102.2.5/32"]);
    assert_pings(pair.host(), "10.102.1.5", "10.102.2.5", 1422);
    assert_pings(&pair.other, "10.102.2.5", "10.102.1.5", 1422);
    // Probes are dropped on their way.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(device(pair.host(), "10.102.2.0/24"), LINK);
    pair.other.run("nft delete table netdev cloud");
    for (ns, range) in [
        (pair.host(), "10.102.2.0/24"),
        (&pair.other, "10.102.1.0/24"),
    ] {
        await_device(ns, range, "other");
    }
    assert_pings(pair.host(), "10.102.1.5", "10.102.2.5", 1472);
    // An uplink that goes down takes the direct route with it.
    pair.host().run("ip link set other down");
    await_device(pair.host(), "10.102.2.0/24", LINK);
    await_true("an event", || {
        let repairs = super::node::events(&pair, "Repaired");
        let mut notes = repairs.iter().filter_map(|event| event["note"].as_str());
        notes.any(|note| note.contains("lost route: ip route add 10.102.2.0/24 via 10.102.2.0"))
    });
    pair.host().run("ip link set other up");
    await_device(pair.host(), "10.102.2.0/24", "other");
    assert!(super::node::events(&pair, "RepairPaused").is_empty());
    pair.other.run("nft -f /run/cloud.nft");
    for (ns, range) in [
        (pair.host(), "10.102.2.0/24"),
        (&pair.other, "10.102.1.0/24"),
    ] {
        await_device(ns, range, LINK);
    }
    assert_pings(pair.host(), "10.102.1.5", "10.102.2.5", 1422);
    assert_pings(&pair.other, "10.102.2.5", "10.102.1.5", 1422);
}

#[test]
fn a_new_node_on_a_shared_link_becomes_direct_though_its_agent_is_dead() {
    let nodes: [(&[&str], &[&str]); 2] = [
        (&["10.103.1.0/24", "fd83:1::/64"], &["192.0.2.1"]),
        (&["10.103.2.0/24"], &["192.0.2.2"]),
    ];
    let Some(pair) = Pair::on("fabric-dead", on_one_link, nodes) else {
        return;
    };
    let (other, _relay) = pair.start_other("auto");
    await_device(&pair.other, "10.103.1.0/24", LINK);
    other.kill();
    let agent = pair.start_in("auto");
    await_device(pair.host(), "10.103.2.0/24", "other");
    // An agent that starts again leaves the route alone.
    agent.kill();
    let monitor = pair.host().enter(|| {
        Command::new("timeout")
            .args(["4", "ip", "-j", "monitor", "route"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("ip monitor")
    });
    let _agent = pair.start_in("auto");
    let seen = monitor.wait_with_output().expect("its end").stdout;
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains("10.103.2.0/24"), "{seen}");
}

#[test]
fn an_ipv6_only_underlay_carries_both_families() {
    let nodes: [(&[&str], &[&str]); 2] = [
        (&["10.104.1.0/24", "fd84:1::/64"], &["fd99::1"]),
        (&["10.104.2.0/24", "fd84:2::/64"], &["fd99::2"]),
    ];
    let connect = |world: &World| world.sandbox.outside("other", "fd99::1/64", "fd99::2/64");
    let Some(pair) = Pair::on("fabric-six", connect, nodes) else {
        return;
    };
    let agent = pair.start_in("vxlan");
    let (_other, _relay) = pair.start_other("auto");
    await_device(pair.host(), "10.104.2.0/24", LINK);
    await_device(pair.host(), "fd84:2::/64", LINK);
    let link = pair.host().the_link(LINK);
    assert_eq!(link["linkinfo"]["info_data"]["local6"], "fd99::1");
    assert_eq!(link["mtu"], 1430);
    pair.add_pods(["10.104.1.5/32", "10.104.2.5/32"]);
    pair.add_pods(["fd84:1::5/128", "fd84:2::5/128"]);
    await_device(&pair.other, "10.104.1.0/24", "other");
    await_device(&pair.other, "fd84:1::/64", "other");
    assert_pings(pair.host(), "10.104.1.5", "10.104.2.5", 1402);
    assert_pings(pair.host(), "fd84:1::5", "fd84:2::5", 1382);
    agent.kill();
    let _agent = pair.start_in("auto");
    await_device(pair.host(), "10.104.2.0/24", "other");
    await_device(pair.host(), "fd84:2::/64", "other");
    assert_pings(pair.host(), "10.104.1.5", "10.104.2.5", 1472);
    assert_pings(&pair.other, "fd84:2::5", "fd84:1::5", 1452);
}

#[test]
fn a_node_that_leaves_and_comes_back_with_other_ranges_leaves_no_entry_and_those_of_others_stay() {
    let nodes: [(&[&str], &[&str]); 2] = [
        (&["10.105.1.0/24"], &["192.0.2.1"]),
        (&["10.105.2.0/24"], &["192.0.2.2", "192.0.2.22"]),
    ];
    let Some(pair) = Pair::on("fabric-back", on_one_link, nodes) else {
        return;
    };
    let _agent = pair.start_in("vxlan");
    await_device(pair.host(), "10.105.2.0/24", LINK);
    for command in [
        "bridge fdb append 02:00:00:00:00:99 dev braid-vxlan dst 192.0.2.99 self permanent",
        "ip neigh add 10.105.99.0 lladdr 02:00:00:00:00:99 dev braid-vxlan nud permanent",
        "ip route add 10.105.99.0/24 via 192.0.2.99 proto bird",
        "ip route add 10.105.98.0/24 dev braid-vxlan scope link",
        "ip rule add pref 4700 from 10.105.99.0 lookup 98",
    ] {
        pair.host().run(command);
    }
    let foreign = [
        "02:00:00:00:00:99 192.0.2.99",
        "10.105.99.0 02:00:00:00:00:99",
    ]
    .map(str::to_owned);
    let peer = mac("fabric-back-b");
    let of = |all: BTreeSet<String>, prefix: &str| -> BTreeSet<String> {
        let mut all = all;
        all.retain(|entry| entry.starts_with(prefix) || foreign.contains(entry));
        all
    };
    let is = |fdb_entry: Option<&str>, range: Option<&str>| {
        let fdb_entry = fdb_entry.map(|dst| format!("{peer} {dst}"));
        let neighbour = range.map(|dst| format!("{dst} {peer}"));
        let expected = |own: Option<String>, foreign: &String| {
            let mut all = set(std::slice::from_ref(foreign));
            all.extend(own);
            all
        };
        of(fdb(pair.host()), &peer) == expected(fdb_entry, &foreign[0])
            && of(neighbours(pair.host()), "10.105.") == expected(neighbour, &foreign[1])
    };
    assert!(is(Some("192.0.2.2"), Some("10.105.2.0")));
    pair.delete_node(&pair.names[1]);
    await_true("end of the entries", || is(None, None));
    assert_eq!(device(pair.host(), "10.105.2.0/24"), "");
    pair.create_node(&pair.names[1], "10.105.7.0/24", "192.0.2.3");
    await_true("new entries", || is(Some("192.0.2.3"), Some("10.105.7.0")));
    await_device(pair.host(), "10.105.7.0/24", LINK);
    // The node gets another address.
    let patch = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.4"}]}});
    let patch = format!("--patch={patch}");
    let arguments = [
        "patch",
        "node",
        &pair.names[1],
        "--subresource=status",
        &patch,
    ];
    pair.world.server.kubectl(&arguments, None);
    await_true("another entry", || {
        is(Some("192.0.2.4"), Some("10.105.7.0"))
    });
    for (command, what) in [
        ("ip -j route show 10.105.99.0/24 proto bird", "a route"),
        ("ip -j route show 10.105.98.0/24", "a route on the link"),
        ("ip -j rule show pref 4700", "a rule"),
    ] {
        assert_eq!(pair.host().list(command).len(), 1, "{what}");
    }
}

#[test]
fn a_change_of_mode_loses_no_packet() {
    let Some(pair) = Pair::new("fabric-mode", 106) else {
        return;
    };
    // The other node passes packets of both paths, set up by hand as docs/agent.md describes.
    let [own, peer] = ["fabric-mode-a", "fabric-mode-b"].map(mac);
    for command in [
        &format!(
            "ip link add {LINK} address {peer} mtu 1450 up type vxlan id 4626 local 192.0.2.2 \
             dstport 4789 nolearning"
        ),
        "ip addr add 10.106.2.0/32 dev braid-vxlan",
        &format!("bridge fdb append {own} dev {LINK} dst 192.0.2.1 self permanent"),
        &format!("ip neigh add 10.106.1.0 lladdr {own} dev {LINK} nud permanent"),
        "ip route add 10.106.1.0/24 via 192.0.2.1",
    ] {
        pair.other.run(command);
    }
    pair.add_pods(["10.106.1.5/32", "10.106.2.5/32"]);
    let mut agent = pair.start_in("vxlan");
    await_device(pair.host(), "10.106.2.0/24", LINK);
    await_true("readiness", is_ready);
    let ping = pair.host().enter(|| {
        Command::new("ping")
            .args(["-q", "-i", "0.02", "-I", "10.106.1.5", "10.106.2.5"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("ping")
    });
    for (mode, expected) in [
        ("auto", "other"),
        ("vxlan", LINK),
        ("direct", "other"),
        ("vxlan", LINK),
        ("direct", "other"),
    ] {
        agent.kill();
        agent = pair.start_in(mode);
        await_device(pair.host(), "10.106.2.0/24", expected);
        // The link stays for nodes that change their mode later.
        assert!(pair.host().link(LINK).is_some());
    }
    let pid = ping.id().to_string();
    pair.host().run(&format!("kill -INT {pid}"));
    let printed = ping.wait_with_output().expect("its end").stdout;
    let printed = String::from_utf8_lossy(&printed);
    assert!(printed.contains(" 0% packet loss"), "{printed}");
    assert!(!printed.contains("errors"), "{printed}");
    pair.other
        .run("ip route replace 10.106.1.0/24 via 10.106.1.0 dev braid-vxlan onlink");
    assert_pings(&pair.other, "10.106.2.5", "10.106.1.5", 1422);
    await_true("the end of the link", || pair.host().link(LINK).is_none());
    agent.kill();
    let _agent = pair.start_in("none");
    await_device(pair.host(), "10.106.2.0/24", "");
    assert!(pair.host().list("ip -j rule show pref 4626").is_empty());
}

#[test]
fn a_comparison_repairs_the_link_and_a_link_of_another_kind_stays() {
    let Some(pair) = Pair::new("fabric-repair", 107) else {
        return;
    };
    pair.host().run("ip link add braid-vxlan type bridge");
    let agent = pair.start_in("vxlan");
    let reason = "create link braid-vxlan: another program has a link of this name, a bridge";
    await_true("the reason", || {
        ask("/readyz").is_some_and(|(_, body)| body == reason)
    });
    pair.host().run("ip link del braid-vxlan");
    await_device(pair.host(), "10.107.2.0/24", LINK);
    agent.kill();
    // A VXLAN link with other settings is made again.
    pair.host().run("ip link del braid-vxlan");
    pair.host()
        .run("ip link add braid-vxlan type vxlan id 1 dstport 4789 local 192.0.2.1");
    let _agent = pair.start_in("vxlan");
    await_device(pair.host(), "10.107.2.0/24", LINK);
    for (number, fault) in [
        "ip link set braid-vxlan down",
        "ip addr flush dev braid-vxlan",
        "ip link set braid-vxlan mtu 1400",
        "ip link del braid-vxlan",
    ]
    .into_iter()
    .enumerate()
    {
        pair.host().run(fault);
        // Any change of a Node leads to a comparison.
        let name = format!("fabric-repair-{number}");
        pair.create_node(&name, &format!("10.107.{}.0/24", number + 10), "192.0.2.9");
        await_device(pair.host(), &format!("10.107.{}.0/24", number + 10), LINK);
        await_device(pair.host(), "10.107.2.0/24", LINK);
        assert_eq!(pair.host().addrs(LINK), ["10.107.1.0/32"], "{fault}");
        assert_eq!(pair.host().the_link(LINK)["mtu"], 1450, "{fault}");
        let peer = mac(&pair.names[1]);
        assert!(neighbours(pair.host()).contains(&format!("10.107.2.0 {peer}")));
        assert!(fdb(pair.host()).contains(&format!("{peer} 192.0.2.2")));
    }
}
