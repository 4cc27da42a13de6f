//! `vrf`, on kernels that have it: the interface and its routes are in a VRF of the container.

use braid_tests::feature::pretend;
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};

fn ipam(net: u8) -> Value {
    let ranges =
        json!([[{"subnet": format!("10.{net}.0.0/24")}], [{"subnet": format!("fd00:{net}::/64")}]]);
    json!({"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24"}]})
}

fn bridge(net: u8) -> Value {
    json!({"type": "bridge", "bridge": format!("br{net}"), "isGateway": true, "ipam": ipam(net)})
}

/// Returns a call for a plugin list: `bridge`, and then `vrf`.
fn in_one_call(host: &Sandbox, pod: &Ns, net: u8, vrf: &Value) -> Call {
    let name = format!("net{net}");
    let list = json!({"cniVersion": "1.1.0", "name": name, "type": "braid", "plugins": [bridge(net), vrf]});
    host.call("braid", pod, list).ifname(&name)
}

fn vrf(keys: &Value) -> Value {
    let mut vrf = json!({"type": "vrf", "vrfname": "blue"});
    for (key, value) in keys.as_object().into_iter().flatten() {
        vrf[key] = value.clone();
    }
    vrf
}

/// Returns separate calls of the plugins `bridge` and `vrf`, as libcni makes them.
fn two_calls(host: &Sandbox, pod: &Ns, net: u8, vrf: &Value) -> [Call; 2] {
    let name = format!("net{net}");
    let of = |plugin: &Value| {
        let mut conf = plugin.clone();
        conf["cniVersion"] = json!("1.1.0");
        conf["name"] = json!(name);
        host.call(plugin["type"].as_str().unwrap(), pod, conf)
            .ifname(&name)
    };
    [of(&bridge(net)), of(vrf)]
}

/// Returns the unicast routes of a table, except `fe80::/64` and `ff00::/8`, which the kernel
/// creates.
fn table(pod: &Ns, table: &str) -> Vec<String> {
    let all = ["-4", "-6"].iter().flat_map(|family| {
        let shown = pod
            .try_run(&format!("ip {family} -j route show table {table}"))
            .unwrap_or_default();
        serde_json::from_str::<Vec<Value>>(&shown).unwrap_or_default()
    });
    let own = all.filter(|route| {
        route["dst"] != "fe80::/64" && route["dst"] != "ff00::/8" && route["type"].is_null()
    });
    // Several IPv6 routes to one destination are shown as one route with several next hops.
    let ways = |route: &Value| {
        route["nexthops"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![route.clone()])
    };
    let lines = |route: Value| {
        let line = |way: Value| format!("{} {} {}", route["dst"], way["gateway"], way["dev"]);
        ways(&route).into_iter().map(line).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = own.flat_map(lines).collect();
    all.sort();
    all
}

fn expected(net: u8) -> Vec<String> {
    let line = |dst: String, gateway: Value| format!("\"{dst}\" {gateway} \"net{net}\"");
    let (v4, v6) = (
        json!(format!("10.{net}.0.1")),
        json!(format!("fd00:{net}::1")),
    );
    let mut all = vec![
        line("default".to_owned(), v4.clone()),
        line("default".to_owned(), v6),
        line(format!("10.{net}.0.0/24"), Value::Null),
        line("192.0.2.0/24".to_owned(), v4),
        line(format!("fd00:{net}::/64"), Value::Null),
    ];
    all.sort();
    all
}

fn vrf_of(pod: &Ns, link: &str) -> (Value, Value) {
    let master = pod.the_link(link)["master"].clone();
    let vrf = master.as_str().map_or(Value::Null, |name| {
        pod.the_link(name)["linkinfo"]["info_data"]["table"].clone()
    });
    (master, vrf)
}

#[test]
fn the_interface_its_addresses_and_routes_are_in_the_vrf() {
    needs!(Vrf);
    for is_one in [true, false] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let [main, behind] = two_calls(&host, &pod, 1, &vrf(&json!({})));
        let prev = if is_one {
            Value::Null
        } else {
            main.add().result()
        };
        let call = if is_one {
            in_one_call(&host, &pod, 1, &vrf(&json!({})))
        } else {
            behind.prev(&prev)
        };
        let result = call.add().result();
        assert_eq!(
            vrf_of(&pod, "net1"),
            (json!("blue"), json!(1)),
            "in one call: {is_one}"
        );
        assert_eq!(pod.addrs("net1"), ["10.1.0.2/24", "fd00:1::2/64"]);
        assert_eq!(
            (table(&pod, "1"), table(&pod, "main")),
            (expected(1), Vec::new()),
            "in one call: {is_one}"
        );
        pod.run("ping -c 1 -w 5 -I blue 10.1.0.1");
        pod.run("ping -6 -c 1 -w 5 -I blue fd00:1::1");
        call.check(&result).ok();
        if !is_one {
            assert_eq!(result, prev);
            main.check(&prev).ok();
        }
        call.del().ok();
        assert!(pod.link("blue").is_none());
        call.del().ok();
        main.del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn the_vrf_is_deleted_with_its_last_member() {
    needs!(Vrf);
    for is_one in [true, false] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let calls = [1, 2].map(|net| {
            let blue = vrf(&json!({"table": 42}));
            if is_one {
                return vec![in_one_call(&host, &pod, net, &blue)];
            }
            two_calls(&host, &pod, net, &blue).to_vec()
        });
        let attach = |calls: &[Call]| {
            let mut prev = Value::Null;
            for call in calls {
                prev = call.clone().with("prevResult", prev).add().result();
            }
        };
        for calls in &calls {
            attach(calls);
        }
        assert_eq!(
            (vrf_of(&pod, "net1"), vrf_of(&pod, "net2")),
            ((json!("blue"), json!(42)), (json!("blue"), json!(42)))
        );
        for call in calls[0].iter().rev() {
            call.del().ok();
        }
        assert_eq!(pod.link_names().len(), 2, "{:?}", pod.link_names());
        assert_eq!(vrf_of(&pod, "net2"), (json!("blue"), json!(42)));
        for call in calls[1].iter().rev() {
            call.del().ok();
        }
        assert_eq!(pod.link_names(), Vec::<String>::new());
        host.assert_nothing_left();
    }
}

#[test]
fn each_vrf_has_its_own_table_and_may_use_the_same_addresses() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link set lo up");
    pod.run("ip route add 203.0.113.0/24 dev lo table 2");
    in_one_call(&host, &pod, 1, &vrf(&json!({}))).add().result();
    let mut second = bridge(2);
    second["ipam"] = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
    let list = json!({"cniVersion": "1.1.0", "name": "net2", "type": "braid",
        "plugins": [second, {"type": "vrf", "VrfName": "red"}]});
    host.call("braid", &pod, list).ifname("net2").add().result();
    assert_eq!(
        (vrf_of(&pod, "net1"), vrf_of(&pod, "net2")),
        ((json!("blue"), json!(1)), (json!("red"), json!(3)))
    );
    assert_eq!(
        (pod.addrs("net1")[0].as_str(), pod.addrs("net2")[0].as_str()),
        ("10.1.0.2/24", "10.1.0.2/24")
    );
}

#[test]
fn two_attachments_of_one_container_share_a_vrf() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let calls = [1, 2].map(|net| in_one_call(&host, &pod, net, &vrf(&json!({}))));
    let results = calls.each_ref().map(|call| call.add().result());
    for (call, result) in calls.iter().zip(&results) {
        call.check(result).ok();
    }
    assert_eq!(table(&pod, "1").len(), 2 * expected(1).len());
    for call in &calls {
        call.del().ok();
    }
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn an_invalid_vrf_or_interface_is_refused_before_any_change() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let [main, behind] = two_calls(&host, &pod, 1, &vrf(&json!({"table": 7})));
    let prev = main.add().result();
    pod.run("ip link add blue type vrf table 9");
    pod.run("ip link add other type bridge");
    let before = host.state();
    let behind = behind.prev(&prev);
    behind.add().refused(
        999,
        &["VRF blue already exist with different routing table 9"],
    );
    behind
        .clone()
        .with("vrfname", "other")
        .add()
        .refused(999, &["Netlink other is not a VRF"]);
    behind
        .clone()
        .with("vrfname", "net1")
        .add()
        .refused(7, &["\"vrfname\"", "net1"]);
    behind
        .clone()
        .with("vrfname", "")
        .add()
        .refused(7, &["valid vrf name"]);
    behind
        .clone()
        .with("prevResult", Value::Null)
        .add()
        .refused(7, &["missing prevResult"]);
    behind
        .clone()
        .with("vrfname", "red")
        .ifname("net9")
        .add()
        .refused(999, &["net9"]);
    before.assert_same(&host.state());
    pod.run("ip link set net1 master other");
    behind
        .with("vrfname", "red")
        .add()
        .refused(999, &["interface net1 has already a master set"]);
}

#[test]
fn a_failed_add_leaves_no_vrf() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let [_, behind] = two_calls(&host, &pod, 1, &vrf(&json!({})));
    // The kernel never adds `lo` to a VRF, but it refuses only after the VRF exists.
    let prev =
        json!({"cniVersion": "1.1.0", "interfaces": [{"name": "lo", "sandbox": pod.path()}]});
    behind
        .ifname("lo")
        .prev(&prev)
        .add()
        .refused(999, &["ip link set lo master blue"]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    host.assert_nothing_left();
}

#[test]
fn check_reports_a_link_that_left_its_vrf() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = in_one_call(&host, &pod, 1, &vrf(&json!({})));
    let result = call.add().result();
    pod.run("ip link set net1 nomaster");
    call.check(&result)
        .refused(999, &["net1", "is not in VRF blue"]);
    host.run("rm -r /run/braid/attachments/a");
    call.check(&result)
        .refused(999, &["net1", "is not in VRF blue"]);
}

#[test]
fn del_of_a_vrf_needs_no_record_link_or_namespace() {
    needs!(Vrf);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let [main, behind] = two_calls(&host, &pod, 1, &vrf(&json!({})));
    let behind = behind.prev(&main.add().result());
    behind.add().result();
    host.run("rm -r /run/braid/attachments/a");
    behind.del().ok();
    assert_eq!(
        (pod.link("blue"), vrf_of(&pod, "net1")),
        (None, (Value::Null, Value::Null))
    );
    behind.add().result();
    pod.run("ip link del net1");
    behind.del().ok();
    assert!(
        pod.link("blue").is_none(),
        "a VRF without members is deleted"
    );
    behind.clone().env("CNI_NETNS", None).del().ok();
    host.end(&pod);
    behind.del().ok();
    main.del().ok();
    host.assert_nothing_left();
}

#[test]
fn status_reports_a_kernel_without_vrf() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pretend(&[], &["vrf"]);
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "vrf", "vrfname": "blue"});
    host.call("vrf", &pod, conf)
        .status()
        .refused(50, &["vrf needs vrf", "not here"]);
}
