//! The agent's configuration, its watches, and the conflist of a node with networks of other
//! programs.

use super::{CONFLIST, Pair, ask, await_true, is_ready, serde_json_of};
use crate::json;
use crate::proxy::Fault;
use braid_tests::Value;
use std::fs;
use std::time::{Duration, Instant};

const FOREIGN: &str = "/etc/cni/net.d/10-other.conflist";
const TOKEN: &str = "/run/braid/api/token";
const KUBECONFIG: &str = "/etc/cni/net.d/braid.d/kubeconfig";

/// Returns the network of another program: a bridge with this range.
fn foreign(range: &str) -> String {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": range}]]});
    let bridge = json!({"type": "bridge", "bridge": "other0", "isGateway": true, "ipam": ipam});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let list = json!({"cniVersion": "0.3.1", "name": "other", "plugins": [bridge, portmap]});
    format!("{list:#}\n")
}

/// Returns the names of the tables that the agent writes.
fn tables(pair: &Pair) -> Vec<Value> {
    let listed = pair.world.sandbox.json("nft -j list tables");
    let objects = listed["nftables"].as_array().cloned().unwrap_or_default();
    let is_own = |object: &Value| object["table"]["name"] == "braid-cluster";
    objects.into_iter().filter(is_own).collect()
}

/// Sets the configuration in the `ConfigMap` of the test.
pub(super) fn configure(pair: &Pair, text: &str) {
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "braid", "namespace": pair.world.namespace},
        "data": {"config.yaml": text},
    });
    let server = pair.world.server;
    server.kubectl(&["apply", "-f", "-"], Some(&map));
}

fn network() -> Value {
    serde_json_of(CONFLIST)["plugins"][0]["plugins"][0].clone()
}

/// Returns the events on the node with this reason.
pub(super) fn events(pair: &Pair, reason: &str) -> Vec<Value> {
    let fields = format!(
        "--field-selector=regarding.name={},reason={reason}",
        pair.names[0]
    );
    let resource = "events.v1.events.k8s.io";
    let arguments = ["get", resource, "-n", "default", &fields, "-o", "json"];
    let listed = pair.world.server.kubectl(&arguments, None);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    listed["items"].as_array().cloned().unwrap_or_default()
}

#[track_caller]
fn await_body(words: &str) {
    await_true(words, || {
        ask("/readyz").is_some_and(|(_, body)| body.contains(words))
    });
}

#[test]
fn the_network_of_another_program_stays_and_becomes_the_default_network() {
    let Some(pair) = Pair::new("agent-foreign", 76) else {
        return;
    };
    let text = foreign("10.76.200.0/24");
    fs::write(FOREIGN, &text).expect("a configuration");
    let loopback = r#"{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}"#;
    fs::write("/etc/cni/net.d/05-loopback.conf", loopback).expect("a configuration");
    let _agent = pair.start_as_configured();
    await_true("readiness", is_ready);
    assert_eq!(fs::read_to_string(FOREIGN).expect("a file"), text);
    let list = serde_json_of(CONFLIST);
    let entry = &list["plugins"][0];
    assert_eq!(list["cniVersion"], "1.1.0");
    assert_eq!(list["name"], "other");
    assert_eq!(entry["type"], "braid");
    assert_eq!(entry["clusterNetwork"], FOREIGN);
    assert_eq!(
        entry["capabilities"]["io.kubernetes.cri.pod-annotations"],
        true
    );
    assert_eq!(pair.routes(), [""; 0], "its owner makes the routes");
    assert_eq!(tables(&pair), [Value::Null; 0]);
    let conf = json!({
        "cniVersion": list["cniVersion"],
        "name": list["name"],
        "type": "braid",
        "clusterNetwork": entry["clusterNetwork"],
    });
    let pod = pair.world.sandbox.pod("p");
    let call = pair.world.sandbox.call("braid", &pod, conf);
    let result = call.add().result();
    assert_eq!(result["ips"][0]["address"], "10.76.200.2/24");
    call.del().ok();
    await_true("an event", || {
        let notes = events(&pair, "ForeignNetwork");
        notes.len() == 1
            && notes[0]["note"]
                .as_str()
                .is_some_and(|note| note.contains(FOREIGN))
    });
    // Another mode is the administrator's decision.
    configure(&pair, "mode: direct");
    pair.await_routes("10.76.", &["10.76.2.0/24 via 192.0.2.2"]);
    await_true("the table", || tables(&pair).len() == 1);
    configure(&pair, "mode: auto");
    pair.await_routes("10.76.", &[]);
    await_true("no table", || tables(&pair).is_empty());
    assert_eq!(fs::read_to_string(FOREIGN).expect("a file"), text);
}

#[test]
fn a_network_that_appears_later_is_not_used_and_the_conflist_keeps_entries_of_others() {
    let Some(pair) = Pair::new("agent-late", 77) else {
        return;
    };
    let agent = pair.start();
    await_true("readiness", is_ready);
    let mut list = serde_json_of(CONFLIST);
    let chained = json!({"type": "linkerd-cni", "log_level": "info"});
    list["plugins"]
        .as_array_mut()
        .expect("a list")
        .push(chained.clone());
    fs::write(CONFLIST, list.to_string()).expect("a file");
    fs::write(FOREIGN, foreign("10.77.200.0/24")).expect("a configuration");
    agent.kill();
    let _agent = pair.start();
    await_true("an event", || !events(&pair, "ForeignNetwork").is_empty());
    await_true("readiness", is_ready);
    configure(&pair, "{type: bridge, mtu: 1400}");
    await_true("the type", || network()["type"] == "bridge");
    assert_eq!(network()["mtu"], 1400);
    assert_eq!(network()["isGateway"], true);
    let list = serde_json_of(CONFLIST);
    assert_eq!(list["name"], "pods");
    assert_eq!(list["plugins"][1], chained);
    pair.await_routes("10.77.", &["10.77.2.0/24 via 192.0.2.2"]);
}

#[test]
fn an_installation_without_an_agent_is_taken_over_with_its_network() {
    let Some(pair) = Pair::new("agent-upgrade", 78) else {
        return;
    };
    fs::write(FOREIGN, foreign("10.78.200.0/24")).expect("a configuration");
    let installed = json!({
        "cniVersion": "0.3.1",
        "name": "other",
        "loadOnlyInlinedPlugins": true,
        "plugins": [{
            "type": "braid",
            "capabilities": {"portMappings": true},
            "clusterNetwork": FOREIGN,
            "kubeconfig": KUBECONFIG,
        }],
    });
    fs::write(CONFLIST, installed.to_string()).expect("a file");
    fs::create_dir_all("/etc/cni/net.d/braid.d").expect("a folder");
    fs::write(KUBECONFIG, "{}").expect("a file");
    let _agent = pair.start_as_configured();
    await_true("readiness", is_ready);
    let list = serde_json_of(CONFLIST);
    assert_eq!(list["cniVersion"], "1.1.0");
    assert_eq!(list["plugins"][0]["clusterNetwork"], FOREIGN);
    let kubeconfig = serde_json_of(KUBECONFIG);
    assert_eq!(kubeconfig["users"][0]["user"]["tokenFile"], TOKEN);
    assert_eq!(pair.routes(), [""; 0]);
}

#[test]
fn a_wrong_configuration_is_reported_and_the_last_valid_one_stays() {
    let Some(pair) = Pair::new("agent-config", 79) else {
        return;
    };
    configure(&pair, "mtu: 100");
    let _agent = pair.start();
    let words = "mtu: 100 is not 0, or 1280 to 65535";
    await_body(words);
    assert!(!is_ready(), "there was no valid one");
    configure(&pair, "mtu: 1400");
    await_true("readiness", is_ready);
    assert_eq!(network()["mtu"], 1400);
    configure(&pair, "mtu: 100");
    await_body(words);
    assert!(is_ready(), "the valid one is in use");
    assert_eq!(network()["mtu"], 1400);
    await_true("one event with a series", || {
        let found = events(&pair, "InvalidConfiguration");
        found.len() == 1 && found[0]["series"]["count"] == 2
    });
    let server = pair.world.server;
    let namespace = &pair.world.namespace;
    server.kubectl(&["delete", "configmap", "braid", "-n", namespace], None);
    await_true("the default", || network()["mtu"] == 1500);
    assert_eq!(ask("/readyz").map(|(_, body)| body), Some("ok".to_owned()));
}

#[test]
fn a_file_can_have_the_configuration_and_the_environment_precedes_it() {
    let Some(pair) = Pair::new("agent-file", 80) else {
        return;
    };
    let path = "/run/config.yaml";
    fs::write(path, "{mtu: 1400, noMasquerade: [203.0.113.0/24]}").expect("a file");
    let agent = pair.start_with(&["--config", path, "--mode", "direct"]);
    await_true("readiness", is_ready);
    assert_eq!(network()["mtu"], 1400);
    let set = pair
        .world
        .sandbox
        .host()
        .run("nft list set inet braid-cluster inside4");
    assert!(set.contains("203.0.113.0/24"), "{set}");
    fs::write(path, "{type: bridge, log: {level: debug, format: json}}").expect("a file");
    await_true("the type", || network()["type"] == "bridge");
    assert_eq!(network()["mtu"], 1500);
    // A kernel without netkit keeps the network, and the node stays ready.
    fs::write(path, "{type: netkit}").expect("a file");
    await_true("the type or its refusal", || {
        let body = ask("/readyz").map(|(_, body)| body).unwrap_or_default();
        network()["type"] == "netkit" || body.contains("type: netkit needs netkit")
    });
    assert!(is_ready());
    agent.kill();
    fs::write(path, "").expect("a file");
    let _agent = pair.start_with(&["--config", path, "--mtu", "1300"]);
    await_true("the MTU", || network()["mtu"] == 1300);
}

#[test]
fn ranges_of_services_nodes_and_special_addresses_get_no_route() {
    let Some(pair) = Pair::new("agent-reserved", 81) else {
        return;
    };
    let services = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "agent-reserved"},
        "spec": {"cidrs": ["10.81.96.0/24"]},
    });
    let server = pair.world.server;
    server.kubectl(&["apply", "-f", "-"], Some(&services));
    // Nodes of one second are ordered by their random UIDs.
    std::thread::sleep(Duration::from_millis(1100));
    pair.create_node("agent-reserved-far", "10.81.9.0/24", "198.51.100.7");
    std::thread::sleep(Duration::from_millis(1100));
    for (number, range) in [
        "10.81.96.128/25",
        "198.51.100.0/24",
        "169.254.0.0/17",
        "126.0.0.0/7",
        "127.0.0.0/16",
        "239.1.0.0/16",
        "255.255.255.255/32",
    ]
    .iter()
    .enumerate()
    {
        pair.create_node(&format!("agent-reserved-{number}"), range, "192.0.2.66");
    }
    let _agent = pair.start();
    pair.await_routes("10.81.", &["10.81.2.0/24 via 192.0.2.2"]);
    await_true("readiness", is_ready);
    let routes = pair.routes();
    assert!(
        routes.iter().all(|route| !route.contains("192.0.2.66")),
        "{routes:?}"
    );
    await_true("events", || {
        let found = events(&pair, "IgnoredPodRange");
        let has = |words: &str| {
            found.iter().any(|event| {
                event["note"]
                    .as_str()
                    .is_some_and(|note| note.contains(words))
            })
        };
        has("10.81.96.128/25") && has("198.51.100.7") && has("126.0.0.0/7")
    });
    server.kubectl(&["delete", "servicecidr", "agent-reserved"], None);
    pair.await_routes(
        "10.81.",
        &[
            "10.81.2.0/24 via 192.0.2.2",
            "10.81.96.128/25 via 192.0.2.66",
        ],
    );
}

#[test]
fn a_server_that_accepts_and_never_answers_does_not_stop_the_agent() {
    let Some(pair) = Pair::with_faults("agent-silent", 82, vec![Fault::Silence; 3]) else {
        return;
    };
    let _agent = pair.start();
    await_true("health", || {
        ask("/healthz").is_some_and(|(status, _)| status.contains(" 200 "))
    });
    assert!(!is_ready());
    await_true("readiness", is_ready);
}

#[test]
fn an_agent_without_a_server_waits_without_a_busy_loop_and_is_ready_soon_after() {
    let Some(pair) = Pair::with_faults("agent-away", 83, vec![Fault::Cut; 24]) else {
        return;
    };
    let _agent = pair.start();
    await_body("nodes are not known yet");
    let start = Instant::now();
    await_true("readiness", is_ready);
    // Six watches with pauses of 1, 2 and 4 s send the requests.
    assert!(
        start.elapsed() > Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn lost_files_of_the_credentials_come_back_and_a_void_token_is_replaced() {
    let Some(pair) = Pair::new("agent-void", 84) else {
        return;
    };
    let namespace = pair.world.namespace.as_str();
    let server = pair.world.server;
    let account = ["create", "serviceaccount", "call", "-n", namespace];
    server.kubectl(&account, None);
    let rights = [
        "--verb=create",
        "--resource=serviceaccounts/token",
        "--resource-name=call",
    ];
    pair.grant("call", namespace, &rights);
    let map = format!("{namespace}/braid");
    let _agent = pair.start_for("call", &["--config-map", &map]);
    await_true("readiness", is_ready);
    let first = fs::read_to_string(TOKEN).expect("a token");
    fs::remove_file(TOKEN).expect("a file");
    fs::write(KUBECONFIG, "{}").expect("a file");
    // A change of the configuration leads to a comparison.
    configure(&pair, "mtu: 1401");
    await_true("the token", || {
        fs::read_to_string(TOKEN).is_ok_and(|token| token == first)
    });
    await_true("the kubeconfig", || {
        fs::read_to_string(KUBECONFIG).is_ok_and(|text| text.contains(TOKEN))
    });
    server.kubectl(&["delete", "serviceaccount", "call", "-n", namespace], None);
    server.kubectl(&account, None);
    // The token is tried every 30 seconds at most, and the server caches its answer for 10.
    std::thread::sleep(Duration::from_secs(32));
    configure(&pair, "mtu: 1402");
    await_true("another token", || {
        fs::read_to_string(TOKEN).is_ok_and(|token| token != first)
    });
}

#[test]
fn the_table_is_written_only_if_it_differs_or_is_gone() {
    let Some(pair) = Pair::new("agent-table", 85) else {
        return;
    };
    let _agent = pair.start();
    await_true("readiness", is_ready);
    // A table that is written again has another handle. Nodes of other tests change it as well.
    let is_kept = (1401..1431).any(|mtu| {
        let before = tables(&pair);
        configure(&pair, &format!("mtu: {mtu}"));
        await_true("the MTU", || network()["mtu"] == mtu);
        before.len() == 1 && tables(&pair) == before
    });
    assert!(is_kept);
    let host = pair.world.sandbox.host();
    host.run("nft flush table inet braid-cluster");
    configure(&pair, "mtu: 1453");
    await_true("the rules", || {
        let listed = host.try_run("nft list chain inet braid-cluster postrouting");
        listed.is_ok_and(|text| text.contains("masquerade"))
    });
    host.run("nft delete table inet braid-cluster");
    configure(&pair, "mtu: 1454");
    await_true("the table", || tables(&pair).len() == 1);
}

#[test]
fn a_node_without_a_range_has_an_event_and_is_ready_once_it_gets_one() {
    let Some(pair) = Pair::new("agent-rangeless", 86) else {
        return;
    };
    let name = pair.names[0].clone();
    pair.delete_node(&name);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let server = pair.world.server;
    server.kubectl(&["create", "-f", "-"], Some(&node));
    let addresses =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    let patch = format!("--patch={addresses}");
    let arguments = ["patch", "node", &name, "--subresource=status", &patch];
    server.kubectl(&arguments, None);
    let _agent = pair.start();
    await_body("has no pod range yet");
    await_true("an event", || events(&pair, "NoPodRange").len() == 1);
    assert!(!fs::exists(CONFLIST).expect("the folder is readable"));
    let patch = r#"--patch={"spec":{"podCIDR":"10.86.1.0/24","podCIDRs":["10.86.1.0/24"]}}"#;
    server.kubectl(&["patch", "node", &name, patch], None);
    await_true("readiness", is_ready);
}

#[test]
fn a_condition_that_keeps_pods_away_ends_when_the_node_is_ready_if_the_configuration_says_so() {
    let Some(pair) = Pair::new("agent-condition", 194) else {
        return;
    };
    let server = pair.world.server;
    let name = &pair.names[0];
    let set = || {
        let conditions = json!([
            {"type": "Ready", "status": "False", "reason": "a"},
            {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"},
        ]);
        let patch = format!("--patch={}", json!({"status": {"conditions": conditions}}));
        let patch = ["patch", "node", name, "--subresource=status", &patch];
        server.kubectl(&patch, None);
    };
    let condition = |kind: &str| {
        let node = server.kubectl(&["get", "node", name, "-o", "json"], None);
        let mut node: Value = serde_json::from_str(&node).expect("JSON");
        let mut found = node["status"]["conditions"].take();
        let conditions = found.as_array_mut().expect("conditions");
        conditions.retain(|condition| condition["type"] == kind);
        assert_eq!(conditions.len(), 1, "{kind}");
        let [status, reason] = ["status", "reason"].map(|key| conditions[0][key].clone());
        (status, reason)
    };
    let cleared = || condition("NetworkUnavailable") == (json!("False"), json!("BraidIsReady"));
    set();
    configure(&pair, "mode: direct");
    let _agent = pair.start_as_configured();
    await_true("readiness", is_ready);
    assert!(!cleared(), "the configuration does not say so");
    // Without the right the node is not usable.
    configure(&pair, "{mode: direct, clearNetworkUnavailable: true}");
    await_body("clear the condition NetworkUnavailable of Node");
    assert!(!is_ready() && !cleared());
    let (role, namespace) = (
        format!("{}-node", pair.world.namespace),
        &pair.world.namespace,
    );
    let right = ["--verb=patch", "--resource=nodes/status"];
    server.kubectl(
        &[&["create", "clusterrole", &role], &right[..]].concat(),
        None,
    );
    let binding = [
        "create",
        "clusterrolebinding",
        &role,
        &format!("--clusterrole={role}"),
        &format!("--serviceaccount={namespace}:agent"),
    ];
    server.kubectl(&binding, None);
    await_true("the end of the condition", cleared);
    assert_eq!(condition("Ready"), (json!("False"), json!("a")));
    await_true("readiness", is_ready);
    set();
    await_true("the end of the condition", cleared);
}
