//! `tuning`: sysctls and attributes of an interface that another plugin created.

use crate::conf;
use braid_tests::{Ns, Sandbox, Value, json};
use std::rc::Rc;

/// Creates a container with an interface that still exists after the attachment.
fn container(host: &Sandbox) -> Rc<Ns> {
    let pod = host.pod("a");
    pod.run("ip link add eth0 address c2:00:00:00:00:01 type veth peer name far");
    pod
}

fn has(pod: &Ns, flag: &str) -> bool {
    pod.the_link("eth0")["flags"]
        .as_array()
        .is_some_and(|flags| flags.contains(&json!(flag)))
}

fn attributes(pod: &Ns) -> (Value, Value, Value, bool, bool) {
    let link = pod.the_link("eth0");
    let get = |key: &str| link[key].clone();
    (
        get("address"),
        get("mtu"),
        get("txqlen"),
        has(pod, "PROMISC"),
        has(pod, "ALLMULTI"),
    )
}

#[test]
fn each_attribute_is_set_checked_and_restored() {
    let host = Sandbox::new();
    let pod = container(&host);
    let before = attributes(&pod);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mac", "c2:11:22:33:44:55")
        .with("mtu", 1300)
        .with("txQLen", 500)
        .with("promisc", true)
        .with("allmulti", true);
    let result = call.add().result();
    assert_eq!(
        attributes(&pod),
        (
            json!("c2:11:22:33:44:55"),
            json!(1300),
            json!(500),
            true,
            true
        )
    );
    assert_eq!(result["interfaces"][0]["mac"], "c2:11:22:33:44:55");
    call.check(&result).ok();
    call.clone().prev(&result).del().ok();
    assert_eq!(attributes(&pod), before);
    host.assert_nothing_left();
}

#[test]
fn allmulti_can_be_disabled_and_is_restored() {
    let host = Sandbox::new();
    let pod = container(&host);
    pod.run("ip link set eth0 allmulticast on");
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("allmulti", false);
    call.add().result();
    assert!(!has(&pod, "ALLMULTI"));
    call.del().ok();
    assert!(has(&pod, "ALLMULTI"));
}

#[test]
fn check_names_each_changed_attribute() {
    let host = Sandbox::new();
    let pod = container(&host);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mtu", 1300)
        .with("txQLen", 500)
        .with("promisc", true)
        .with("allmulti", true)
        .with("sysctl", json!({"net.ipv4.conf.IFNAME.arp_filter": "1"}));
    let result = call.add().result();
    for (damage, repair, word) in [
        (
            "ip link set eth0 mtu 1299",
            "ip link set eth0 mtu 1300",
            "Mtu(1300)",
        ),
        (
            "ip link set eth0 txqueuelen 1",
            "ip link set eth0 txqueuelen 500",
            "TxQueueLen(500)",
        ),
        (
            "ip link set eth0 promisc off",
            "ip link set eth0 promisc on",
            "Promisc(true)",
        ),
        (
            "ip link set eth0 allmulticast off",
            "ip link set eth0 allmulticast on",
            "AllMulti(true)",
        ),
    ] {
        pod.run(damage);
        call.check(&result).refused(999, &["eth0", word]);
        pod.run(repair);
        call.check(&result).ok();
    }
    pod.set_sysctl("net/ipv4/conf/eth0/arp_filter", "0");
    call.check(&result)
        .refused(999, &["net/ipv4/conf/eth0/arp_filter", "\"0\", not \"1\""]);
}

#[test]
fn sysctls_in_both_notations_are_written_in_the_container() {
    let host = Sandbox::new();
    let pod = container(&host);
    let sysctl = json!({"net.ipv4.conf.IFNAME.arp_filter": "1", "net/core/somaxconn": "500"});
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("sysctl", sysctl);
    let on_host = host.sysctl("net/core/somaxconn");
    let result = call.add().result();
    assert_eq!(pod.sysctl("net/ipv4/conf/eth0/arp_filter"), "1");
    assert_eq!(pod.sysctl("net/core/somaxconn"), "500");
    assert_eq!(host.sysctl("net/core/somaxconn"), on_host);
    call.check(&result).ok();
}

#[test]
fn sysctls_outside_net_are_refused_before_any_change() {
    let host = Sandbox::new();
    let pod = container(&host);
    let before = host.state();
    for key in [
        "kernel.hostname",
        "net/../kernel/hostname",
        "net.ipv4..ip_forward",
        "/net/core/somaxconn",
        "net",
        "vm.swappiness",
    ] {
        let call = host
            .call("tuning", &pod, conf::tuning())
            .with("sysctl", json!({key: "x"}))
            .with("mtu", 1300);
        call.add().refused(7, &["invalid net sysctl key", key]);
    }
    before.assert_same(&host.state());
}

#[test]
fn a_duplicate_sysctl_key_is_refused() {
    let host = Sandbox::new();
    let pod = container(&host);
    let text = r#"{"cniVersion":"1.0.0","name":"n","type":"tuning","prevResult":{},
        "sysctl":{"net.core.somaxconn":"1","net.core.somaxconn":"2"}}"#;
    let call = host.call("tuning", &pod, json!({})).stdin(text);
    call.add().refused(
        7,
        &[
            "duplicated sysctl keys are not allowed",
            "net.core.somaxconn",
        ],
    );
}

#[test]
fn a_missing_or_refused_sysctl_fails_and_changes_are_rolled_back() {
    for (sysctl, word) in [
        ("net.ipv4.no_such_thing", "ENOENT"),
        ("net.core.somaxconn", "EINVAL"),
    ] {
        let host = Sandbox::new();
        let pod = container(&host);
        let before = host.state();
        let call = host
            .call("tuning", &pod, conf::tuning())
            .with("sysctl", json!({sysctl: "not a number"}));
        call.with("mtu", 1300)
            .add()
            .refused(999, &[&sysctl.replace('.', "/"), word]);
        before.assert_same(&host.state());
        host.assert_nothing_left();
    }
}

#[test]
fn a_refused_attribute_fails_and_earlier_ones_are_rolled_back() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add below type bridge");
    // The bounds that the kernel reports do not include the MTU of the parent.
    pod.run("ip link add eth0 link below type macvlan");
    let before = attributes(&pod);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mac", "c2:11:22:33:44:55")
        .with("promisc", true);
    call.with("mtu", 1501)
        .add()
        .refused(999, &["mtu 1501", "EINVAL"]);
    assert_eq!(attributes(&pod), before);
    host.assert_nothing_left();
}

#[test]
fn the_allow_list_refuses_sysctls_that_match_no_line() {
    let host = Sandbox::new();
    let pod = container(&host);
    std::fs::create_dir_all("/etc/cni/tuning").unwrap();
    let path = "/etc/cni/tuning/allowlist.conf";
    std::fs::write(
        path,
        "^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$\n\nsomaxconn\n",
    )
    .unwrap();
    let call = |key: &str| {
        host.call("tuning", &pod, conf::tuning())
            .with("sysctl", json!({key: "1"}))
    };
    call("net.ipv4.conf.IFNAME.arp_filter").add().result();
    call("net.core.somaxconn").add().result();
    let before = host.state();
    call("net.ipv4.ip_forward")
        .add()
        .refused(7, &["Sysctl net.ipv4.ip_forward is not allowed"]);
    before.assert_same(&host.state());
    std::fs::write(path, "(").unwrap();
    call("net.core.somaxconn")
        .add()
        .refused(7, &[path, "\"(\""]);
}

#[test]
fn args_cni_override_everything() {
    let host = Sandbox::new();
    let pod = container(&host);
    let cni = json!({"cni": {"mac": "c2:00:00:00:00:44", "mtu": 1280, "txQLen": 5, "promisc": true, "allmulti": true,
        "sysctl": {"net.core.somaxconn": "44"}}});
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mac", "c2:00:00:00:00:11")
        .with("mtu", 1300)
        .with("runtimeConfig", json!({"mac": "c2:00:00:00:00:33"}))
        .with("args", cni)
        .args("IgnoreUnknown=1;MAC=c2:00:00:00:00:22");
    call.add().result();
    assert_eq!(
        attributes(&pod),
        (
            json!("c2:00:00:00:00:44"),
            json!(1280),
            json!(5),
            true,
            true
        )
    );
    assert_eq!(pod.sysctl("net/core/somaxconn"), "44");
}

#[test]
fn runtime_config_then_cni_args_then_mac_set_the_hardware_address() {
    let host = Sandbox::new();
    let pod = container(&host);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("mac", "c2:00:00:00:00:11");
    let mac = || {
        pod.the_link("eth0")["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    call.add().result();
    assert_eq!(mac(), "c2:00:00:00:00:11");
    let call = call.args("IgnoreUnknown=1;MAC=c2:00:00:00:00:22");
    call.add().result();
    assert_eq!(mac(), "c2:00:00:00:00:22");
    call.with("RuntimeConfig", json!({"mac": "c2:00:00:00:00:33"}))
        .add()
        .result();
    assert_eq!(mac(), "c2:00:00:00:00:33");
}

#[test]
fn tuning_requires_prev_result() {
    let host = Sandbox::new();
    let pod = container(&host);
    let before = host.state();
    let conf = json!({"cniVersion": "1.0.0", "name": "n", "type": "tuning", "mtu": 1300});
    host.call("tuning", &pod, conf)
        .add()
        .refused(7, &["Required prevResult missing"]);
    before.assert_same(&host.state());
}

#[test]
fn a_missing_interface_is_named() {
    let host = Sandbox::new();
    let pod = container(&host);
    let call = host
        .call("tuning", &pod, conf::tuning())
        .ifname("eth9")
        .with("mtu", 1300);
    call.add().refused(999, &["\"eth9\" does not exist"]);
    host.assert_nothing_left();
}

#[test]
fn del_of_tuning_succeeds_without_link_or_namespace() {
    let host = Sandbox::new();
    let pod = container(&host);
    let call = host.call("tuning", &pod, conf::tuning()).with("mtu", 1300);
    call.add().result();
    pod.run("ip link del eth0");
    call.del().ok();
    call.del().ok();
    host.end(&pod);
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn a_sysctl_with_several_values_passes_check() {
    let host = Sandbox::new();
    let pod = container(&host);
    let sysctl = json!({"net.ipv4.ip_local_port_range": "1024 2000"});
    let call = host
        .call("tuning", &pod, conf::tuning())
        .with("sysctl", sysctl);
    let result = call.add().result();
    call.check(&result).ok();
    pod.set_sysctl("net/ipv4/ip_local_port_range", "1024 2001");
    call.check(&result)
        .refused(999, &["ip_local_port_range", "2001"]);
}
