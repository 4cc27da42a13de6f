//! Rollback: an ADD that fails leaves nothing.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};

/// Asserts that an ADD fails with an error that contains `words`, and leaves nothing in the host,
/// the container and the files, except for shared links of the node.
fn fails_and_leaves_nothing(host: &Sandbox, pod: &Ns, call: &Call, words: &[&str]) {
    let before = pod.json("ip -j addr");
    call.add().refused(999, words);
    host.assert_nothing_left();
    assert_eq!(pod.json("ip -j addr"), before);
}

fn with_routes(routes: &Value) -> Value {
    json!({"type": "host-local", "subnet": "10.1.0.0/24", "routes": routes})
}

#[test]
fn a_route_through_an_unreachable_gateway_is_rolled_back() {
    for plugin in ["bridge", "ptp", "macvlan"] {
        let host = Sandbox::new();
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        let conf = match plugin {
            "bridge" => conf::bridge(),
            "ptp" => conf::ptp(),
            _ => conf::macvlan(),
        };
        let ipam = with_routes(&json!([{"dst": "192.0.2.0/24", "gw": "172.16.9.9"}]));
        let call = host
            .call(plugin, &pod, conf)
            .with("ipam", ipam)
            .with("ipMasq", true);
        fails_and_leaves_nothing(
            &host,
            &pod,
            &call,
            &["192.0.2.0/24", "172.16.9.9", "ENETUNREACH"],
        );
    }
}

#[test]
fn a_masquerade_element_refused_by_nf_tables_is_rolled_back() {
    let host = Sandbox::new();
    // This set has the name of braid's map, so ADD fails. The chain `whole` marks braid's table as
    // complete.
    host.run("nft add table inet braid");
    host.run("nft add chain inet braid whole");
    host.run("nft add rule inet braid whole return");
    host.run("nft add set inet braid masquerade4 { type inet_service ; }");
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipMasq", true);
    fails_and_leaves_nothing(&host, &pod, &call, &["masquerade4"]);
}

#[test]
fn a_macspoofchk_element_refused_by_nf_tables_is_rolled_back() {
    let host = Sandbox::new();
    host.run("nft add table bridge braid");
    host.run("nft add chain bridge braid whole");
    host.run("nft add rule bridge braid whole return");
    host.run("nft add set bridge braid checked { type inet_service ; }");
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("macspoofchk", true);
    fails_and_leaves_nothing(&host, &pod, &call, &["nft add element bridge braid"]);
}

#[test]
fn a_used_host_link_name_is_refused_and_its_link_is_kept() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("bridge", &pod, conf::bridge());
    let result = call.add().result();
    call.del().ok();
    let port = result["interfaces"][1]["name"].as_str().unwrap();
    host.run(&format!("ip link add {port} type bridge"));
    call.add().refused(999, &[port, "EEXIST"]);
    assert!(host.link(port).is_some(), "it is not ours to delete");
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_used_interface_name_is_refused() {
    for plugin in ["bridge", "ptp", "macvlan"] {
        let host = Sandbox::new();
        host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
        let pod = host.pod("a");
        pod.run("ip link add eth0 type veth peer name other");
        let conf = match plugin {
            "bridge" => conf::bridge(),
            "ptp" => conf::ptp(),
            _ => conf::macvlan(),
        };
        let before = host.state();
        host.call(plugin, &pod, conf)
            .add()
            .refused(999, &["\"eth0\" already exists"]);
        before.assert_same(&host.state());
    }
}

#[test]
fn a_hardware_address_refused_by_the_kernel_is_rolled_back() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let runtime = json!({"mac": "01:00:5e:00:00:01"});
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("runtimeConfig", runtime);
    fails_and_leaves_nothing(&host, &pod, &call, &["01:00:5e:00:00:01"]);
}

#[test]
fn a_second_macvlan_of_a_passthru_parent_is_refused() {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    let (a, b) = (host.pod("a"), host.pod("b"));
    let call = |pod: &Ns| {
        host.call("macvlan", pod, conf::macvlan())
            .with("mode", "passthru")
    };
    let first = call(&a);
    let result = first.add().result();
    call(&b).add().refused(999, &["mode passthru", "EINVAL"]);
    first.check(&result).ok();
    first.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_duplicate_address_is_rolled_back() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let addresses = json!([{"address": "10.1.0.5/24"}, {"address": "10.1.0.5/24"}]);
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", json!({"type": "static", "addresses": addresses}));
    fails_and_leaves_nothing(&host, &pod, &call, &["10.1.0.5/24", "EEXIST"]);
}

#[test]
fn a_retry_after_a_failure_succeeds() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let bad = with_routes(&json!([{"dst": "192.0.2.0/24", "gw": "172.16.9.9"}]));
    let call = host.call("bridge", &pod, conf::bridge());
    call.clone()
        .with("ipam", bad)
        .add()
        .refused(999, &["172.16.9.9"]);
    let result = call.add().result();
    call.check(&result).ok();
}

#[test]
fn a_killed_add_is_rolled_back_by_the_next_one() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipMasq", true);
    call.add().result();
    // This is the state after an ADD that was killed before the container's end existed: record and
    // lease exist.
    pod.run("ip link del eth0");
    let result = call.add().result();
    call.check(&result).ok();
    assert_eq!(
        host.leftovers()
            .iter()
            .filter(|left| left.contains("networks/net/10."))
            .count(),
        1
    );
    call.del().ok();
    host.assert_nothing_left();
}
