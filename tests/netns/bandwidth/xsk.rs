//! A container that sends past its limit by an `AF_XDP` socket, on a kernel that lets no program refuse it the link.

use super::guard::{Held, SLOW, assert_ends, assert_room_for_eight, children, ends_on_the_host, slow};
use super::{BURST, shaped};
use crate::conf;
use braid_tests::feature::pretend;
use braid_tests::state::{end_first_programs, first_programs};
use braid_tests::{Ns, Sandbox, json, needs};
use std::fs;

const SENDER: &str = include_str!("xsk.py");
/// Of nobody, so that it leaves the node.
const AWAY: &str = "02:00:00:00:00:01";

/// How many packets the kernel takes of what an `AF_XDP` socket of `from` sends to `address` in a fifth of a second, and how many
/// bytes more arrive at a link meanwhile.
fn sends(from: &Ns, address: &str, at: (&Ns, &str)) -> (u64, u64) {
    fs::write("/run/xsk.py", SENDER).unwrap();
    let arrived = || at.0.list(&format!("ip -j -s link show {}", at.1))[0]["stats64"]["rx"]["bytes"].as_u64().unwrap();
    let before = arrived();
    let taken = from.run(&format!("python3 /run/xsk.py eth0 {address} 0.2")).trim().parse().unwrap();
    (taken, arrived() - before)
}

/// The programs that see what leaves a link before all filters do.
fn programs(host: &Sandbox, link: &str) -> Vec<String> {
    let all = first_programs(host.host()).into_iter();
    all.filter_map(|program| program.strip_prefix(&format!("{link}: ")).map(str::to_owned)).collect()
}

/// What [`programs`] shows of a link that holds such sockets.
const HOLDS: [&str; 1] = ["braid_xsk"];

/// Ends it by force.
fn let_go(host: &Sandbox, link: &str) {
    end_first_programs(host.host(), link);
    assert!(programs(host, link).is_empty());
}

fn held() -> Held {
    let held = Held::new();
    pretend(&[], &["bpf_lsm"]);
    held
}

fn leaves(held: &Held, from: &Ns) -> (u64, u64) {
    sends(from, AWAY, (&held.far, "lan"))
}

fn mac_of(pod: &Ns) -> String {
    pod.list("ip -j link show eth0")[0]["address"].as_str().unwrap().to_owned()
}

fn is_held((taken, bytes): (u64, u64)) {
    assert!(taken > 100 && bytes < 10_000, "{bytes} bytes of {taken} packets");
}

fn is_free((taken, bytes): (u64, u64)) {
    assert!(taken > 100 && bytes > taken * 1000, "{bytes} bytes of {taken} packets");
}

#[test]
fn what_an_xdp_socket_sends_past_a_limit_is_held_at_the_link_below() {
    needs!(XskGuard);
    for main in children() {
        let held = held();
        let call = held.call(&slow(&main, &json!({})));
        let result = call.add().result();
        assert_eq!(programs(&held.host, "lan"), HOLDS);
        let guarded = || held.guarded();
        if main["mode"] == "l3" {
            held.far.run("ip route add 10.3.0.2/32 via 10.3.0.253");
        }
        assert_eq!(guarded(), 0);
        let sent = leaves(&held, &held.pod);
        is_held(sent);
        let dropped = guarded();
        // In mode l3 the kernel looks for a header where such a packet notes none, and drops it before.
        let is_lost = main["mode"] == "l3" && dropped == 0;
        assert!(dropped >= sent.0 || is_lost, "{main}: {dropped} of {}", sent.0);
        call.check(&result).ok();
        held.pod.send(&held.far, "10.3.0.254", 100_000);
        assert_eq!(guarded(), dropped, "{main}: what the IP stack sends is not held there");
        let_go(&held.host, "lan");
        let free = leaves(&held, &held.pod);
        if is_lost {
            is_held(free);
        } else {
            is_free(free);
        }
        call.check(&result).refused(999, &["AF_XDP", "lan"]);
        call.prev(&result).del().ok();
        held.host.assert_nothing_left();
    }
}

#[test]
fn a_neighbour_without_a_limit_is_free_and_one_child_reaches_another() {
    needs!(XskGuard);
    let held = held();
    let mut main = conf::macvlan();
    main["mode"] = json!("bridge");
    let call = held.call(&slow(&main, &json!({})));
    let result = call.add().result();
    let free = held.host.pod("b");
    let other = held.host.call("macvlan", &free, main);
    other.add().result();
    is_free(leaves(&held, &free));
    is_held(leaves(&held, &held.pod));
    // README says so: what goes from one child to another does not leave the link below.
    is_free(sends(&held.pod, &mac_of(&free), (&free, "eth0")));
    call.prev(&result).del().ok();
    other.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn the_last_limited_child_takes_the_program_along() {
    needs!(XskGuard);
    let held = held();
    let conf = slow(&conf::macvlan(), &json!({}));
    let first = held.call(&conf);
    first.add().result();
    let pod = held.host.pod("b");
    let second = held.host.call("braid", &pod, conf);
    second.add().result();
    first.del().ok();
    assert_eq!(programs(&held.host, "lan"), HOLDS);
    is_held(leaves(&held, &pod));
    second.del().ok();
    assert!(programs(&held.host, "lan").is_empty());
    held.host.assert_nothing_left();
}

#[test]
fn what_others_hang_on_the_link_below_decides_after_the_guard_and_stays() {
    needs!(XskGuard);
    let held = held();
    let others = || ["ingress", "egress"].map(|side| held.host.run(&format!("tc filter show dev lan {side}")));
    held.host.run("tc qdisc add dev lan clsact");
    // Lets all pass, and no filter behind it sees anything.
    fs::write("/run/filter", "tc filter add dev lan egress pref 1 bpf bytecode '1,6 0 0 1'").unwrap();
    held.host.run("sh -e /run/filter");
    let before = others();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    is_held(leaves(&held, &held.pod));
    call.check(&result).ok();
    call.prev(&result).del().ok();
    assert_eq!(others(), before);
    held.host.run("tc qdisc del dev lan clsact");
    held.host.run("tc qdisc add dev lan ingress");
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    call.add().result();
    is_held(leaves(&held, &held.pod));
    call.del().ok();
    assert!(held.host.run("tc qdisc show dev lan").contains("ingress"));
    held.host.run("tc qdisc del dev lan ingress");
    held.host.assert_nothing_left();
}

#[test]
fn a_link_below_that_has_another_name_by_now_lets_go() {
    needs!(XskGuard);
    let held = held();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    held.host.run("ip link set lan down");
    held.host.run("ip link set lan name wan");
    assert_eq!(programs(&held.host, "wan"), HOLDS);
    call.prev(&result).del().ok();
    assert!(programs(&held.host, "wan").is_empty());
    held.host.run("ip link set wan name lan");
    held.host.assert_nothing_left();
}

#[test]
fn the_same_names_in_another_namespace_do_not_end_it() {
    needs!(XskGuard);
    let held = held();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    let pod = held.host.pod("b");
    let main = held.host.call("macvlan", &pod, conf::macvlan()).container("b");
    let prev = main.add().result();
    let other = held.chained(&pod, &prev).container("a");
    other.add().result();
    is_held(leaves(&held, &pod));
    other.del().ok();
    is_free(leaves(&held, &pod));
    is_held(leaves(&held, &held.pod));
    main.del().ok();
    call.prev(&result).del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn more_than_a_namespace_has_room_for_are_refused() {
    needs!(XskGuard);
    assert_room_for_eight(&held());
}

#[test]
fn a_link_of_another_namespace_with_the_same_number_is_not_the_one_below() {
    needs!(XskGuard);
    let held = held();
    let third = held.host.pod("third");
    for ns in [held.host.host(), &third] {
        ns.run("ip link add below index 777 type veth peer name other");
    }
    third.run(&format!("ip link add link below name eth0 netns {} type macvlan", held.pod.path().display()));
    held.pod.run("ip link set eth0 up");
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": held.pod.path()}], "ips": []});
    let call = held.chained(&held.pod, &prev);
    call.add().result();
    assert!(first_programs(held.host.host()).is_empty());
    call.del().ok();
    held.host.run("ip link del below");
    held.host.assert_nothing_left();
}

#[test]
fn two_limited_interfaces_of_a_container_are_held_until_the_last_is_gone() {
    needs!(XskGuard);
    let held = held();
    let conf = slow(&conf::macvlan(), &json!({}));
    let first = held.call(&conf);
    first.add().result();
    let second = held.call(&conf).ifname("net1");
    second.add().result();
    second.del().ok();
    is_held(leaves(&held, &held.pod));
    first.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn the_guard_of_xdp_sockets_ends_with_its_attachment() {
    needs!(XskGuard);
    assert_ends(ends_on_the_host(), held, |held| !programs(&held.host, "lan").is_empty());
}

#[test]
fn the_guard_of_xdp_sockets_ends_when_the_namespace_is_gone() {
    needs!(XskGuard);
    let held = held();
    let call = held.call(&slow(&conf::macvlan(), &json!({})));
    let result = call.add().result();
    held.host.end(&held.pod);
    call.prev(&result).del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn a_plugin_of_its_own_finds_the_link_below() {
    needs!(XskGuard);
    let held = held();
    let main = held.host.call("macvlan", &held.pod, conf::macvlan());
    let result = main.add().result();
    let before = held.host.state();
    let call = held.chained(&held.pod, &result);
    call.add().result();
    is_held(leaves(&held, &held.pod));
    call.del().ok();
    before.assert_same(&held.host.state());
    is_free(leaves(&held, &held.pod));
    main.del().ok();
    held.host.assert_nothing_left();
}

#[test]
fn only_what_is_sent_through_a_link_of_the_host_needs_a_guard() {
    needs!(XskGuard);
    let held = held();
    let mut received = slow(&conf::macvlan(), &json!({}));
    received["runtimeConfig"]["bandwidth"] = json!({"ingressRate": SLOW, "ingressBurst": BURST});
    let call = held.call(&received);
    call.add().result();
    assert!(programs(&held.host, "lan").is_empty());
    call.del().ok();
    let call = shaped(&held.host, &held.pod, &conf::bridge(), &json!({"egressRate": SLOW, "egressBurst": BURST}));
    call.add().result();
    assert!(first_programs(held.host.host()).is_empty());
    call.del().ok();
    held.host.assert_nothing_left();
}
