//! `loopback`: the state of `lo`.

use braid_tests::{Call, Ns, Sandbox, json};

fn loopback(host: &Sandbox, pod: &Ns) -> Call {
    host.call(
        "loopback",
        pod,
        json!({"cniVersion": "1.1.0", "name": "lo", "type": "loopback"}),
    )
    .ifname("lo")
}

fn is_up(pod: &Ns) -> bool {
    pod.the_link("lo")["flags"]
        .as_array()
        .is_some_and(|flags| flags.contains(&json!("UP")))
}

#[test]
fn lo_is_set_up_checked_and_set_down() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = loopback(&host, &pod);
    assert!(!is_up(&pod));
    let result = call.add().result();
    assert!(is_up(&pod) && pod.can_ping("127.0.0.1") && pod.can_ping("::1"));
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": "/run/netns/a"}],
        "ips": [{"address": "127.0.0.1/8", "interface": 0}, {"address": "::1/128", "interface": 0}],
    });
    assert_eq!(result, expected);
    call.check(&result).ok();
    pod.run("ip link set lo down");
    call.check(&result).refused(999, &["lo"]);
    pod.run("ip link set lo up");
    call.del().ok();
    assert!(!is_up(&pod));
    host.assert_nothing_left();
}

#[test]
fn check_needs_no_prev_result() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = loopback(&host, &pod);
    call.add().result();
    call.run("CHECK").ok();
}

#[test]
fn interface_name_and_arguments_are_ignored() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    loopback(&host, &pod)
        .ifname("eth7")
        .args("none")
        .add()
        .result();
    assert!(is_up(&pod));
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_prev_result_is_passed_on_unchanged() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.1.0.2/24", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}]});
    assert_eq!(loopback(&host, &pod).prev(&prev).add().result(), prev);
}

#[test]
fn del_of_loopback_succeeds_twice_and_without_a_namespace() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = loopback(&host, &pod);
    call.add().result();
    call.del().ok();
    call.del().ok();
    call.clone().env("CNI_NETNS", None).del().ok();
    host.end(&pod);
    call.del().ok();
}

#[test]
fn every_version_has_its_own_layout() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    for (version, has) in [
        ("0.1.0", "ip4"),
        ("0.2.0", "ip6"),
        ("0.3.1", "interfaces"),
        ("0.4.0", "ips"),
        ("1.0.0", "ips"),
    ] {
        let result = loopback(&host, &pod)
            .with("cniVersion", version)
            .add()
            .result();
        assert_eq!(result["cniVersion"], version);
        assert!(result.get(has).is_some(), "{version}: {result}");
        assert_eq!(
            result.get("interfaces").is_some(),
            version >= "0.3.0",
            "{version}: {result}"
        );
        loopback(&host, &pod).with("cniVersion", version).del().ok();
    }
}
