//! Repair of running pods after another program has deleted their objects on the node.

use super::garbage::conf;
use super::metrics::{scrape, value};
use super::repair::Again;
use super::reports::events;
use super::socket::Served;
use super::{Pair, await_true, is_ready};
use crate::json;
use braid_core::k8s::NETWORKS;
use braid_tests::{Ns, Value, needs};
use std::time::Duration;

/// Returns the link of the node that belongs to a container's interface.
fn host_end(host: &Ns, ifname: &str) -> Option<String> {
    let suffix = format!(" {ifname}");
    let links = host.list("ip -j link");
    let link = links.iter().find(|link| {
        let alias = link["ifalias"].as_str().unwrap_or_default();
        alias.starts_with("braid ") && alias.ends_with(&suffix)
    });
    link.map(|link| link["ifname"].as_str().expect("a name").to_owned())
}

/// Returns MAC, addresses and routes of a container.
fn shown(pod: &Ns) -> [Value; 3] {
    let mut links = Value::Array(pod.list("ip -j link"));
    let mut addresses = Value::Array(pod.list("ip -j -4 addr"));
    for list in [&mut links, &mut addresses] {
        for link in list.as_array_mut().expect("a list") {
            let link = link.as_object_mut().expect("an object");
            // Another link has another index.
            link.retain(|key, _| ["ifname", "address", "addr_info", "mtu"].contains(&key.as_str()));
        }
    }
    [links, addresses, Value::Array(pod.list("ip -j route"))]
}

#[test]
fn the_host_end_of_a_pod_comes_back_up_and_with_its_addresses_and_after_its_deletion() {
    let Some(pair) = Pair::new("repair-pod", 177) else {
        return;
    };
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let pod = pair.world.sandbox.pod("p");
    let call = pair.world.sandbox.call("braid", &pod, conf());
    let result = call.add().result();
    let host = pair.world.sandbox.host();
    let before = shown(&pod);
    let end = host_end(host, "eth0").expect("a host end");
    let address = pod.addrs("eth0")[0].clone();
    let address = address.split('/').next().expect("an address").to_owned();
    let is_whole =
        || call.check(&result).code == 0 && host.can_ping(&address) && shown(&pod) == before;
    assert!(is_whole());
    for command in [
        format!("ip link set {end} down"),
        format!("ip addr flush dev {end}"),
        format!("ip route del {address} dev {end}"),
        format!("ip link del {end}"),
    ] {
        host.run(&command);
        await_true(&format!("repair after {command}"), is_whole);
    }
    call.del().ok();
}

#[test]
fn the_gateway_of_a_bridge_comes_back_and_its_ports() {
    let Some(pair) = Pair::new("repair-bridge", 178) else {
        return;
    };
    std::fs::write("/run/config.yaml", "type: bridge\n").expect("written");
    let _agent = pair.start_with(&["--config", "/run/config.yaml"]);
    await_true("readiness", is_ready);
    let pod = pair.world.sandbox.pod("p");
    let call = pair.world.sandbox.call("braid", &pod, conf());
    let result = call.add().result();
    let host = pair.world.sandbox.host();
    let before = shown(&pod);
    for command in [
        "ip link set braid0 down",
        "ip addr flush dev braid0",
        "ip link del braid0",
    ] {
        host.run(command);
        await_true(&format!("repair after {command}"), || {
            call.check(&result).code == 0 && pod.can_ping("10.178.1.1") && shown(&pod) == before
        });
    }
    call.del().ok();
}

#[test]
fn rules_of_pods_come_back_after_a_flush_and_those_of_others_stay() {
    let Some(pair) = Pair::new("repair-tables", 181) else {
        return;
    };
    let sandbox = &pair.world.sandbox;
    let host = sandbox.host();
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let pod = sandbox.pod("p");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": "lan",
        "type": "bridge",
        "bridge": "lan0",
        "isGateway": true,
        "ipMasq": true,
        "ipMasqBackend": "nftables",
        "ipam": {"type": "host-local", "subnet": "10.181.200.0/24"},
    });
    let call = sandbox.call("bridge", &pod, conf);
    let result = call.add().result();
    std::fs::write("/run/reload.nft", "flush ruleset\nadd table inet guard\n").expect("rules");
    for command in [
        "nft delete table inet braid",
        "nft -f /run/reload.nft",
        "nft flush table inet braid",
    ] {
        host.run("nft add table inet guard");
        call.check(&result).ok();
        host.run(command);
        await_true(&format!("repair after {command}"), || {
            call.check(&result).code == 0
        });
        assert!(host.run("nft list tables").contains("table inet guard"));
    }
    // STATUS restores the rules before the agent looks, and the agent counts it.
    let count = || value(&scrape(), "braid_repairs_total{kind=\"table\"}").unwrap_or_default();
    for command in ["nft delete table inet braid", "nft flush table inet braid"] {
        let before = count();
        host.run(command);
        call.status().ok();
        call.check(&result).ok();
        await_true(&format!("a count after {command}"), || count() > before);
    }
    call.del().ok();
}

#[test]
fn a_macvlan_comes_back_with_its_parent_with_the_same_address_and_mac() {
    comes_back_with_its_parent("macvlan", 179);
}

#[test]
fn an_ipvlan_comes_back_with_its_parent_with_the_same_address() {
    needs!(Ipvlan);
    comes_back_with_its_parent("ipvlan", 223);
}

#[track_caller]
fn comes_back_with_its_parent(kind: &str, net: u8) {
    let Some(pair) = Pair::new(&format!("repair-{kind}"), net) else {
        return;
    };
    let sandbox = &pair.world.sandbox;
    let host = sandbox.host();
    let make = || {
        // An ipvlan has the MAC of its parent.
        host.run("ip link add par0 address 02:00:00:00:00:01 type veth peer name far0");
        host.run("ip link set far0 up");
        host.run("ip link set par0 up");
    };
    make();
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let pod = sandbox.pod("p");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": "lan",
        "type": kind,
        "master": "par0",
        "ipam": {"type": "host-local", "subnet": format!("10.{net}.200.0/24")},
    });
    let call = sandbox.call(kind, &pod, conf);
    let result = call.add().result();
    let before = shown(&pod);
    for _ in 0..2 {
        host.run("ip link del par0");
        await_true("a pod without its interface", || pod.link("eth0").is_none());
        make();
        await_true("the interface", || shown(&pod) == before);
        call.check(&result).ok();
    }
    call.del().ok();
}

#[test]
fn a_repair_that_failed_is_tried_again_and_leaves_no_half_of_an_interface() {
    let Some(pair) = Pair::new("repair-again", 195) else {
        return;
    };
    let sandbox = &pair.world.sandbox;
    let host = sandbox.host();
    let make = |mtu: u32| {
        host.run("ip link add par0 type veth peer name far0");
        for link in ["far0", "par0"] {
            host.run(&format!("ip link set {link} up mtu {mtu}"));
        }
    };
    make(1500);
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let pod = sandbox.pod("p");
    let conf = json!({
        "cniVersion": "1.1.0",
        "name": "lan",
        "type": "macvlan",
        "master": "par0",
        "mtu": 1400,
        "ipam": {"type": "host-local", "subnet": "10.195.200.0/24"},
    });
    let call = sandbox.call("macvlan", &pod, conf);
    call.add().result();
    let before = shown(&pod);
    host.run("ip link del par0");
    await_true("a pod without its interface", || pod.link("eth0").is_none());
    // The kernel refuses a macvlan that is larger than its parent.
    make(1300);
    std::thread::sleep(Duration::from_secs(3));
    assert!(pod.link("eth0").is_none());
    host.run("ip link set par0 mtu 1500");
    await_true("the interface", || shown(&pod) == before);
    call.del().ok();
}

#[test]
fn a_secondary_network_comes_back_with_events_and_a_program_that_deletes_it_gets_a_warning() {
    let Some(node) = Served::new("repair-second", 180) else {
        return;
    };
    let pod = node.pod("p", &json!({NETWORKS: "lan"}));
    pod.call.add().result();
    let host = node.pair.world.sandbox.host();
    let before = shown(&pod.ns);
    let end = host_end(host, "net1").expect("a host end");
    host.run(&format!("ip link del {end}"));
    await_true("the interface", || shown(&pod.ns) == before);
    let told = |reason: &str| {
        let events = events(&node, &pod);
        events.iter().any(|event| event[0] == reason)
    };
    await_true("an event", || told("Repaired"));
    let fight = Again::start(&format!("ip link del {end}"));
    await_true("a warning", || told("RepairPaused"));
    drop(fight);
    await_true("the interface", || shown(&pod.ns) == before);
    pod.call.del().ok();
}
