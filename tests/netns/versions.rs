//! Every version of the CNI specification: the layout of results, and results that a version cannot
//! represent.

use crate::conf;
use braid_tests::{Sandbox, Value, json};

const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

#[test]
fn the_result_has_the_layout_of_the_configured_version() {
    for version in VERSIONS {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("cniVersion", version)
            .with("ipam", conf::dual_stack());
        let result = call.add().result();
        assert_eq!(result["cniVersion"], version);
        let keys: Vec<&str> = result
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        match version {
            "0.1.0" | "0.2.0" => {
                assert_eq!(keys, ["cniVersion", "dns", "ip4", "ip6"], "{version}");
                assert_eq!(
                    result["ip4"],
                    json!({"ip": "10.1.0.2/24", "gateway": "10.1.0.1"})
                );
            }
            "0.3.0" | "0.3.1" | "0.4.0" => {
                assert_eq!(
                    keys,
                    ["cniVersion", "dns", "interfaces", "ips"],
                    "{version}"
                );
                assert_eq!(
                    (&result["ips"][0]["version"], &result["ips"][1]["version"]),
                    (&json!("4"), &json!("6"))
                );
            }
            _ => {
                assert_eq!(keys, ["cniVersion", "interfaces", "ips"], "{version}");
                assert_eq!(result["ips"][0].get("version"), None);
            }
        }
        call.prev(&result).del().ok();
        host.assert_nothing_left();
    }
}

#[test]
fn a_prev_result_is_accepted_with_and_without_its_own_version() {
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("cniVersion", version);
        let mut result = call.add().result();
        call.check(&result).ok();
        result.as_object_mut().unwrap().remove("cniVersion");
        call.check(&result).ok();
    }
}

#[test]
fn a_prev_result_of_another_version_family_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("cniVersion", "0.4.0");
    call.add().result();
    let before = host.state();
    let prev = json!({"cniVersion": "1.0.0", "ips": []});
    call.check(&prev)
        .refused(6, &["could not parse prevResult", "\"1.0.0\""]);
    before.assert_same(&host.state());
}

#[test]
fn verbs_unknown_to_a_version_are_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for version in VERSIONS {
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("cniVersion", version);
        if version < "0.4.0" {
            call.run("CHECK")
                .refused(1, &["config version does not allow CHECK"]);
        }
        if version < "1.1.0" {
            call.run("GC")
                .refused(1, &["config version does not allow GC"]);
            call.run("STATUS")
                .refused(1, &["config version does not allow STATUS"]);
        } else {
            call.run("GC").ok();
            call.run("STATUS").ok();
        }
    }
}

#[test]
fn results_that_a_version_cannot_represent_are_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    for version in ["0.1.0", "0.2.0"] {
        let l2 = host
            .call("bridge", &pod, conf::bridge_l2())
            .with("cniVersion", version);
        assert!(
            l2.add()
                .error()
                .msg
                .contains("cannot convert: no valid IP addresses")
        );
        l2.del().ok();
        let ranges = json!({"type": "host-local", "ranges":
            [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}], [{"subnet": "fd00:2::/64"}]]});
        let three = host
            .call("bridge", &pod, conf::bridge())
            .with("cniVersion", version)
            .with("ipam", ranges);
        let sentence =
            format!("CNI version {version} does not support more than 1 address per family");
        three.add().refused(7, &[&sentence]);
        three.del().ok();
    }
    before.assert_same(&host.state());
}

#[test]
fn an_unknown_version_is_refused_with_the_supported_ones() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for version in ["1.0", "0.3.2", "2.0.0"] {
        let call = host
            .call("bridge", &pod, conf::bridge())
            .with("cniVersion", version);
        call.add()
            .refused(1, &["incompatible CNI versions", version, "\"1.1.0\""]);
    }
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("cniVersion", Value::Null);
    assert_eq!(
        call.add().result()["cniVersion"],
        "0.1.0",
        "no version at all is the oldest"
    );
}
