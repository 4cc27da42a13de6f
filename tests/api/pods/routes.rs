//! Default routes of a pod, read from the kernel.

use super::{Node, Pod, Value, bridged, calls, json, spy};

/// Returns `<gateway> <interface> <metric>` of each default route of a pod, IPv4 first. A metric
/// that the kernel has chosen is left out.
fn defaults(pod: &Pod) -> Vec<String> {
    let of = |family: &str| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let routes = pod
            .ns
            .routes(family)
            .into_iter()
            .filter(|route| route["dst"] == "default");
        let line = |route: Value| {
            // An IPv6 route without a metric gets the metric 1024.
            let metric = route["metric"]
                .as_u64()
                .filter(|metric| *metric != 1024)
                .map(|metric| format!(" {metric}"));
            format!(
                "{} {}{}",
                text(&route["gateway"]),
                text(&route["dev"]),
                metric.unwrap_or_default()
            )
        };
        routes.map(line).collect::<Vec<_>>()
    };
    [of("-4"), of("-6")].concat()
}

/// Returns the configuration of a network: a dual-stack bridge named by `number`, with `routes` in
/// its IPAM.
fn dual(number: u8, routes: &Value) -> Value {
    let ranges = json!([[{"subnet": format!("10.{number}.0.0/24")}], [{"subnet": format!("fd00:{number}::/64")}]]);
    let ipam = json!({"type": "host-local", "ranges": ranges, "routes": routes});
    let bridge =
        json!({"type": "bridge", "bridge": format!("br{number}"), "isGateway": true, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": format!("dual{number}"), "plugins": [bridge]})
}

// Requirements C2, S26, S27, S28, S29, T15.
#[test]
fn the_default_route_belongs_to_the_network_that_requests_it() {
    let both = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    let networks = [
        ("lan", dual(1, &json!([]))),
        ("own", dual(2, &json!([{"dst": "0.0.0.0/0"}]))),
    ];
    let Some(node) = Node::new("routes", &networks) else {
        return;
    };
    Node::set_default(&dual(0, &both));
    let (v4, v6) = ("10.0.0.1 eth0", "fd00::1 eth0");
    for (pod, name, asked, expected, told) in [
        ("none", "lan", json!(null), vec![v4, v6], json!(null)),
        (
            "v4",
            "lan",
            json!(["10.1.0.1"]),
            vec!["10.1.0.1 net1", v6],
            json!(["10.1.0.1"]),
        ),
        (
            "v6",
            "lan",
            json!(["fd00:1::1"]),
            vec![v4, "fd00:1::1 net1"],
            json!(["fd00:1::1"]),
        ),
        (
            "several",
            "lan",
            json!(["10.1.0.1", "10.1.0.9", "fd00:1::1"]),
            vec!["10.1.0.1 net1 1", "10.1.0.9 net1 2", "fd00:1::1 net1 3"],
            json!(["10.1.0.1", "10.1.0.9", "fd00:1::1"]),
        ),
        (
            "empty",
            "own",
            json!([]),
            vec!["10.2.0.1 net1", v6],
            json!(["10.2.0.1"]),
        ),
    ] {
        let mut item = json!({"name": name});
        if asked.is_array() {
            item["default-route"] = asked;
        }
        let pod = node.pod(pod, &json!([item]).to_string());
        let result = pod.call.add().result();
        assert_eq!(defaults(&pod), expected, "{}", pod.name);
        pod.call.check(&result).ok();
        let status = node.status(&pod);
        assert_eq!(
            (&status[0]["default-route"], &status[1]["default-route"]),
            (&json!(null), &told),
            "{}",
            pod.name
        );
        pod.call.del().ok();
        node.assert_nothing_left(&pod);
    }
}

// Requirement C2.
#[test]
fn a_pod_without_any_default_route_gets_a_warning() {
    let Some(node) = Node::new("no-route", &[]) else {
        return;
    };
    Node::set_default(&dual(0, &json!([])));
    let pod = node.annotated("without", &json!({}));
    pod.call.add().result();
    assert_eq!(defaults(&pod), [""; 0]);
    let warned = |name: &str| {
        let of = format!("involvedObject.name={name}");
        let events = [
            "get",
            "events",
            "-n",
            "no-route",
            "--field-selector",
            &of,
            "-o",
            "jsonpath={.items[*].reason}",
        ];
        node.world.server.kubectl(&events, None)
    };
    assert_eq!(warned("without"), "NoDefaultRoute");
    let event =
        "Warning NoDefaultRoute: the pod has no default route: none of its networks provides one";
    assert_eq!(node.events(), [event]);
    pod.call.del().ok();
    // A plugin may add routes that it does not report.
    let add = [
        "link add eth0 type veth peer name eth1",
        "addr add 10.8.0.2/24 dev eth0",
        "link set eth1 up",
        "link set eth0 up",
        "route add default via 10.8.0.1",
    ];
    Node::set_default(&spy(
        "default",
        &json!({"ADD": add, "DEL": ["link del eth0"]}),
    ));
    let pod = node.annotated("silent", &json!({}));
    pod.call.add().result();
    assert_eq!(
        (warned("silent").as_str(), defaults(&pod)),
        ("", vec!["10.8.0.1 eth0".to_owned()])
    );
    pod.call.del().ok();
    calls();
    node.assert_nothing_left(&pod);
}

// Requirement S26.
#[test]
fn the_default_route_of_a_foreign_default_network_is_deleted() {
    let run = json!({
        "ADD": ["link add eth0 type veth peer name eth1", "addr add 10.8.0.2/24 dev eth0", "link set eth1 up", "link set eth0 up", "route add default via 10.8.0.1"],
        "DEL": ["link del eth0"],
    });
    let Some(node) = Node::new("foreign-routes", &[("lan", bridged(1))]) else {
        return;
    };
    Node::set_default(&spy("default", &run));
    let pod = node.pod("web", r#"[{"name":"lan","default-route":["10.1.0.1"]}]"#);
    pod.call.add().result();
    assert_eq!(defaults(&pod), ["10.1.0.1 net1"]);
    assert!(pod.ns.can_ping("10.1.0.1"));
    pod.call.del().ok();
    assert_eq!(calls().len(), 2);
    node.assert_nothing_left(&pod);
}

// Requirement S26.
#[test]
fn an_unreachable_gateway_fails_the_pod_and_leaves_nothing() {
    let Some(node) = Node::new("unreachable", &[("lan", bridged(1))]) else {
        return;
    };
    let pod = node.pod("web", r#"[{"name":"lan","default-route":["192.0.2.1"]}]"#);
    let error = pod.call.add().error();
    assert!(error.msg.contains("192.0.2.1"), "{error:?}");
    assert_eq!(node.entries(&pod), [""; 0]);
    node.assert_nothing_left(&pod);
}
