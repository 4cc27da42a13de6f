//! An MTU outside the bounds of its link. braid refuses it before any change, with an error that
//! names it.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};

fn list(plugins: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins})
}

/// Creates a node that has a link `lan` with an MTU of 1500 bytes.
fn node() -> Sandbox {
    let host = Sandbox::new();
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    host
}

#[track_caller]
fn refused(host: &Sandbox, call: &Call, words: &[&str]) {
    let before = host.state();
    call.add().refused(7, words);
    before
        .without_marks()
        .assert_same(&host.state().without_marks());
    host.assert_nothing_left();
}

#[test]
fn the_error_names_the_bounds_of_the_link_kind() {
    let host = node();
    let pod = host.pod("a");
    for (plugin, conf) in [
        ("bridge", conf::bridge()),
        ("bridge", conf::bridge_l2()),
        ("ptp", conf::ptp()),
    ] {
        for mtu in [-1, 67, 65_536] {
            let call = host.call(plugin, &pod, conf.clone()).with("mtu", mtu);
            refused(
                &host,
                &call,
                &[&format!("\"mtu\": {mtu} is outside 68-65535")],
            );
        }
    }
    for mtu in [-1, 67, 1501] {
        let call = host.call("macvlan", &pod, conf::macvlan()).with("mtu", mtu);
        refused(
            &host,
            &call,
            &[
                &format!("\"mtu\": {mtu} is outside 68-1500"),
                "master \"lan\"",
            ],
        );
    }
    for (least, most, conf) in [(68, 65_535, conf::bridge()), (68, 1500, conf::macvlan())] {
        for mtu in [least, most] {
            let plugin = conf["type"].as_str().unwrap_or_default().to_owned();
            let call = host.call(&plugin, &pod, conf.clone()).with("mtu", mtu);
            call.add().result();
            assert_eq!(pod.the_link("eth0")["mtu"], mtu);
            call.del().ok();
        }
    }
}

#[test]
fn tuning_names_the_bounds_of_an_existing_or_planned_link() {
    let host = node();
    let pod = host.pod("a");
    let by = [
        json!({"type": "tuning", "mtu": 67}),
        json!({"type": "tuning", "args": {"cni": {"mtu": 67}}}),
    ];
    for tuning in by {
        let call = host.call("braid", &pod, list(&json!([conf::bridge(), tuning])));
        refused(&host, &call, &["\"mtu\": 67 is outside 68-65535"]);
    }
    let call = host.call(
        "braid",
        &pod,
        list(&json!([conf::macvlan(), {"type": "tuning", "mtu": 1501}])),
    );
    refused(&host, &call, &["\"mtu\": 1501 is outside 68-1500"]);
    pod.run("ip link add eth0 type bridge");
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mtu", 65_536);
    refused(&host, &call, &["\"mtu\": 65536 is outside 68-65535"]);
}

#[test]
fn an_ipv6_address_needs_1280_bytes() {
    let host = node();
    let pod = host.pod("a");
    let six = json!({"type": "host-local", "ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00:3::/64"}]]});
    let words = ["1279", "1280", "fd00:3::"];
    for conf in [conf::bridge(), conf::ptp(), conf::macvlan()] {
        let plugin = conf["type"].as_str().unwrap_or_default().to_owned();
        let call = host
            .call(&plugin, &pod, conf.clone())
            .with("ipam", six.clone());
        refused(&host, &call.clone().with("mtu", 1279), &words);
        let tuned = list(&json!([call_conf(&conf, &six), {"type": "tuning", "mtu": 1279}]));
        refused(&host, &host.call("braid", &pod, tuned), &words);
        call.clone().with("mtu", 1280).add().result();
        call.del().ok();
    }
    host.run("ip link set lan mtu 1279");
    let call = host
        .call("macvlan", &pod, conf::macvlan())
        .with("ipam", six);
    refused(&host, &call, &words);
    assert_eq!(Ns::link_names(&pod), Vec::<String>::new());
}

fn call_conf(conf: &Value, ipam: &Value) -> Value {
    let mut conf = conf.clone();
    conf["ipam"] = ipam.clone();
    conf
}
