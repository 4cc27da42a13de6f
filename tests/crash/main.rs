//! Plugin calls that are killed at any one of their system calls, or get an error from it.
//!
//! ```text
//!  points  ─ strace lists the system calls of a call, and repeats it with a fault in one of them
//!  world   ─ a host on which one container is attached and detached
//!  cluster ─ a pod with three networks at a real API server: etcd and kube-apiserver
//!  pools   ─ a pod with an address that is unique in the cluster, at the same API server
//!  trials  ─ at each point: kill the call or fail the system call, then DEL or GC: nothing is left, ADD works again
//!  storm   ─ many calls killed at the same time
//! ```
//!
//! `BRAID_CRASH_STEP=9` tries every ninth point. `BRAID_CRASH_OFFSET` is the index of the first one,
//! by default 0.

#![expect(clippy::expect_used, reason = "a helper fails its test by a panic")]

mod cluster;
#[path = "../netns/dhcp/peers.rs"]
#[expect(dead_code, reason = "it does more for other tests")]
mod dhcp;
mod points;
mod pools;
#[path = "../api/proxy.rs"]
#[expect(dead_code, reason = "its faults are for other tests")]
mod proxy;
#[path = "../api/server.rs"]
#[expect(dead_code, reason = "it does more for other tests")]
mod server;
mod storm;
mod trials;
mod world;

use braid_tests::needs;

#[test]
fn a_hundred_killed_adds_leave_nothing_and_lose_no_address() {
    storm::adds();
}

#[test]
fn bridge_add_can_stop_anywhere() {
    trials::add("bridge");
}

#[test]
fn bridge_del_can_stop_anywhere() {
    trials::del("bridge");
}

#[test]
fn foreign_ipam_add_can_stop_anywhere() {
    trials::add("foreign");
}

#[test]
fn foreign_ipam_del_can_stop_anywhere() {
    trials::del("foreign");
}

#[test]
fn full_chain_add_can_stop_anywhere() {
    trials::add("full-chain");
}

#[test]
fn full_chain_del_can_stop_anywhere() {
    trials::del("full-chain");
}

#[test]
fn ports_by_ebpf_add_can_stop_anywhere() {
    trials::add("ports-by-ebpf");
}

#[test]
fn ports_by_ebpf_del_can_stop_anywhere() {
    trials::del("ports-by-ebpf");
}

#[test]
fn shaped_macvlan_add_can_stop_anywhere() {
    trials::add("shaped-macvlan");
}

#[test]
fn shaped_macvlan_del_can_stop_anywhere() {
    trials::del("shaped-macvlan");
}

#[test]
fn ptp_add_can_stop_anywhere() {
    trials::add("ptp");
}

#[test]
fn ptp_del_can_stop_anywhere() {
    trials::del("ptp");
}

#[test]
fn netkit_add_can_stop_anywhere() {
    needs!(Netkit);
    trials::add("netkit");
}

#[test]
fn netkit_del_can_stop_anywhere() {
    needs!(Netkit);
    trials::del("netkit");
}

#[test]
fn shaped_bridge_of_netkits_add_can_stop_anywhere() {
    needs!(Netkit);
    trials::add("shaped-netkit");
}

#[test]
fn shaped_bridge_of_netkits_del_can_stop_anywhere() {
    needs!(Netkit);
    trials::del("shaped-netkit");
}

#[test]
fn macvlan_add_can_stop_anywhere() {
    trials::add("macvlan");
}

#[test]
fn macvlan_del_can_stop_anywhere() {
    trials::del("macvlan");
}

#[test]
fn ipvlan_add_can_stop_anywhere() {
    needs!(Ipvlan);
    trials::add("ipvlan");
}

#[test]
fn ipvlan_del_can_stop_anywhere() {
    needs!(Ipvlan);
    trials::del("ipvlan");
}

#[test]
fn pod_with_three_networks_killed_add_is_undone_by_del() {
    trials::add_of_pod(trials::KILLED);
}

#[test]
fn pod_with_three_networks_killed_add_is_undone_by_gc() {
    trials::add_of_pod(trials::COLLECTED);
}

#[test]
fn pod_with_three_networks_failed_add_is_undone_by_del() {
    trials::add_of_pod(trials::FAILED);
}

#[test]
fn pod_with_three_networks_killed_del_is_undone_by_del() {
    trials::del_of_pod(trials::KILLED);
}

#[test]
fn pod_with_three_networks_killed_del_is_undone_by_gc() {
    trials::del_of_pod(trials::COLLECTED);
}

#[test]
fn pod_with_three_networks_failed_del_is_undone_by_del() {
    trials::del_of_pod(trials::FAILED);
}

#[test]
fn pod_with_a_pooled_address_killed_add_is_undone_by_del() {
    trials::pooled("ADD", trials::KILLED);
}

#[test]
fn pod_with_a_pooled_address_killed_add_is_undone_by_gc() {
    trials::pooled("ADD", trials::COLLECTED);
}

#[test]
fn pod_with_a_pooled_address_killed_del_is_undone_by_del() {
    trials::pooled("DEL", trials::KILLED);
}

#[test]
fn pod_with_a_pooled_address_killed_del_is_undone_by_gc() {
    trials::pooled("DEL", trials::COLLECTED);
}

#[test]
fn macvlan_with_dhcp_add_can_stop_anywhere() {
    needs!(Dnsmasq);
    trials::add("dhcp");
}

#[test]
fn macvlan_with_dhcp_del_can_stop_anywhere() {
    needs!(Dnsmasq);
    trials::del("dhcp");
}

#[test]
fn add_and_del_do_not_wait_for_a_disk() {
    for plugin in [
        "bridge",
        "foreign",
        "full-chain",
        "ports-by-ebpf",
        "shaped-macvlan",
        "ptp",
    ] {
        trials::no_sync(plugin);
    }
}

#[test]
fn pod_with_three_networks_does_not_wait_for_a_disk() {
    trials::no_sync("pod");
}

#[test]
fn dummy_add_can_stop_anywhere() {
    needs!(Dummy);
    trials::add("dummy");
}

#[test]
fn dummy_del_can_stop_anywhere() {
    needs!(Dummy);
    trials::del("dummy");
}

#[test]
fn tap_add_can_stop_anywhere() {
    trials::add("tap");
}

#[test]
fn tap_del_can_stop_anywhere() {
    trials::del("tap");
}

#[test]
fn host_device_add_can_stop_anywhere() {
    trials::add("host-device");
}

#[test]
fn host_device_del_can_stop_anywhere() {
    trials::del("host-device");
}

#[test]
fn vlan_add_can_stop_anywhere() {
    needs!(Vlan);
    trials::add("vlan");
}

#[test]
fn vlan_del_can_stop_anywhere() {
    needs!(Vlan);
    trials::del("vlan");
}

#[test]
fn vxlan_add_can_stop_anywhere() {
    needs!(Vxlan);
    trials::add("vxlan");
}

#[test]
fn vxlan_del_can_stop_anywhere() {
    needs!(Vxlan);
    trials::del("vxlan");
}

#[test]
fn ptp_routed_add_can_stop_anywhere() {
    trials::add("ptp-routed");
}

#[test]
fn ptp_routed_del_can_stop_anywhere() {
    trials::del("ptp-routed");
}

#[test]
fn flannel_add_can_stop_anywhere() {
    trials::add("flannel");
}

#[test]
fn flannel_del_can_stop_anywhere() {
    trials::del("flannel");
}

#[test]
fn sbr_add_can_stop_anywhere() {
    trials::add("sbr");
}

#[test]
fn sbr_del_can_stop_anywhere() {
    trials::del("sbr");
}

#[test]
fn vrf_add_can_stop_anywhere() {
    needs!(Vrf);
    trials::add("vrf");
}

#[test]
fn vrf_del_can_stop_anywhere() {
    needs!(Vrf);
    trials::del("vrf");
}
