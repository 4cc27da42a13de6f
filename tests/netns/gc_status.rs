//! The verbs GC and STATUS, which the reference plugins do not implement.

use crate::conf;
use braid_tests::feature::pretend;
use braid_tests::{Call, Feature, Ns, Sandbox, Value, binary, json};
use std::fs;
use std::process::Command;
use std::rc::Rc;

/// Attaches three containers to a bridge with masquerading.
fn three(host: &Sandbox) -> Vec<(Rc<Ns>, Call)> {
    let attach = |name: &str| {
        let pod = host.pod(name);
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("ipMasq", true)
            .with("macspoofchk", true);
        call.add().result();
        (pod, call)
    };
    ["a", "b", "c"].map(attach).into()
}

fn leases() -> Vec<String> {
    let files = fs::read_dir("/var/lib/cni/networks/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut leases: Vec<String> = files
        .filter_map(|name| name.to_str().map(str::to_owned))
        .collect();
    leases.retain(|name| name.starts_with("10."));
    leases.sort();
    leases
}

/// Asserts that GC keeps the interface of a listed attachment and deletes the interface of an
/// unlisted one.
#[track_caller]
pub(crate) fn assert_gc_deletes_an_unlisted(plugin: &str, conf: Value, host: &Sandbox) {
    let pod = host.pod("a");
    let call = host.call(plugin, &pod, conf);
    call.add().result();
    call.gc(&[("a", "eth0")]).ok();
    assert_eq!(pod.link_names(), ["eth0"]);
    call.gc(&[]).ok();
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn gc_deletes_only_unlisted_attachments() {
    let host = Sandbox::new();
    let pods = three(&host);
    let result = fs::read_to_string("/run/braid/attachments/b/eth0:net:bridge.json").unwrap();
    pods[0].1.gc(&[("b", "eth0")]).ok();
    assert_eq!(leases(), ["10.1.0.3"]);
    assert_eq!(pods[0].0.link_names(), Vec::<String>::new());
    assert_eq!(pods[1].0.link_names(), ["eth0"]);
    assert_eq!(
        fs::read_to_string("/run/braid/attachments/b/eth0:net:bridge.json").unwrap(),
        result
    );
    assert!(
        host.leftovers()
            .iter()
            .all(|left| !left.contains("net a") && !left.contains("net c"))
    );
    assert!(pods[1].0.can_ping("10.1.0.1"));
    pods[1].1.del().ok();
    host.assert_nothing_left();
}

#[test]
fn gc_accepts_both_names_of_the_list() {
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        let host = Sandbox::new();
        let pods = three(&host);
        let valid =
            json!([{"containerID": "a", "ifname": "eth0"}, {"containerID": "c", "ifname": "eth0"}]);
        pods[0].1.clone().with(key, valid).run("GC").ok();
        assert_eq!(leases(), ["10.1.0.2", "10.1.0.4"], "{key}");
    }
}

#[test]
fn gc_with_an_empty_list_deletes_everything() {
    let host = Sandbox::new();
    let pods = three(&host);
    pods[0].1.gc(&[]).ok();
    host.assert_nothing_left();
}

#[test]
fn gc_distinguishes_interfaces_of_one_container() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    call.add().result();
    call.clone().ifname("net1").add().result();
    call.gc(&[("a", "net1")]).ok();
    assert_eq!(pod.link_names(), ["net1"]);
    assert_eq!(leases(), ["10.1.0.3"]);
}

#[test]
fn gc_without_a_list_deletes_only_attachments_of_terminated_containers() {
    let host = Sandbox::new();
    let pods = three(&host);
    host.end(&pods[1].0);
    pods[0].1.run("GC").ok();
    assert_eq!(leases(), ["10.1.0.2", "10.1.0.4"]);
    assert!(pods[0].0.can_ping("10.1.0.1") && pods[2].0.can_ping("10.1.0.1"));
}

#[test]
fn gc_without_list_and_records_follows_the_cache_of_libcni() {
    let host = Sandbox::new();
    let pods = three(&host);
    fs::remove_dir_all("/run/braid").unwrap();
    fs::create_dir_all("/var/lib/cni/results").unwrap();
    for (pod, _) in &pods[..2] {
        let cached = json!({
            "kind": "cniCacheV1", "networkName": "net", "containerId": pod.name(), "ifName": "eth0", "netns": pod.path()
        });
        fs::write(
            format!("/var/lib/cni/results/net-{}-eth0", pod.name()),
            cached.to_string(),
        )
        .unwrap();
    }
    host.end(&pods[1].0);
    let list =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::bridge()]});
    for (face, conf) in [("bridge", conf::bridge()), ("braid", list)] {
        host.call(face, &pods[0].0, conf).run("GC").ok();
        assert_eq!(leases(), ["10.1.0.2", "10.1.0.4"], "{face}");
        assert!(
            pods[0].0.can_ping("10.1.0.1") && pods[2].0.can_ping("10.1.0.1"),
            "{face}"
        );
        let left = host.leftovers();
        for (id, is_kept) in [("a", true), ("b", false), ("c", true)] {
            let owner = format!("net {id} ");
            assert_eq!(
                left.iter().any(|left| left.contains(&owner)),
                is_kept,
                "{face} {id}: {left:?}"
            );
        }
    }
}

#[test]
fn gc_finds_attachments_without_a_record() {
    let host = Sandbox::new();
    let pods = three(&host);
    fs::remove_dir_all("/run/braid").unwrap();
    pods[0].1.gc(&[("b", "eth0")]).ok();
    assert_eq!(leases(), ["10.1.0.3"]);
    let left = host.leftovers();
    assert!(
        left.iter()
            .all(|left| !left.contains("net a") && !left.contains("net c")),
        "{left:?}"
    );
    let ports = host
        .link_names()
        .into_iter()
        .filter(|name| name.starts_with("veth"))
        .count();
    assert_eq!(ports, 1);
}

#[test]
fn gc_finds_attachments_without_a_record_by_a_shortened_owner() {
    let host = Sandbox::new();
    // A comment in nf_tables has room for 128 bytes, and the alias of a link for 255.
    for len in [150, 240] {
        let name = "n".repeat(len);
        let pods = ["a", "b"].map(|id| {
            let pod = host.pod(&format!("{id}{len}"));
            let mapping = json!({"hostPort": len + usize::from(id == "b"), "containerPort": 80, "protocol": "udp"});
            let bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
                "macspoofchk": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
            let portmap = json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
            let list = json!({"cniVersion": "1.1.0", "name": name, "type": "braid",
                "plugins": [bridge, portmap, {"type": "firewall"}],
                "runtimeConfig": {"portMappings": [mapping]}});
            let call = host.call("braid", &pod, list);
            let result = call.add().result();
            (pod, call, result)
        });
        fs::remove_dir_all("/run/braid").unwrap();
        let [(a, call, _), (b, other, result)] = pods;
        call.gc(&[(b.name(), "eth0")]).ok();
        assert_eq!(a.link_names(), Vec::<String>::new());
        other.check(&result).ok();
        other.gc(&[]).ok();
        host.assert_nothing_left();
    }
}

#[test]
fn gc_keeps_links_of_other_networks_and_programs() {
    let host = Sandbox::new();
    let pods = three(&host);
    let other = host.pod("x");
    let call = host
        .call("bridge", &other, conf::bridge())
        .with("name", "other")
        .with("ipMasq", true);
    let result = call.add().result();
    host.run("ip link add veth12345678 type veth peer name veth87654321");
    pods[0].1.gc(&[]).ok();
    call.check(&result).ok();
    assert!(host.link("veth12345678").is_some());
}

#[test]
fn gc_continues_after_an_error_and_reports_it() {
    let host = Sandbox::new();
    let pods = three(&host);
    // This attachment has a record with a plugin that cannot be found.
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [conf::bridge(), {"type": "gone"}]});
    host.script("gone", "#!/bin/sh\ncat >/dev/null; echo '{}'\n");
    let broken = host.pod("broken");
    let call = host.call("braid", &broken, list);
    call.add().result();
    fs::remove_file("/run/cni-bin/gone").unwrap();
    call.gc(&[])
        .refused(999, &["failed to find plugin \"gone\""]);
    pods[0].1.gc(&[]).ok();
    assert!(leases().is_empty(), "{:?}", leases());
}

#[test]
fn gc_disabled_by_the_configuration_does_nothing() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "disableGC": true, "plugins": [conf::bridge()]});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    call.gc(&[]).ok();
    call.check(&result).ok();
}

#[test]
fn status_succeeds_on_a_new_node_and_changes_nothing() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    for (plugin, conf) in [
        ("bridge", conf::bridge()),
        ("ptp", conf::ptp()),
        ("macvlan", conf::macvlan()),
    ] {
        let before = host.state();
        host.call(plugin, &pod, conf).status().ok();
        before.assert_same(&host.state());
    }
}

#[test]
fn status_of_a_full_range_succeeds_with_a_warning() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/30"});
    let call = host.call("bridge", &pod, conf::bridge()).with("ipam", ipam);
    call.add().result();
    let said = "network \"net\": no IP addresses available in range set: 10.1.0.1-10.1.0.2\n";
    // STATUS only warns: after an error the runtime would evict the containers that use the
    // addresses.
    let status = call.status();
    status.ok();
    assert_eq!(status.stderr, said);
    for format in ["table", "json"] {
        let shown = Command::new(binary::braid())
            .args(["status", "-o", format])
            .output()
            .unwrap();
        assert_eq!(
            (
                shown.status.success(),
                String::from_utf8_lossy(&shown.stderr).as_ref()
            ),
            (true, said),
            "{format}"
        );
    }
    call.del().ok();
    assert_eq!(call.status().stderr, "");
}

#[test]
fn status_of_a_missing_master_is_50_and_names_it() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("macvlan", &pod, conf::macvlan());
    call.status().refused(50, &["\"lan\""]);
    call.with("master", "")
        .status()
        .refused(50, &["no default route interface found"]);
}

#[test]
fn status_of_a_missing_kernel_feature_is_50_and_names_it() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let with = |mut conf: Value, key: &str, value: Value| {
        conf[key] = value;
        conf
    };
    let ipvlan = || with(conf::macvlan(), "type", json!("ipvlan"));
    for (feature, conf) in [
        ("veth", conf::bridge()),
        ("bridge", conf::bridge()),
        ("veth", conf::ptp()),
        ("macvlan", conf::macvlan()),
        ("ipvlan", ipvlan()),
        ("vlan", conf::vlan()),
        ("vxlan", conf::vxlan()),
        ("dummy", conf::dummy()),
        ("tun", conf::tap()),
        (
            "nf_tables masquerade",
            with(conf::bridge(), "ipMasq", json!(true)),
        ),
        (
            "nf_tables bridge",
            with(conf::bridge(), "macspoofchk", json!(true)),
        ),
        (
            "bridge vlan_filtering",
            with(conf::bridge(), "vlan", json!(5)),
        ),
    ] {
        pretend(&[], &[feature]);
        let plugin = conf["type"].as_str().unwrap().to_owned();
        host.call(&plugin, &pod, conf)
            .status()
            .refused(50, &[&plugin, feature, "not here"]);
    }
    // From here on, braid detects the kernel's real features.
    fs::remove_file("/run/braid/kernel").unwrap();
    let answer = host.call("ipvlan", &pod, ipvlan()).status();
    match Feature::Ipvlan.missing() {
        Some(_) => answer.refused(50, &["ipvlan needs ipvlan"]),
        None => answer.ok(),
    }
}

#[test]
fn status_of_an_unwritable_store_is_50_and_names_it() {
    let states = [
        ("ro", "Read-only", 0),
        ("size=4k", "No space", 4096),
        ("nr_inodes=1", "No space", 0),
    ];
    let folders = ["/run/braid/attachments", "/var/lib/cni"];
    for (folder, (options, why, used)) in folders
        .into_iter()
        .flat_map(|folder| states.map(|state| (folder, state)))
    {
        let host = Sandbox::new();
        let pod = host.pod("a");
        fs::create_dir_all(folder).unwrap();
        host.run(&format!("mount -t tmpfs -o {options} none {folder}"));
        if used > 0 {
            fs::write(format!("{folder}/used"), vec![0; used]).unwrap();
        }
        let call = host.call("bridge", &pod, conf::bridge());
        call.status().refused(50, &[folder, why]);
        let before = host.state();
        let refusal = call.add().error();
        assert!(refusal.msg.contains(folder), "{refusal:?}");
        assert_eq!(pod.link_names(), Vec::<String>::new());
        // A new folder needs no block, so a failed call may leave folders on a full tmpfs.
        if used == 0 {
            before.assert_same(&host.state());
        }
    }
}
