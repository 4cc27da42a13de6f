//! `dummy`, on kernels that have it.

use crate::conf;
use braid_tests::{Sandbox, Service, Transport, Value, json, needs};
use std::fs;

#[test]
fn a_container_has_its_addresses_on_a_dummy_interface() {
    needs!(Dummy);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link set lo up");
    let call = host
        .call("dummy", &pod, conf::dummy())
        .with("ipam", conf::dual_stack());
    let result = call.add().result();
    let link = pod.the_link("eth0");
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": link["address"], "sandbox": "/run/netns/a"}],
        "ips": [
            {"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0},
            {"address": "fd00:1::2/64", "gateway": "fd00:1::1", "interface": 0},
        ],
    });
    assert_eq!(result, expected);
    assert_eq!(link["linkinfo"]["info_kind"], "dummy");
    let _service = Service::start(&pod, Transport::Tcp, 80);
    for address in ["10.1.0.2", "[fd00:1::2]"] {
        pod.ask(Transport::Tcp, &format!("{address}:80")).unwrap();
    }
    call.check(&result).ok();
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn a_host_link_may_have_the_same_name() {
    needs!(Dummy);
    let host = Sandbox::new();
    host.run("ip link add eth0 type dummy");
    let pod = host.pod("a");
    let call = host.call("dummy", &pod, conf::dummy());
    call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.6.0.2/24"]);
    call.del().ok();
    assert_eq!(host.link_names(), ["eth0"]);
    host.assert_nothing_left();
}

#[test]
fn a_dummy_without_an_ipam_is_refused() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let before = host.state();
    host.call("dummy", &pod, conf::dummy())
        .with("ipam", json!({}))
        .add()
        .refused(7, &["dummy needs an IPAM type"]);
    before.assert_same(&host.state());
}

#[test]
fn a_used_name_is_refused_and_the_address_is_released() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add eth0 type veth peer name other");
    let before = host.state();
    host.call("dummy", &pod, conf::dummy())
        .add()
        .refused(999, &["interface \"eth0\" already exists"]);
    before.assert_same(&host.state());
}

#[test]
fn check_reports_a_changed_interface() {
    needs!(Dummy);
    for (command, word) in [
        ("ip link set eth0 down", "eth0"),
        (
            "ip link set eth0 address c2:00:00:00:00:99",
            "c2:00:00:00:00:99",
        ),
        ("ip addr del 10.6.0.2/24 dev eth0", "10.6.0.2/24"),
    ] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host.call("dummy", &pod, conf::dummy());
        let result = call.add().result();
        pod.run(command);
        call.check(&result).refused(999, &[word]);
        fs::remove_dir_all("/run/braid").unwrap();
        call.check(&result).refused(999, &[word]);
    }
}

#[test]
fn del_needs_no_link_or_namespace_and_gc_deletes_unlisted_attachments() {
    needs!(Dummy);
    for gone in ["link", "namespace", "nothing"] {
        let host = Sandbox::new();
        let pod = host.pod("a");
        let call = host.call("dummy", &pod, conf::dummy());
        let result = call.add().result();
        match gone {
            "link" => drop(pod.run("ip link del eth0")),
            "namespace" => host.end(&pod),
            _ => call.gc(&[]).ok(),
        }
        for _ in 0..2 {
            call.clone().prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

/// No traffic passes a dummy, so limits have no effect. braid creates them nevertheless.
#[test]
fn limits_are_created_and_deleted_with_a_dummy() {
    needs!(Dummy);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::dummy(), {"type": "bandwidth", "capabilities": {"bandwidth": true}}],
        "runtimeConfig": {"bandwidth": limits}});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
    let root = pod.list("tc -j qdisc show dev eth0 root");
    assert!(
        root[0]["kind"] == "fq" || root[0]["kind"] == "tbf",
        "{root:?}"
    );
    call.check(&result).ok();
    call.prev(&result).del().ok();
    host.assert_nothing_left();
    assert_eq!(pod.link_names(), Vec::<String>::new());
}

#[test]
fn a_host_port_reaches_a_dummy_address_through_another_interface() {
    needs!(Dummy);
    assert_host_port_works_through_another_interface(&conf::dummy());
}

/// Asserts that a host port is forwarded to the container's address on the link `main`. The host
/// cannot reach this link directly, but through another interface of the container.
pub(crate) fn assert_host_port_works_through_another_interface(main: &Value) {
    let host = Sandbox::new();
    let client = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    let pod = host.pod("a");
    let routes =
        json!({"type": "host-local", "subnet": "10.2.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    let first = host
        .call("ptp", &pod, conf::ptp())
        .with("name", "first")
        .with("ipam", routes)
        .add()
        .result();
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [main, {"type": "portmap", "capabilities": {"portMappings": true}}],
        "runtimeConfig": {"portMappings": [mapping]}});
    let call = host.call("braid", &pod, list).ifname("net1");
    let result = call.add().result();
    let address = pod.addrs("net1")[0].split('/').next().unwrap().to_owned();
    let veth = first["interfaces"][0]["name"].as_str().unwrap();
    host.run(&format!(
        "ip route add {address}/32 via 10.2.0.2 dev {veth} onlink"
    ));
    let _service = Service::start(&pod, Transport::Tcp, 80);
    assert_eq!(
        client
            .ask(Transport::Tcp, "192.0.2.1:8080")
            .unwrap()
            .to_string(),
        "192.0.2.2"
    );
    call.check(&result).ok();
    call.prev(&result).del().ok();
}
