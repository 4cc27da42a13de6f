//! Migration of a node: braid detaches attachments of the reference plugins, and the reference
//! plugins detach attachments of braid.

use crate::conf;
use braid_tests::state::tree;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use std::collections::BTreeMap;
use std::path::Path;

fn leases() -> BTreeMap<String, String> {
    tree(Path::new("/var/lib/cni"))
}

fn attach(host: &Sandbox, pod: &Ns) -> Call {
    host.call("bridge", pod, conf::bridge())
        .with("ipam", conf::dual_stack())
        .with("ipMasq", true)
}

/// Runs a fixed series of calls with braid or with the reference plugins. Returns the content of
/// host-local's data directory after each step.
fn history(is_reference: bool) -> Vec<BTreeMap<String, String>> {
    let host = Sandbox::new();
    let of = |call: Call| if is_reference { call.reference() } else { call };
    let pods = ["a", "b", "c"].map(|name| host.pod(name));
    let calls = pods.each_ref().map(|pod| of(attach(&host, pod)));
    let mut seen = Vec::new();
    for call in &calls {
        call.add().result();
        seen.push(leases());
    }
    calls[1].del().ok();
    seen.push(leases());
    calls[1].add().result();
    seen.push(leases());
    for call in &calls {
        call.del().ok();
    }
    seen.push(leases());
    seen
}

#[test]
fn the_data_directory_is_byte_identical_after_each_call() {
    needs!(Reference);
    assert_eq!(history(false), history(true));
}

#[test]
fn reference_attachments_are_checked_and_detached() {
    needs!(Reference);
    for backend in ["nftables", "iptables"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = attach(&host, &pod).with("ipMasqBackend", backend);
        let result = call.clone().reference().add().result();
        call.check(&result).ok();
        call.clone().prev(&result).del().ok();
        assert_eq!(pod.link_names(), Vec::<String>::new());
        host.assert_nothing_left();
        assert_eq!(host.link_names(), ["br0"], "{backend}");
        let rules = host.run("nft list ruleset");
        assert!(
            !rules.contains("10.1.0.2") && !rules.contains("fd00:1::2"),
            "{backend}: {rules}"
        );
    }
}

#[test]
fn macspoofchk_rules_of_the_reference_are_deleted_for_one_container() {
    needs!(Reference);
    let host = Sandbox::new();
    let pods = ["a", "b"].map(|name| host.pod(name));
    let calls = pods.each_ref().map(|pod| {
        host.call("bridge", pod, conf::bridge())
            .with("macspoofchk", true)
    });
    let results = calls
        .each_ref()
        .map(|call| call.clone().reference().add().result());
    let checked = |id: &str| {
        host.run("nft list ruleset")
            .matches(&format!("cni-br-iface-{id}-eth0"))
            .count()
    };
    assert!(checked("a") > 0 && checked("a") == checked("b"));
    let before = checked("b");
    calls[0].clone().prev(&results[0]).del().ok();
    assert_eq!((checked("a"), checked("b")), (0, before));
    // The namespace ends before DEL. The reference plugin itself would leave the rules then.
    host.end(&pods[1]);
    calls[1].clone().prev(&results[1]).del().ok();
    assert_eq!(checked("b"), 0);
}

#[test]
fn the_reference_detaches_attachments_of_braid() {
    needs!(Reference);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = attach(&host, &pod).with("ipMasq", false);
    let result = call.add().result();
    call.clone().reference().check(&result).ok();
    call.clone().reference().prev(&result).del().ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    let left: Vec<String> = host
        .leftovers()
        .into_iter()
        .filter(|left| !left.starts_with("/run/braid"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    // Only the record is left, and GC deletes it.
    call.gc(&[]).ok();
    host.assert_nothing_left();
}

#[test]
fn both_implementations_share_one_address_range() {
    needs!(Reference);
    let host = Sandbox::new();
    let mut addresses = Vec::new();
    for at in 0..6 {
        let pod = host.pod(&format!("p{at}"));
        let call = host.call("bridge", &pod, conf::bridge());
        let call = if at % 2 == 0 { call.reference() } else { call };
        addresses.push(call.add().result()["ips"][0]["address"].clone());
    }
    let expected: Vec<Value> = (2..8)
        .map(|byte| json!(format!("10.1.0.{byte}/24")))
        .collect();
    assert_eq!(addresses, expected);
}

#[test]
fn gc_keeps_reference_leases_of_running_containers() {
    needs!(Reference);
    let host = Sandbox::new();
    let (a, b) = (host.pod("a"), host.pod("b"));
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/30"});
    let attach = |pod: &Ns| {
        host.call("bridge", pod, conf::bridge())
            .with("ipam", ipam.clone())
    };
    let result = attach(&a).reference().add().result();
    attach(&b)
        .add()
        .refused(999, &["no IP addresses available"]);
    // libcni keeps this cache for every runtime. It is the only trace that attachments of the
    // reference plugins leave.
    let cached = json!({
        "kind": "cniCacheV1", "networkName": "net", "containerId": "a", "ifName": "eth0", "netns": a.path()
    });
    std::fs::create_dir_all("/var/lib/cni/results").unwrap();
    std::fs::write("/var/lib/cni/results/net-a-eth0", cached.to_string()).unwrap();
    attach(&b).run("GC").ok();
    attach(&b).gc(&[("a", "eth0")]).ok();
    attach(&a).check(&result).ok();
}

#[test]
fn an_interface_tuned_by_the_reference_is_restored() {
    needs!(Reference);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add eth0 address c2:00:00:00:00:01 type veth peer name far");
    let attributes = |pod: &Ns| {
        ["address", "mtu", "txqlen", "promiscuity"].map(|key| pod.the_link("eth0")[key].clone())
    };
    let before = attributes(&pod);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mtu", 1300)
        .with("txQLen", 500)
        .with("promisc", true);
    let call = call.with("mac", "c2:11:22:33:44:55");
    call.clone().reference().add().result();
    assert_ne!(attributes(&pod), before);
    assert_eq!(
        tree(Path::new("/run/cni/tuning")).len(),
        1,
        "the reference records its changes"
    );
    call.del().ok();
    assert_eq!(attributes(&pod), before);
    assert_eq!(tree(Path::new("/run/cni/tuning")).len(), 0);
}

#[test]
fn the_tuning_backup_of_a_deleted_interface_is_deleted() {
    needs!(Reference);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add eth0 type veth peer name far");
    let call = host.call("tuning", &pod, conf::tuning()).with("mtu", 1300);
    call.clone().reference().add().result();
    host.end(&pod);
    call.del().ok();
    assert_eq!(tree(Path::new("/run/cni/tuning")).len(), 0);
}

#[test]
fn ptp_and_macvlan_of_the_reference_are_detached() {
    needs!(Reference);
    for plugin in ["ptp", "macvlan"] {
        let host = Sandbox::new();
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        let conf = if plugin == "ptp" {
            conf::ptp()
        } else {
            conf::macvlan()
        };
        let call = host.call(plugin, &pod, conf);
        let result = call.clone().reference().add().result();
        call.check(&result).ok();
        call.prev(&result).del().ok();
        assert_eq!(pod.link_names(), Vec::<String>::new(), "{plugin}");
        host.assert_nothing_left();
        assert_eq!(host.link_names(), ["lan"], "{plugin}");
    }
}

#[test]
fn host_ports_of_the_reference_are_deleted() {
    needs!(Reference);
    for backend in ["nftables", "iptables"] {
        let host = Sandbox::new();
        let pods = ["a", "b"].map(|name| host.pod(name));
        let mut calls = Vec::new();
        for (pod, port) in pods.iter().zip([8080, 9090]) {
            let main = attach(&host, pod);
            let result = main.clone().reference().add().result();
            let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "portmap", "backend": backend});
            let mapping = json!([{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]);
            let call = host
                .call("portmap", pod, conf.clone())
                .with("runtimeConfig", json!({"portMappings": mapping}));
            call.reference().prev(&result).add().result();
            calls.push((host.call("portmap", pod, conf).prev(&result), main));
        }
        let mapped = |port: &str| host.run("nft list ruleset").contains(port);
        assert!(mapped("8080") && mapped("9090"), "{backend}");
        for ((call, main), others_stay) in calls.iter().zip([true, false]) {
            call.del().ok();
            main.del().ok();
            assert_eq!(
                (mapped("8080"), mapped("9090")),
                (false, others_stay),
                "{backend}"
            );
        }
    }
}
