//! A node on which IPv6 is disabled: the IPv4 part of a configuration works, and braid reports the
//! IPv6 part.

use crate::conf;
use braid_tests::{Call, Ns, Sandbox, Value, json};
use std::path::Path;

/// Disables IPv6 by sysctl, for existing and future links.
fn off_by_sysctl(host: &Sandbox) {
    for which in ["all", "default"] {
        host.set_sysctl(&format!("net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
}

/// Makes `/proc` look as if the kernel had been started with `ipv6.disable=1`.
fn off_by_kernel(_: &Sandbox) {
    let none: Option<&str> = None;
    let at = Path::new("/proc/sys/net/ipv6");
    nix::mount::mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        none,
    )
    .unwrap();
}

fn dual(plugin: &str) -> Value {
    let mut conf = if plugin == "ptp" {
        conf::ptp()
    } else {
        conf::bridge()
    };
    conf["ipam"] = conf::dual_stack();
    conf["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]);
    conf["ipMasq"] = json!(true);
    conf
}

fn leases() -> Vec<String> {
    let entries = std::fs::read_dir("/var/lib/cni/networks/net").unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name.starts_with("10.") || name.starts_with("fd"));
    names.sort();
    names
}

#[track_caller]
fn ipv4_alone(host: &Sandbox, pod: &Ns, call: &Call, why: &str) {
    let answer = call.add();
    let result = answer.result();
    assert!(
        answer.stderr.contains(why) && answer.stderr.contains("this node has no IPv6"),
        "{}",
        answer.stderr
    );
    let ips: Vec<&str> = result["ips"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|ip| ip["address"].as_str())
        .collect();
    assert_eq!(ips, ["10.1.0.2/24"]);
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}]));
    assert_eq!(
        (leases(), pod.addrs("eth0")),
        (vec!["10.1.0.2".to_owned()], vec!["10.1.0.2/24".to_owned()])
    );
    assert!(pod.can_ping("10.1.0.1"));
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn the_ipv4_half_works_and_no_ipv6_address_is_reserved() {
    let (by_default, by_kernel) = (
        "net.ipv6.conf.default.disable_ipv6 is 1",
        "the kernel does not support it",
    );
    for plugin in ["bridge", "ptp"] {
        for (switch_off, why) in [
            (off_by_sysctl as fn(&Sandbox), by_default),
            (off_by_kernel, by_kernel),
        ] {
            let host = Sandbox::new();
            switch_off(&host);
            let pod = host.pod("a");
            ipv4_alone(&host, &pod, &host.call(plugin, &pod, dual(plugin)), why);
        }
    }
}

#[test]
fn the_sysctl_of_an_existing_bridge_counts() {
    let host = Sandbox::new();
    host.run("ip link add br0 type bridge");
    host.set_sysctl("net/ipv6/conf/br0/disable_ipv6", "1");
    let pods = ["a", "b"].map(|name| host.pod(name));
    let call = |pod: &Ns| host.call("bridge", pod, dual("bridge"));
    ipv4_alone(
        &host,
        &pods[0],
        &call(&pods[0]),
        "net.ipv6.conf.br0.disable_ipv6 is 1",
    );
    // IPv6 is enabled on this bridge, although it is disabled by default.
    host.set_sysctl("net/ipv6/conf/br0/disable_ipv6", "0");
    host.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    call(&pods[1]).add().result();
    assert!(pods[1].can_ping("fd00:1::1"));
}

#[test]
fn a_configuration_with_only_ipv6_is_refused_with_the_reason() {
    let host = Sandbox::new();
    off_by_sysctl(&host);
    let pod = host.pod("a");
    let six = [
        json!({"type": "host-local", "subnet": "fd00:1::/64"}),
        json!({"type": "static", "addresses": [{"address": "fd00:1::5/64"}]}),
    ];
    for (plugin, ipam) in [("bridge", &six[0]), ("bridge", &six[1]), ("ptp", &six[0])] {
        let conf = if plugin == "ptp" {
            conf::ptp()
        } else {
            conf::bridge()
        };
        let before = host.state();
        let words = [
            "all addresses are IPv6",
            "net.ipv6.conf.default.disable_ipv6 is 1",
        ];
        host.call(plugin, &pod, conf)
            .with("ipam", ipam.clone())
            .add()
            .refused(999, &words);
        before
            .without_marks()
            .assert_same(&host.state().without_marks());
        host.assert_nothing_left();
    }
}

#[test]
fn a_foreign_ipam_keeps_the_ipv6_address_until_del() {
    let host = Sandbox::new();
    off_by_sysctl(&host);
    let pod = host.pod("a");
    let both =
        r#"{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"},{"address":"fd00:1::2/64"}]}"#;
    host.script(
        "own-ipam",
        &format!("#!/bin/sh\n[ $CNI_COMMAND != ADD ] || echo '{both}'\n"),
    );
    let call = host
        .call("bridge", &pod, conf::bridge())
        .with("ipam", json!({"type": "own-ipam"}));
    let answer = call.add();
    assert_eq!(answer.result()["ips"].as_array().map(Vec::len), Some(1));
    assert!(
        answer.stderr.contains("this node has no IPv6"),
        "{}",
        answer.stderr
    );
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn containers_use_ipv6_among_each_other_if_the_node_is_not_the_gateway() {
    let host = Sandbox::new();
    off_by_sysctl(&host);
    let pods = ["a", "b"].map(|name| host.pod(name));
    for pod in &pods {
        pod.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
        let call = host
            .call("bridge", pod, conf::bridge())
            .with("ipam", conf::dual_stack());
        let answer = call.with("isGateway", false).add();
        assert_eq!(
            (
                answer.result()["ips"].as_array().map(Vec::len),
                answer.stderr.as_str()
            ),
            (Some(2), "")
        );
    }
    assert!(pods[0].can_ping("fd00:1::3"));
}
