//! Reuse of a namespace path: the path that the namespace of one container had is now the path of
//! another container's namespace. Calls for the first container must not affect the second.

use crate::conf;
use crate::reboot::remember;
use braid_tests::{Call, Ns, Sandbox, Value, json, state};
use std::fs;
use std::rc::Rc;

/// Attaches the container `old`, ends its namespace, and attaches the container `new` with a
/// namespace at the same path. Returns both calls and the second namespace.
fn succeed(host: &Sandbox, plugin: &str, conf: &Value) -> (Call, Call, Rc<Ns>) {
    let first = host.pod("a");
    let old = host.call(plugin, &first, conf.clone()).container("old");
    old.add().result();
    let second = again(host, &first);
    let new = host.call(plugin, &second, conf.clone()).container("new");
    new.add().result();
    (old, new, second)
}

fn again(host: &Sandbox, first: &Ns) -> Rc<Ns> {
    host.end(first);
    fs::remove_file(first.path()).unwrap();
    host.pod(first.name())
}

fn confs(host: &Sandbox) -> [(&'static str, Value); 3] {
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let tuned = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::bridge(), {"type": "tuning", "mtu": 1300}]});
    [
        ("macvlan", conf::macvlan()),
        ("ptp", conf::ptp()),
        ("braid", tuned),
    ]
}

#[test]
fn gc_detach_and_del_of_a_gone_container_do_not_affect_its_successor() {
    for command in ["GC", "DEL", "detach", "gc"] {
        let host = Sandbox::new();
        for (plugin, conf) in confs(&host) {
            let (old, new, pod) = succeed(&host, plugin, &conf);
            let before = pod.noted_link("eth0");
            let braid = braid_tests::binary::braid().display();
            match command {
                "GC" => old.gc(&[("new", "eth0")]).ok(),
                "DEL" => old.del().ok(),
                "detach" => drop(host.run(&format!("{braid} detach old"))),
                _ => drop(host.run(&format!("{braid} gc"))),
            }
            assert_eq!(pod.the_link("eth0"), before, "{command} {plugin}");
            assert!(
                host.leftovers().iter().all(|left| !left.contains("old")),
                "{:?}",
                host.leftovers()
            );
            new.del().ok();
            host.assert_nothing_left();
            host.end(&pod);
            fs::remove_file(pod.path()).unwrap();
        }
    }
}

#[test]
fn a_foreign_interface_is_not_restored_for_a_gone_container() {
    let host = Sandbox::new();
    let first = host.pod("a");
    first.run("ip link add eth0 type veth peer name far");
    let tuned = |pod: &Ns, id: &str, mtu: u32| {
        host.call("tuning", pod, conf::tuning())
            .container(id)
            .with("mtu", mtu)
    };
    tuned(&first, "old", 1300).add().result();
    let second = again(&host, &first);
    second.run("ip link add eth0 type veth peer name far");
    let new = tuned(&second, "new", 1400);
    new.add().result();
    new.gc(&[("new", "eth0")]).ok();
    assert_eq!(second.the_link("eth0")["mtu"], 1400);
    new.del().ok();
    assert_eq!(second.the_link("eth0")["mtu"], 1500);
    host.assert_nothing_left();
}

#[test]
fn a_path_to_the_host_namespace_counts_as_gone() {
    let host = Sandbox::new();
    for (plugin, conf) in confs(&host) {
        let pod = host.pod("a");
        let call = host.call(plugin, &pod, conf);
        call.add().result();
        host.end(&pod);
        nix::mount::mount(
            Some("/proc/self/ns/net"),
            pod.path(),
            None::<&str>,
            nix::mount::MsFlags::MS_BIND,
            None::<&str>,
        )
        .unwrap();
        call.gc(&[]).ok();
        host.assert_nothing_left();
        nix::mount::umount2(pod.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        fs::remove_file(pod.path()).unwrap();
    }
}

#[test]
fn the_address_of_a_gone_container_is_free() {
    let host = Sandbox::new();
    let first = host.pod("a");
    let mut conf = conf::bridge();
    conf["ipam"] = json!({"type": "host-local", "subnet": "10.1.0.0/30"});
    host.call("bridge", &first, conf.clone())
        .container("old")
        .add()
        .result();
    let second = again(&host, &first);
    let new = host.call("bridge", &second, conf).container("new");
    assert_eq!(new.add().result()["ips"][0]["address"], "10.1.0.2/30");
    new.gc(&[("new", "eth0")]).ok();
    assert!(second.can_ping("10.1.0.1"));
}

#[test]
fn a_container_attached_in_another_namespace_is_not_attached_again() {
    let host = Sandbox::new();
    for (plugin, conf) in confs(&host) {
        let (here, there) = (host.pod("here"), host.pod("there"));
        let call = host.call(plugin, &here, conf.clone()).container("c");
        call.add().result();
        let again = host.call(plugin, &there, conf).container("c");
        again.add().refused(999, &["eth0", "already", "here"]);
        assert_eq!(
            (here.link_names(), there.link_names()),
            (vec!["eth0".to_owned()], Vec::new()),
            "{plugin}"
        );
        // The first namespace ends without a DEL. The kernel keeps the hardware address of a
        // macvlan for a moment.
        host.end(&here);
        if plugin != "macvlan" {
            again.add().result();
        }
        again.del().ok();
        host.assert_nothing_left();
        host.end(&there);
        for pod in [here, there] {
            fs::remove_file(pod.path()).unwrap();
        }
    }
}

#[test]
fn rules_of_a_container_with_the_same_id_in_another_network_are_kept() {
    let host = Sandbox::new();
    let (first, second) = (host.pod("a"), host.pod("b"));
    let rules = |name: &str| {
        let mut bridge = conf::bridge();
        bridge["ipMasq"] = json!(true);
        bridge["macspoofchk"] = json!(true);
        bridge["ipam"]["rangeEnd"] = json!("10.1.0.2");
        json!({"cniVersion": "1.1.0", "name": name, "type": "braid", "plugins": [bridge, {"type": "firewall"}]})
    };
    let old = host.call("braid", &first, rules("old"));
    let of_old = old.add().result();
    host.end(&first);
    // The kernel would delete the old veth a moment later.
    let _ = host.try_run(&format!(
        "ip link del {}",
        of_old["interfaces"][1]["name"].as_str().unwrap()
    ));
    let new = host.call("braid", &second, rules("new")).container("a");
    let result = new.add().result();
    let before = state::elements(&host);
    old.del().ok();
    assert_eq!(state::elements(&host), before);
    new.prev(&result).del().ok();
    host.assert_nothing_left();
}

/// Returns `conf` with masquerading and with this IPAM.
fn with_addresses(mut conf: Value, ipam: Value) -> Value {
    conf["ipMasq"] = json!(true);
    conf["ipam"] = ipam;
    conf
}

#[test]
fn a_requested_address_moves_from_a_terminated_container_to_the_next() {
    let host_local = json!({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]});
    let fixed = json!({"type": "static", "addresses": [
        {"address": "10.1.0.50/24", "gateway": "10.1.0.1"}, {"address": "fd00:1::50/64", "gateway": "fd00:1::1"}]});
    for (conf, ipam) in [
        (conf::bridge(), &host_local),
        (conf::ptp(), &host_local),
        (conf::bridge(), &fixed),
        (conf::ptp(), &fixed),
    ] {
        for (is_in_args, is_known) in [(true, true), (false, true), (true, false)] {
            let host = Sandbox::new();
            let call = |pod: &Ns| {
                let call = host.call(
                    conf["type"].as_str().unwrap(),
                    pod,
                    with_addresses(conf.clone(), ipam.clone()),
                );
                match (ipam["type"] == "static", is_in_args) {
                    (true, true) => call.with("ipam", json!({"type": "static"})).args(
                        "IgnoreUnknown=1;IP=10.1.0.50/24,fd00:1::50/64;GATEWAY=10.1.0.1,fd00:1::1",
                    ),
                    (true, false) => call,
                    (false, true) => call.args("IgnoreUnknown=1;IP=10.1.0.50"),
                    (false, false) => {
                        call.with("runtimeConfig", json!({"ips": ["10.1.0.50", "fd00:1::50"]}))
                    }
                }
            };
            let (first, second) = (host.pod("a"), host.pod("b"));
            let (old, new) = (call(&first), call(&second));
            let of_old = old.add().result();
            if !is_known {
                remember(&first);
                fs::remove_dir_all("/run/braid").unwrap();
            }
            host.end(&first);
            let result = new.add().result();
            assert_eq!(result["ips"][0]["address"], "10.1.0.50/24");
            // The kernel would delete the old veth a moment later.
            let port = |result: &Value| {
                let interfaces = result["interfaces"].as_array().unwrap().iter();
                let name = interfaces
                    .filter_map(|one| one["name"].as_str())
                    .find(|name| name.starts_with("veth"));
                name.unwrap().to_owned()
            };
            let _ = host.try_run(&format!("ip link del {}", port(&of_old)));
            let seen = || {
                (
                    state::elements(&host),
                    host.link_names(),
                    host.routes("-4"),
                    leases(),
                )
            };
            let before = seen();
            old.prev(&of_old).del().ok();
            assert_eq!(seen(), before, "{conf} {ipam} {is_in_args} {is_known}");
            assert!(second.can_ping("10.1.0.1"), "{conf} {ipam}");
            new.check(&result).ok();
            new.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

/// Returns path and content of the lease files that belong to `eth0` of container `b`, sorted.
fn leases() -> Vec<(String, String)> {
    let files = fs::read_dir("/var/lib/cni/networks/net")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut leases: Vec<_> = files
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    leases.retain(|(_, text)| text == "b\r\neth0");
    leases.sort();
    leases
}

#[test]
fn a_reused_path_does_not_keep_the_address_of_the_first_container() {
    let host = Sandbox::new();
    let first = host.pod("a");
    let call = |pod: &Ns, id: &str| {
        host.call("bridge", pod, conf::bridge())
            .container(id)
            .args("IgnoreUnknown=1;IP=10.1.0.50")
    };
    call(&first, "a").add().result();
    remember(&first);
    // After this, the attachment is only in libcni's cache, like an attachment of the reference
    // plugins.
    fs::remove_dir_all("/run/braid").unwrap();
    call(&host.pod("b"), "b")
        .add()
        .refused(999, &["requested IP address 10.1.0.50 is not available"]);
    first.run("ip link del eth0");
    // The files get a modification time of an hour ago.
    let then = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    for file in [
        "/var/lib/cni/results/net-a-eth0",
        "/var/lib/cni/networks/net/10.1.0.50",
    ] {
        fs::File::open(file).unwrap().set_modified(then).unwrap();
    }
    let second = again(&host, &first);
    call(&second, "new").add().result();
    assert_eq!(
        fs::read_to_string("/var/lib/cni/networks/net/10.1.0.50").unwrap(),
        "new\r\neth0"
    );
}
