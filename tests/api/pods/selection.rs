//! Networks, addresses and other parameters that a pod requests in its annotation.

use super::{NETWORKS, Node, Pod, Value, bridged, calls, json, spied, spy};

/// Returns a CNI result with this address and this hardware address, for a plugin to print.
fn says(ip: &str, mac: &str) -> Value {
    let interface = json!({"name": "net1", "sandbox": "/run/netns/full", "mac": mac});
    json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": ip, "interface": 0}]})
}

/// Checks that ADD of `pod` fails with error code 7 and these words before any plugin runs.
#[track_caller]
fn refuses(node: &Node, pod: &Pod, words: &[&str]) {
    pod.call
        .clone()
        .with("requireCapabilities", true)
        .add()
        .refused(7, words);
    assert_eq!((calls(), node.entries(pod)), (vec![], vec![]), "{words:?}");
    node.assert_nothing_left(pod);
}

// Requirements N4, S1, S2, S3, S4, S6, S16, S34.
#[test]
fn both_formats_attach_the_same() {
    let networks = [
        ("net.a", spy("a", &json!({}))),
        ("formats-2/b", spy("b", &json!({}))),
    ];
    let Some(node) = Node::new("formats", &[]) else {
        return;
    };
    node.world
        .server
        .kubectl(&["create", "namespace", "formats-2"], None);
    node.create_networks(&networks);
    let json = json!([
        {"name": "net.a", "namespace": "", "org.foo.x": {"any": 1}},
        {"name": "b", "namespace": "formats-2", "interface": "lan0"},
        {"name": "net.a"},
    ]);
    let texts = [
        ("names", "net.a, formats-2/b@lan0 ,\n\tnet.a,".to_owned()),
        ("json", json.to_string()),
    ];
    for (name, text) in texts {
        let pod = node.pod(name, &text);
        pod.call.add().result();
        let envs: Vec<Value> = spied().iter().map(|call| call["NETNS"].clone()).collect();
        assert!(
            envs.iter()
                .all(|netns| *netns == pod.ns.path().to_str().expect("text")),
            "{envs:?}"
        );
        assert_eq!(
            calls(),
            ["ADD a net1 spy", "ADD b lan0 spy", "ADD a net3 spy"],
            "{text}"
        );
        let entries = [
            "default eth0 true",
            "net.a net1 false",
            "formats-2/b lan0 false",
            "net.a net3 false",
        ];
        assert_eq!(node.entries(&pod), entries, "{text}");
        pod.call.del().ok();
        assert_eq!(
            calls(),
            ["DEL a net3 spy", "DEL b lan0 spy", "DEL a net1 spy"],
            "{text}"
        );
    }
}

// Requirements S5, S8, S22.
#[test]
fn an_invalid_annotation_fails_the_pod_or_is_ignored_with_an_event() {
    let Some(node) = Node::new("invalid", &[("a", spy("a", &json!({})))]) else {
        return;
    };
    let bad = [
        (
            r#"[{"name":"a"},{"name":"a","mac":"00:11"}]"#,
            r#"item 2: mac "00:11""#,
        ),
        ("[{}]", "item 1: name"),
        (
            r#"[{"name":"a","bandwidth":{"ingressBurst":1}}]"#,
            "item 1: bandwidth",
        ),
        (
            r#"[{"name":"a","default-route":[]},{"name":"a","default-route":[]}]"#,
            "item 2: default-route",
        ),
    ];
    for (number, (text, words)) in bad.iter().enumerate() {
        let pod = node.pod(&format!("web{number}"), text);
        refuses(&node, &pod, &[NETWORKS, words]);
        if number > 0 {
            continue;
        }
        pod.call
            .clone()
            .with("invalidAnnotation", "ignore")
            .add()
            .result();
        assert_eq!(
            (calls(), node.entries(&pod)),
            (vec![], vec!["default eth0 true".to_owned()])
        );
        pod.call
            .clone()
            .with("invalidAnnotation", "ignore")
            .del()
            .ok();
    }
    let events = node.events();
    for (_, words) in bad {
        let is_it = |told: &&String| {
            told.starts_with("Warning InvalidAnnotation: ") && told.contains(words)
        };
        assert!(
            events.iter().any(|told| is_it(&told)),
            "{words}: {events:?}"
        );
    }
}

// Requirements S9, S13, S17, S18, S19, S21, S23, S31.
#[test]
fn requests_of_a_pod_reach_every_capable_plugin() {
    let can = json!({"ips": true, "mac": true, "portMappings": true, "bandwidth": true, "infinibandGUID": true});
    let (ip, mac) = ("10.9.0.7/24", "02:00:00:00:00:07");
    let plugin = json!({"type": "spy", "capabilities": can, "args": {"cni": {"a": 1, "b": 2}, "x": 5}, "says": says(ip, mac)});
    let list =
        json!({"cniVersion": "1.0.0", "name": "full", "plugins": [plugin, {"type": "spy2"}]});
    let Some(node) = Node::new("asked", &[("full", list)]) else {
        return;
    };
    let asked = json!([{"name": "full", "ips": [ip], "mac": mac, "cni-args": {"b": 3, "c": "x"},
        "infiniband-guid": "24:8A:07:03:00:8d:ae:2e",
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "Udp"}, {"hostPort": 1, "containerPort": 2}],
        "bandwidth": {"ingressRate": 1_000_000_000}}]);
    let pod = node.pod("full", &asked.to_string());
    pod.call.add().result();
    let spied = spied();
    let [first, second] = [0, 1].map(|at| spied[at]["conf"].clone());
    assert_eq!(
        first["args"],
        json!({"cni": {"a": 1, "b": 3, "c": "x"}, "x": 5})
    );
    assert_eq!(second["args"], json!({"cni": {"b": 3, "c": "x"}}));
    let runtime = &first["runtimeConfig"];
    assert_eq!(
        (&runtime["ips"], &runtime["mac"]),
        (&json!([ip]), &json!(mac))
    );
    assert_eq!(runtime["infinibandGUID"], "24:8a:07:03:00:8d:ae:2e");
    let ports = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "udp"},
        {"hostPort": 1, "containerPort": 2, "protocol": "tcp"}]);
    assert_eq!(runtime["portMappings"], ports);
    let burst = runtime["bandwidth"]["ingressBurst"]
        .as_u64()
        .expect("a burst");
    assert_eq!(runtime["bandwidth"]["ingressRate"], 1_000_000_000);
    assert!(
        (512 * 1024..8 * u64::from(u32::MAX)).contains(&burst),
        "{burst}"
    );
    assert_eq!(second["runtimeConfig"], Value::Null, "it declares nothing");
    pod.call.del().ok();
}

// Requirement V3.
#[test]
fn a_plugin_that_ignores_a_request_fails_the_pod() {
    let says = says("10.9.0.8/24", "02:00:00:00:00:08");
    let deaf = spy(
        "deaf",
        &json!({"capabilities": {"ips": true, "mac": true}, "says": says}),
    );
    let Some(node) = Node::new("deaf", &[("deaf", deaf)]) else {
        return;
    };
    for (pod, asked, words) in [
        (
            "ips",
            json!({"name": "deaf", "ips": ["10.9.0.7/24"]}),
            "ips 10.9.0.7/24 was requested",
        ),
        (
            "mac",
            json!({"name": "deaf", "mac": "02:00:00:00:00:07"}),
            "mac 02:00:00:00:00:07 was requested",
        ),
    ] {
        let pod = node.pod(pod, &json!([asked]).to_string());
        let error = pod.call.add().error();
        assert!(error.msg.contains(words), "{error:?}");
        assert_eq!(calls(), ["ADD deaf net1 spy", "DEL deaf net1 spy"]);
        node.assert_nothing_left(&pod);
    }
}

// Requirements S9, S13, S21, S23.
#[test]
fn native_plugins_serve_the_requests_of_a_pod() {
    let can = json!({"ips": true, "mac": true});
    let bridge = json!({"type": "bridge", "bridge": "br1", "isGateway": true, "capabilities": can,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
    let shaped = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let mapped = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let list = json!({"cniVersion": "1.0.0", "name": "lan1", "plugins": [bridge, shaped, mapped]});
    let Some(node) = Node::new("native", &[("lan", list)]) else {
        return;
    };
    let asked = json!([{"name": "lan", "ips": ["10.1.0.77/24"], "mac": "02:00:00:00:00:77",
        "portMappings": [{"hostPort": 8080, "containerPort": 80}], "bandwidth": {"ingressRate": 1_000_000_000}}]);
    let pod = node.pod("web", &asked.to_string());
    let result = pod.call.add().result();
    assert_eq!(pod.ns.addrs("net1"), ["10.1.0.77/24"]);
    assert_eq!(pod.ns.the_link("net1")["address"], "02:00:00:00:00:77");
    let elements = braid_tests::state::elements(node.world.sandbox.host());
    assert!(
        elements.iter().any(|element| element.contains("8080")),
        "{elements:?}"
    );
    assert!(pod.ns.can_ping("10.1.0.1") && pod.ns.can_ping("10.0.0.1"));
    pod.call.check(&result).ok();
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirement S11.
#[test]
fn an_address_without_a_known_prefix_is_refused() {
    let mut fixed = bridged(2);
    fixed["plugins"][0]["ipam"] = json!({"type": "static"});
    let mut ranged = bridged(1);
    for network in [&mut fixed, &mut ranged] {
        network["plugins"][0]["capabilities"] = json!({"ips": true});
    }
    let Some(node) = Node::new("prefixless", &[("fixed", fixed), ("ranged", ranged)]) else {
        return;
    };
    let asks = |network: &str, ip: &str| json!([{"name": network, "ips": [ip]}]).to_string();
    let pod = node.pod("fixed", &asks("fixed", "10.2.0.7"));
    let error = pod.call.add().error();
    let told = format!("{} {}", error.msg, error.details);
    assert!(
        ["network prefixless/fixed", "CIDR notation", "10.2.0.7"]
            .iter()
            .all(|word| told.contains(word)),
        "{told}"
    );
    node.assert_nothing_left(&pod);
    for (name, network, ip, address) in [
        ("given", "fixed", "10.2.0.7/24", "10.2.0.7/24"),
        ("ranged", "ranged", "10.1.0.77", "10.1.0.77/24"),
    ] {
        let pod = node.pod(name, &asks(network, ip));
        pod.call.add().result();
        assert_eq!(pod.ns.addrs("net1"), [address]);
        pod.call.del().ok();
        node.assert_nothing_left(&pod);
    }
}

// Requirement S24.
#[test]
fn a_pods_requested_bandwidth_is_enforced_in_each_direction() {
    let mut lan = bridged(1);
    lan["plugins"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}));
    let Some(node) = Node::new("shaped", &[("lan", lan)]) else {
        return;
    };
    let limits = json!({"ingressRate": 20_000_000, "ingressBurst": 160_000, "egressRate": 10_000_000, "egressBurst": 160_000});
    let pod = node.pod(
        "web",
        &json!([{"name": "lan", "bandwidth": limits}]).to_string(),
    );
    let result = pod.call.add().result();
    let host = node.world.sandbox.host();
    // Headers take 4 % of the rate.
    host.assert_sends(
        &pod.ns,
        "10.1.0.2",
        0.9 * 0.956 * 2e7,
        (1.01 * 2e7, 160_000.0),
    );
    pod.ns
        .assert_sends(host, "10.1.0.1", 0.9 * 0.956 * 1e7, (1.01 * 1e7, 160_000.0));
    pod.call.check(&result).ok();
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirements S10, S13, S20, S21, S23, S31, S32.
#[test]
fn an_unsupported_request_fails_before_anything_runs() {
    let no = json!({"capabilities": {"ips": false}});
    let ips = spy("ips", &json!({"capabilities": {"ips": true}}));
    let Some(node) = Node::new("unable", &[("none", spy("none", &no)), ("ips", ips)]) else {
        return;
    };
    Node::set_default(&spy("default", &json!({})));
    let none = |key: &str, value: &Value| json!([{"name": "none", key: value}]).to_string();
    for (pod, text, words) in [
        (
            "ips",
            none("ips", &json!(["10.0.0.1/24"])),
            ["\"ips\"", "capability \"ips\""],
        ),
        (
            "mac",
            none("mac", &json!("02:00:00:00:00:01")),
            ["\"mac\"", "capability \"mac\""],
        ),
        (
            "ports",
            none(
                "portMappings",
                &json!([{"hostPort": 1, "containerPort": 2}]),
            ),
            ["\"portMappings\"", "capability \"portMappings\""],
        ),
        (
            "guid",
            none("infiniband-guid", &json!("24:8a:07:03:00:8d:ae:2e")),
            ["\"infiniband-guid\"", "capability \"infinibandGUID\""],
        ),
        (
            "rate",
            none("bandwidth", &json!({"egressRate": 1000})),
            ["\"bandwidth\"", "capability \"bandwidth\""],
        ),
        (
            "claim",
            json!([{"name": "ips", "ips": ["10.0.0.1/24"], "ipam-claim-reference": "vm"}])
                .to_string(),
            [
                "\"ips\" and \"ipam-claim-reference\"",
                "network unable/ips (item 1)",
            ],
        ),
    ] {
        refuses(&node, &node.pod(pod, &text), &words);
    }
}

// Requirement S10.
#[test]
fn braid_serves_requests_that_no_capability_declares() {
    let mac = "02:00:00:00:00:07";
    let single = |kind: &str, subnet: &str| {
        let ipam = json!({"type": "host-local", "subnet": subnet});
        json!({"cniVersion": "1.0.0", "type": kind, "master": "lo1", "ipam": ipam})
    };
    let mut fixed = bridged(2);
    fixed["plugins"][0]["ipam"] = json!({"type": "static"});
    let mut mapped = bridged(3);
    mapped["plugins"]
        .as_array_mut()
        .expect("a list")
        .push(json!({"type": "portmap"}));
    let networks = [
        ("ranged", bridged(1)),
        ("fixed", fixed),
        ("mapped", mapped),
        ("ptp", single("ptp", "10.4.0.0/24")),
        ("macvlan", single("macvlan", "10.7.0.0/24")),
    ];
    let Some(node) = Node::new("served", &networks) else {
        return;
    };
    node.world
        .sandbox
        .run("ip link add lo1 up type veth peer name lo2");
    for (network, ips, addresses) in [
        ("ranged", vec!["10.1.0.77"], vec!["10.1.0.77/24"]),
        (
            "fixed",
            vec!["10.2.0.7/24", "fd00::7/64"],
            vec!["10.2.0.7/24", "fd00::7/64"],
        ),
        ("mapped", vec!["10.3.0.77/24"], vec!["10.3.0.77/24"]),
        ("ptp", vec!["10.4.0.77"], vec!["10.4.0.77/24"]),
        ("macvlan", vec!["10.7.0.77"], vec!["10.7.0.77/24"]),
    ] {
        let mut asked = json!({"name": network, "ips": ips, "mac": mac});
        if network == "mapped" {
            asked["portMappings"] = json!([{"hostPort": 8080, "containerPort": 80}]);
        }
        let pod = node.pod(network, &json!([asked]).to_string());
        let result = pod.call.add().result();
        assert_eq!(
            (pod.ns.addrs("net1"), &pod.ns.the_link("net1")["address"]),
            (owned(&addresses), &json!(mac)),
            "{network}"
        );
        assert_eq!(node.status(&pod)[1]["mac"], mac, "{network}");
        pod.call.check(&result).ok();
        let other = node.pod(&format!("{network}-2"), &json!([asked]).to_string());
        if network == "ranged" {
            let error = other.call.add().error();
            assert!(
                error.msg.contains("10.1.0.77"),
                "the address is taken: {error:?}"
            );
        }
        pod.call.del().ok();
        assert_eq!(pod.ns.link_names(), [""; 0], "{network}");
    }
    node.world.sandbox.run("ip link del lo1");
    node.world.sandbox.assert_nothing_left();
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

// Requirement S23.
#[test]
fn a_limit_without_a_capability_is_still_enforced() {
    let Some(node) = Node::new("limited", &[("lan", bridged(1))]) else {
        return;
    };
    let limits = json!({"ingressRate": 20_000_000, "egressRate": 10_000_000});
    let pod = node.pod(
        "web",
        &json!([{"name": "lan", "bandwidth": limits}]).to_string(),
    );
    let result = pod.call.add().result();
    let host = node.world.sandbox.host();
    // The bursts are 64 KiB.
    host.assert_sends(
        &pod.ns,
        "10.1.0.2",
        0.9 * 0.956 * 2e7,
        (1.01 * 2e7, 8.0 * 65536.0),
    );
    pod.ns.assert_sends(
        host,
        "10.1.0.1",
        0.9 * 0.956 * 1e7,
        (1.01 * 1e7, 8.0 * 65536.0),
    );
    pod.call.check(&result).ok();
    pod.call.del().ok();
    node.assert_nothing_left(&pod);
}

// Requirements S9, S13.
#[test]
fn foreign_plugins_get_requests_in_cni_args_and_must_honour_them() {
    let (ip, mac) = ("10.9.0.7/24", "02:00:00:00:00:07");
    let of = |name: &str, says: Value| spy(name, &json!({"says": says}));
    let answer = |ip: &str, mac: Value| {
        let interface = json!({"name": "net1", "sandbox": "/run/netns/x", "mac": mac});
        json!({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": ip, "interface": 0}]})
    };
    let silent = |made: &str| {
        let mut network = of("silent", answer(ip, json!("")));
        network["ADD"] = json!([format!(
            "link add net1 address {made} type veth peer name other"
        )]);
        network["DEL"] = json!(["link del net1"]);
        network
    };
    let mut by_ipam = bridged(3);
    by_ipam["plugins"][0]["ipam"] = json!({"type": "spy"});
    by_ipam["plugins"][0]["says"] = json!({"cniVersion": "1.0.0", "ips": [{"address": ip}]});
    let networks = [
        ("does", of("does", answer(ip, json!(mac)))),
        ("silent", silent(mac)),
        ("ipam", by_ipam),
        (
            "other-ip",
            of("other-ip", answer("10.9.0.8/24", json!(mac))),
        ),
        (
            "other-mac",
            of("other-mac", answer(ip, json!("02:00:00:00:00:08"))),
        ),
        ("silent-other", silent("02:00:00:00:00:08")),
        ("nothing", spy("nothing", &json!({"says": null}))),
    ];
    let Some(node) = Node::new("in-args", &networks) else {
        return;
    };
    for (network, refusal) in [
        ("does", None),
        ("silent", None),
        ("ipam", None),
        (
            "other-ip",
            Some("ips 10.9.0.7/24 was requested, but the plugins returned 10.9.0.8/24"),
        ),
        (
            "other-mac",
            Some("mac 02:00:00:00:00:07 was requested, but the plugins returned 02:00:00:00:00:08"),
        ),
        (
            "silent-other",
            Some("mac 02:00:00:00:00:07 was requested, but the plugins returned 02:00:00:00:00:08"),
        ),
        (
            "nothing",
            Some("ips 10.9.0.7/24 was requested, but the plugins returned none"),
        ),
    ] {
        calls();
        let pod = node.pod(
            network,
            &json!([{"name": network, "ips": [ip], "mac": mac}]).to_string(),
        );
        let added = pod.call.add();
        let args = spied()[0]["ARGS"].as_str().expect("a text").to_owned();
        let is_behind =
            args.starts_with("IgnoreUnknown=1;") && args.ends_with(&format!(";MAC={mac};IP={ip}"));
        assert!(is_behind, "{args}");
        match refusal {
            None => {
                added.result();
                pod.call.del().ok();
            }
            Some(words) => assert!(added.error().msg.contains(words), "{:?}", added.error()),
        }
        assert_eq!(
            calls().last().map(|call| call.starts_with("DEL")),
            Some(true),
            "{network}"
        );
        node.assert_nothing_left(&pod);
    }
}

// Requirement S15.
#[test]
fn a_used_interface_name_fails_the_pod() {
    let networks = [("a", spy("a", &json!({}))), ("b", spy("b", &json!({})))];
    let Some(node) = Node::new("taken", &networks) else {
        return;
    };
    for (pod, networks, words) in [
        (
            "twice",
            "a@x,b@x",
            "network taken/b (item 2): interface x is already used",
        ),
        ("eth0", "a@eth0", "interface eth0"),
    ] {
        refuses(&node, &node.pod(pod, networks), &[words]);
    }
}

// Requirement S35.
#[test]
fn del_repeats_the_networks_of_add_despite_a_changed_annotation() {
    let networks = [
        ("a", spy("a", &json!({}))),
        ("b", spy("b", &json!({}))),
        ("lan", bridged(1)),
    ];
    let Some(node) = Node::new("edited", &networks) else {
        return;
    };
    let pod = node.pod("web", "a,lan,b");
    let result = pod.call.add().result();
    assert_eq!(calls(), ["ADD a net1 spy", "ADD b net3 spy"]);
    let annotation = format!("{NETWORKS}=b,none");
    let namespace = &node.world.namespace;
    node.world.server.kubectl(
        &[
            "annotate",
            "pod",
            "web",
            "-n",
            namespace,
            "--overwrite",
            &annotation,
        ],
        None,
    );
    node.world.server.kubectl(
        &["delete", "net-attach-def", "a", "lan", "-n", namespace],
        None,
    );
    let asked = node.requests().len();
    pod.call.check(&result).ok();
    assert_eq!(calls(), ["CHECK a net1 spy", "CHECK b net3 spy"]);
    pod.call.del().ok();
    assert_eq!(calls(), ["DEL b net3 spy", "DEL a net1 spy"]);
    assert_eq!(node.requests().len(), asked, "neither asks the API");
    node.assert_nothing_left(&pod);
}

// Requirement S36.
#[test]
fn a_generated_name_never_equals_a_requested_one() {
    let networks = [("a", spy("a", &json!({}))), ("b", spy("b", &json!({})))];
    let Some(node) = Node::new("generated", &networks) else {
        return;
    };
    let pod = node.pod("web", "a@net2,b");
    pod.call.add().result();
    let calls = calls();
    assert_eq!(calls[0], "ADD a net2 spy");
    assert!(
        calls[1].starts_with("ADD b net") && !calls[1].contains("net2"),
        "{calls:?}"
    );
    pod.call.del().ok();
}
