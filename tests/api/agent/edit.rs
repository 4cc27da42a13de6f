//! Edits of a running pod's annotation: the agent attaches and detaches networks.

mod devices;
mod ports;

use super::pings::Pings;
use super::reports::events;
use super::socket::{Pod, Served};
use super::{CONFLIST, await_true, serde_json_of};
use crate::json;
use braid_core::k8s::NETWORKS;
use braid_tests::Value;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// A node whose agent changes running pods, with the networks `lan` and `wan`.
struct Edited {
    node: Served,
    net: u8,
}

impl Edited {
    fn new(test: &str, net: u8) -> Option<Self> {
        let node = Served::new(test, net)?;
        await_true("conflist", || fs::exists(CONFLIST).is_ok_and(|is| is));
        let created = Self { node, net };
        created.create_network("wan", "wan0", 192);
        Some(created)
    }

    /// Creates a network with addresses from 10.`net`.`third`.0/24.
    fn create_network(&self, name: &str, bridge: &str, third: u8) {
        let subnet = format!("10.{}.{third}.0/24", self.net);
        let config = json!({
            "cniVersion": "1.0.0",
            "type": "bridge",
            "bridge": bridge,
            "ipam": {"type": "host-local", "subnet": subnet},
        });
        let world = &self.node.pair.world;
        world.create_nad(name, &json!({"config": config.to_string()}));
    }

    /// Attaches a pod of the node's own network that selects these networks.
    fn start(&self, name: &str, networks: &str) -> Pod {
        let mut pod = self.node.pod(name, &json!({NETWORKS: networks}));
        let list = serde_json_of(CONFLIST);
        let plugins = list["plugins"][0]["plugins"].clone();
        let call = pod.call.with("name", list["name"].clone());
        pod.call = call.with("plugins", plugins);
        pod.call.add().result();
        pod
    }

    fn annotate(&self, pod: &Pod, networks: &str) {
        self.node.annotate(pod, &format!("{NETWORKS}={networks}"));
    }

    /// Waits until the pod has these interfaces in kernel, status and leases.
    #[track_caller]
    fn await_interfaces(&self, pod: &Pod, interfaces: &[&str]) {
        await_true(&format!("interfaces {interfaces:?}"), || {
            let names = BTreeSet::from_iter(pod.ns.link_names());
            names
                .iter()
                .map(String::as_str)
                .eq(interfaces.iter().copied())
        });
        self.node.await_status(pod, interfaces);
        await_true("a lease for each interface", || {
            leases().len() == interfaces.len()
        });
    }
}

/// Returns the IPv4 addresses of the pod's links but `eth0`, which may change meanwhile.
fn other_addresses(pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    for link in pod.ns.list("ip -j -4 addr show scope global") {
        if link["ifname"] != "eth0" {
            let address = &link["addr_info"][0]["local"];
            found.push(address.as_str().unwrap_or_default().to_owned());
        }
    }
    found
}

/// Returns all leases.
fn leases() -> Vec<String> {
    let mut found = Vec::new();
    for network in fs::read_dir("/var/lib/cni/networks").into_iter().flatten() {
        let folder = network.expect("a folder").path();
        for file in fs::read_dir(folder).expect("a folder") {
            let name = file.expect("a file").file_name();
            let name = name.into_string().expect("text");
            found.extend(name.starts_with("10.").then_some(name));
        }
    }
    found.sort();
    found
}

/// Detaches the pod. Nothing of it is left.
#[track_caller]
fn stop(pod: &Pod) {
    pod.call.del().ok();
    assert_eq!(pod.ns.link_names(), [""; 0]);
    assert_eq!(leases(), [""; 0]);
    assert!(!fs::exists("/run/braid/attachments").is_ok_and(|is| {
        is && fs::read_dir("/run/braid/attachments").is_ok_and(|mut all| all.next().is_some())
    }));
}

#[test]
fn edits_attach_and_detach_networks_and_touch_no_others() {
    let Some(node) = Edited::new("edit-both", 164) else {
        return;
    };
    let pod = node.start("web", "");
    node.await_interfaces(&pod, &["eth0"]);
    node.annotate(&pod, "lan,wan");
    node.await_interfaces(&pod, &["eth0", "net1", "net2"]);
    assert_eq!(pod.ns.addrs("net1"), ["10.164.128.2/24"]);
    assert_eq!(pod.ns.addrs("net2"), ["10.164.192.2/24"]);
    let wan = pod.ns.the_link("net2");
    node.annotate(&pod, "wan");
    node.await_interfaces(&pod, &["eth0", "net2"]);
    assert_eq!(pod.ns.the_link("net2")["ifindex"], wan["ifindex"]);
    node.annotate(&pod, "wan,lan@x");
    node.await_interfaces(&pod, &["eth0", "net2", "x"]);
    assert_eq!(pod.ns.the_link("net2")["ifindex"], wan["ifindex"]);
    // Pods of one network reach each other, whenever they were attached to it.
    let other = node.start("second", "lan");
    let to = pod.ns.addrs("x")[0].replace("/24", "");
    other.ns.run(&format!("ping -c 1 -W 5 -I net1 {to}"));
    other.call.del().ok();
    let told = events(&node.node, &pod);
    for (reason, part) in [
        (
            "AddedInterface",
            "Add net1 [10.164.128.2/24] from edit-both/lan",
        ),
        (
            "RemovedInterface",
            "Remove net1 [10.164.128.2/24] from edit-both/lan",
        ),
        ("AddedInterface", "Add x ["),
    ] {
        let is_it = |event: &&[String; 2]| event[0] == reason && event[1].starts_with(part);
        assert_eq!(told.iter().filter(is_it).count(), 1, "{part}: {told:?}");
    }
    stop(&pod);
}

#[test]
fn the_last_of_many_edits_holds_and_a_changed_address_is_a_new_attachment() {
    let Some(node) = Edited::new("edit-many", 165) else {
        return;
    };
    let pod = node.start("web", "lan");
    for number in 0..20 {
        let networks = ["lan", "wan", "lan,wan", ""][number % 4];
        node.annotate(&pod, networks);
    }
    node.annotate(&pod, "wan,lan");
    node.await_interfaces(&pod, &["eth0", "net1", "net2"]);
    let fixed = json!([{"name": "wan", "ips": ["10.165.192.77/24"]}]).to_string();
    node.annotate(&pod, &fixed);
    await_true("the address", || other_addresses(&pod) == ["10.165.192.77"]);
    // Another address on the same interface.
    let fixed = fixed.replace("77", "78");
    node.annotate(&pod, &fixed);
    await_true("the address", || other_addresses(&pod) == ["10.165.192.78"]);
    stop(&pod);
}

#[test]
fn an_edit_while_the_agent_was_away_is_made_up_for_and_del_needs_no_agent() {
    let Some(mut node) = Edited::new("edit-away", 166) else {
        return;
    };
    let pod = node.start("web", "lan");
    node.node.agent.child.kill().expect("the agent runs");
    node.node.agent.child.wait().expect("the agent ends");
    node.annotate(&pod, "wan");
    node.node.agent = node.node.pair.start();
    await_true("the other network", || {
        other_addresses(&pod) == ["10.166.192.2"]
    });
    node.await_interfaces(&pod, &["eth0", "net1"]);
    node.node.agent.child.kill().expect("the agent runs");
    stop(&pod);
}

#[test]
fn an_edit_that_fails_changes_nothing_and_is_tried_again() {
    let Some(node) = Edited::new("edit-fails", 167) else {
        return;
    };
    let pod = node.start("web", "lan");
    let before = pod.ns.the_link("net1");
    for (networks, reason) in [
        ("[{]", "InvalidAnnotation"),
        ("lan,wan@net1", "NetworkRefused"),
        ("lan,later", "NoNetworkFound"),
    ] {
        node.annotate(&pod, networks);
        await_true(reason, || {
            let told = events(&node.node, &pod);
            told.iter().any(|event| event[0] == reason)
        });
        assert_eq!(pod.ns.the_link("net1")["ifindex"], before["ifindex"]);
        node.await_interfaces(&pod, &["eth0", "net1"]);
    }
    node.create_network("later", "later0", 200);
    node.await_interfaces(&pod, &["eth0", "net1", "net2"]);
    stop(&pod);
}

#[test]
fn the_default_route_goes_to_the_network_that_requests_it() {
    let Some(node) = Edited::new("edit-route", 168) else {
        return;
    };
    let pod = node.start("web", "lan");
    let routes = || {
        let mut links = Vec::new();
        for route in pod.ns.list("ip -j route show default") {
            links.push(route["dev"].as_str().expect("a link").to_owned());
        }
        links
    };
    assert_eq!(routes(), ["eth0"]);
    let routed = json!([{"name": "lan"}, {"name": "wan", "default-route": ["10.168.192.9"]}]);
    node.annotate(&pod, &routed.to_string());
    node.await_interfaces(&pod, &["eth0", "net1", "net2"]);
    assert_eq!(routes(), ["net2"]);
    // It moves in place.
    let wan = pod.ns.the_link("net2");
    for (networks, link) in [("lan,wan", "eth0"), (&routed.to_string(), "net2")] {
        node.annotate(&pod, networks);
        await_true("the default route", || routes() == [link]);
        assert_eq!(pod.ns.the_link("net2")["ifindex"], wan["ifindex"]);
    }
    // Another network does not touch it.
    let more = json!([{"name": "wan", "default-route": ["10.168.192.9"]}]);
    node.annotate(&pod, &more.to_string());
    node.await_interfaces(&pod, &["eth0", "net2"]);
    assert_eq!(routes(), ["net2"]);
    node.annotate(&pod, "");
    node.await_interfaces(&pod, &["eth0"]);
    await_true("the default route", || routes() == ["eth0"]);
    stop(&pod);
    // An ADD with it keeps the routes of the first network for later.
    pod.call.add().result();
    let routed = routed.to_string();
    let other = node.start("second", &routed);
    node.annotate(&other, "lan");
    await_true("the default route of the first network", || {
        let routes = other.ns.list("ip -j route show default");
        other.ns.link_names().len() == 2 && routes.len() == 1 && routes[0]["dev"] == "eth0"
    });
    other.call.del().ok();
    stop(&pod);
}

/// Returns a network of type `bridge` with the plugins of limits and host ports.
fn limited(net: u8) -> Value {
    let ipam = json!({"type": "host-local", "subnet": format!("10.{net}.200.0/24")});
    let bridge = json!({"type": "bridge", "bridge": "limited0", "isGateway": true, "ipam": ipam});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    json!({"cniVersion": "1.0.0", "plugins": [bridge, portmap, bandwidth]})
}

#[test]
fn changed_limits_and_host_ports_take_effect_in_place_and_lose_no_packet() {
    const NET: u8 = 220;
    let Some(node) = Edited::new("edit-place", NET) else {
        return;
    };
    let world = &node.node.pair.world;
    world.create_nad("limited", &json!({"config": limited(NET).to_string()}));
    let request = |mbit: u64, ports: &[u16]| {
        let rate = json!({"ingressRate": mbit * 1_000_000, "ingressBurst": 800_000,
            "egressRate": mbit * 1_000_000, "egressBurst": 800_000});
        let mut mappings = Vec::new();
        for port in ports {
            mappings.push(json!({"hostPort": port, "containerPort": 80, "protocol": "TCP"}));
        }
        json!([{"name": "limited", "bandwidth": rate, "portMappings": mappings}]).to_string()
    };
    let pod = node.start("web", "limited");
    let before = pod.ns.the_link("net1");
    let gateway = format!("10.{NET}.200.1");
    let links = world.sandbox.list("ip -j link");
    let is_end = |link: &&Value| link["ifindex"] == before["link_index"];
    let end = links.iter().find(is_end).expect("the host's end");
    let end = end["ifname"].as_str().expect("a name");
    let queues = ["qdisc", "class"].map(|kind| format!("tc {kind} show dev {end}"));
    let rate_is = |mbit: u64| {
        let shown = queues.each_ref().map(|queue| world.sandbox.run(queue));
        shown.concat().contains(&format!(" rate {mbit}Mbit"))
    };
    // Packets on their way in both directions while the limits change.
    node.annotate(&pod, &request(100, &[8080, 8081]));
    await_true("100 Mbit/s", || rate_is(100));
    let flow = Pings::start(&pod.ns, &gateway, "0.002");
    for mbit in [20, 400, 30, 900, 50] {
        node.annotate(&pod, &request(mbit, &[8080, 8081]));
        await_true(&format!("{mbit} Mbit/s"), || rate_is(mbit));
    }
    flow.end();
    node.annotate(&pod, &request(60, &[8081, 8082]));
    await_true("60 Mbit/s", || rate_is(60));
    let elements = world
        .sandbox
        .run("nft -j list map inet braid hostport4-any");
    for (port, is_there) in [("8080", false), ("8081", true), ("8082", true)] {
        assert_eq!(elements.contains(port), is_there, "{port}: {elements}");
    }
    let (least, most) = (40e6, 66e6);
    pod.ns
        .assert_sends(&world.sandbox, &gateway, least, (most, 8e6));
    // Without a limit the queue stays, at a rate that nothing reaches.
    node.annotate(&pod, "limited");
    await_true("no limit", || !rate_is(60));
    pod.ns
        .assert_sends(&world.sandbox, &gateway, 2.0 * most, (1e12, 1e12));
    assert_eq!(pod.ns.the_link("net1")["ifindex"], before["ifindex"]);
    stop(&pod);
}

#[test]
fn an_agent_that_is_killed_in_an_edit_leaves_nothing_that_del_does_not_find() {
    let Some(mut node) = Edited::new("edit-kill", 169) else {
        return;
    };
    let pod = node.start("web", "");
    for round in 0..10 {
        node.annotate(&pod, ["lan,wan", ""][round % 2]);
        let pause = Duration::from_millis(50 + 4 * round as u64);
        std::thread::sleep(pause);
        node.node.agent.child.kill().expect("the agent runs");
        node.node.agent.child.wait().expect("the agent ends");
        node.node.agent = node.node.pair.start();
    }
    node.annotate(&pod, "wan");
    await_true("the last edit", || {
        let addresses = other_addresses(&pod);
        addresses.len() == 1 && addresses[0].starts_with("10.169.192.")
    });
    stop(&pod);
}
