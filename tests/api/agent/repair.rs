//! Repair of the node's network after another program has deleted objects of it.

use super::node::events;
use super::{Pair, await_true, is_ready};
use braid_tests::{Ns, Value};
use std::fs;
use std::process::{Child, Command};

const LINK: &str = "braid-vxlan";
/// Objects of other programs, which repairs leave as they are.
const FOREIGN: [&str; 4] = [
    "ip route add 10.99.0.0/16 via 192.0.2.9 proto bird",
    "ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev other nud permanent",
    "ip rule add pref 1000 from 198.51.100.1 lookup 1000",
    "nft add table inet guard",
];

/// A node with an agent in mode `vxlan`, another node, and objects of other programs.
struct Broken {
    _agent: super::Agent,
    pair: Pair,
    net: u8,
    foreign: Vec<Value>,
}

impl Broken {
    fn new(test: &str, net: u8, mode: &str) -> Option<Self> {
        let pair = Pair::new(test, net)?;
        for command in FOREIGN {
            pair.world.sandbox.run(command);
        }
        let agent = pair.start_in(mode);
        await_true("readiness", is_ready);
        let foreign = foreign(pair.world.sandbox.host());
        Some(Self {
            _agent: agent,
            pair,
            net,
            foreign,
        })
    }

    fn host(&self) -> &Ns {
        self.pair.world.sandbox.host()
    }

    /// Runs `commands`. Waits until the objects in `show` are as before, and an event has the words.
    /// Objects of other programs are as before.
    #[track_caller]
    fn breaks(&self, commands: &[&str], show: &[&str], words: &str) {
        let shown = || -> Vec<Vec<Value>> { show.iter().map(|list| self.own(list)).collect() };
        let before = shown();
        assert!(before.iter().all(|list| !list.is_empty()), "{before:?}");
        let events_before = self.events(words);
        for command in commands {
            self.host().run(command);
        }
        await_true(&format!("repair after {commands:?}"), || shown() == before);
        await_true(&format!("an event {words:?}"), || {
            self.events(words) > events_before
        });
        assert_eq!(foreign(self.host()), self.foreign, "{commands:?}");
    }

    /// Returns the listed objects of the two nodes. Nodes of other tests cause others.
    fn own(&self, list: &str) -> Vec<Value> {
        let mut listed = without_indices(&self.host().try_run(list).unwrap_or_default());
        if listed["nftables"].is_array() {
            listed = listed["nftables"].take();
        }
        let mut listed = listed.as_array().cloned().unwrap_or_default();
        let range = format!("10.{}.", self.net);
        let peer = super::fabric::mac(&self.pair.names[1]);
        listed.retain(|item| {
            let text = item.to_string();
            text.contains(&range) || text.contains(&peer)
        });
        listed
    }

    /// Returns the number of repairs with these words in their events.
    fn events(&self, words: &str) -> i64 {
        let mut count = 0;
        for event in events(&self.pair, "Repaired") {
            assert_eq!(event["type"], "Normal");
            if event["note"]
                .as_str()
                .is_some_and(|note| note.contains(words))
            {
                count += event["series"]["count"].as_i64().unwrap_or(1);
            }
        }
        count
    }
}

/// Returns the objects of other programs.
fn foreign(host: &Ns) -> Vec<Value> {
    let mut found = Vec::new();
    for command in [
        "ip -j route show proto bird",
        "ip -j neigh show 192.0.2.9",
        "ip -j rule show pref 1000",
        "nft -j list table inet guard",
    ] {
        found.push(without_indices(&host.run(command)));
    }
    found
}

/// Returns the JSON text without indices, handles and counters of the kernel.
fn without_indices(text: &str) -> Value {
    let mut value = serde_json::from_str(text).unwrap_or(Value::Null);
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        for key in [
            "ifindex",
            "handle",
            "metainfo",
            "probes",
            "updated",
            "confirmed",
            "used",
        ] {
            object.remove(key);
        }
        object.values_mut().for_each(strip);
    } else if let Some(array) = value.as_array_mut() {
        array.iter_mut().for_each(strip);
    }
}

/// A program that runs a command again and again, until it is dropped.
pub(super) struct Again(Child);

impl Again {
    pub(super) fn start(command: &str) -> Self {
        let script = format!("while :; do {command} 2>/dev/null; sleep 0.05; done");
        let child = Command::new("sh").args(["-c", &script]).spawn();
        Self(child.expect("a shell"))
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.0.kill().expect("the shell runs");
        self.0.wait().expect("the shell ends");
    }
}

const ROUTES: &str = "ip -j route show proto 98";
const NEIGHBOURS: &str = "ip -j neigh show dev braid-vxlan nud permanent";
const FDB: &str = "bridge -j fdb show dev braid-vxlan";
const ADDRESSES: &str = "ip -j addr show dev braid-vxlan";
const TABLE: &str = "nft -j list chain inet braid-cluster postrouting";

#[test]
fn routes_neighbours_and_fdb_entries_come_back() {
    let Some(node) = Broken::new("repair-routes", 170, "vxlan") else {
        return;
    };
    node.breaks(&["ip route del 10.170.2.0/24"], &[ROUTES], "lost route");
    node.breaks(
        &["ip neigh flush dev braid-vxlan nud permanent"],
        &[NEIGHBOURS],
        "lost neighbour",
    );
    let mac = super::fabric::mac(&node.pair.names[1]);
    let delete = format!("bridge fdb del {mac} dev {LINK} dst 192.0.2.2");
    node.breaks(&[&delete], &[FDB], "lost FDB entry");
    node.breaks(
        &["ip addr flush dev braid-vxlan"],
        &[ADDRESSES, ROUTES],
        "lost address",
    );
}

#[test]
fn the_vxlan_link_comes_back_with_all_that_is_on_it() {
    let Some(node) = Broken::new("repair-link", 171, "vxlan") else {
        return;
    };
    let all = [ROUTES, NEIGHBOURS, FDB];
    node.breaks(&["ip link del braid-vxlan"], &all, "lost link: ip link add");
    node.breaks(
        &["ip link set braid-vxlan down"],
        &all,
        "lost link: ip link set braid-vxlan up",
    );
    node.breaks(
        &["ip link set braid-vxlan mtu 1300"],
        &[ADDRESSES],
        "lost link: ip link set braid-vxlan mtu",
    );
}

#[test]
fn an_uplink_that_goes_down_and_up_keeps_its_routes_however_often() {
    let Some(node) = Broken::new("repair-uplink", 172, "direct") else {
        return;
    };
    let before = node.own(ROUTES);
    for _ in 0..8 {
        for state in ["down", "up"] {
            node.host().run(&format!("ip link set other {state}"));
        }
        await_true("routes", || node.own(ROUTES) == before);
    }
    await_true("an event", || node.events("lost route") > 0);
    // Events are published in order.
    node.host().run("sysctl -qw net.ipv4.ip_forward=0");
    await_true("an event", || node.events("net/ipv4/ip_forward") > 0);
    assert!(events(&node.pair, "RepairPaused").is_empty());
}

#[test]
fn rules_of_nf_tables_and_forwarding_come_back() {
    let Some(node) = Broken::new("repair-rules", 173, "direct") else {
        return;
    };
    let host = node.host();
    node.breaks(
        &["nft delete table inet braid-cluster"],
        &[TABLE],
        "table inet braid-cluster",
    );
    node.breaks(
        &["nft flush table inet braid-cluster"],
        &[TABLE],
        "table inet braid-cluster",
    );
    // A reload of the node's own rules, with one table of its own.
    let reload = "flush ruleset\nadd table inet guard\n";
    fs::write("/run/reload.nft", reload).expect("rules");
    node.breaks(
        &["nft -f /run/reload.nft"],
        &[TABLE],
        "table inet braid-cluster",
    );
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        let path = key.replace('.', "/");
        node.breaks(&[&format!("sysctl -qw {key}=0")], &[], &path);
        assert_eq!(host.run(&format!("sysctl -n {key}")).trim(), "1");
    }
}

#[test]
fn a_program_that_deletes_a_route_again_and_again_gets_a_warning_and_pauses() {
    let Some(node) = Broken::new("repair-fight", 174, "direct") else {
        return;
    };
    let before = node.own(ROUTES);
    let fight = Again::start("ip route del 10.174.2.0/24");
    await_true("a warning", || {
        let warnings = events(&node.pair, "RepairPaused");
        let mut notes = warnings.iter().filter_map(|event| event["note"].as_str());
        notes.any(|note| note.contains("10.174.2.0/24"))
    });
    // The agent keeps trying.
    let repairs = || node.events("10.174.2.0/24");
    let count = repairs();
    await_true("another repair", || repairs() > count);
    assert!(repairs() < 20, "{} repairs", repairs());
    drop(fight);
    await_true("the route", || node.own(ROUTES) == before);
    assert_eq!(foreign(node.host()), node.foreign);
}
