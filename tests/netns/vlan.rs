//! `vlan`, on kernels that have it.

use crate::conf;
use crate::gc_status::assert_gc_deletes_an_unlisted;
use braid_tests::{Ns, Sandbox, Service, Transport, json, needs};
use std::fs;
use std::rc::Rc;

/// Creates a host link `lan`. Returns the machine at its other end, which has 10.5.0.1 in VLAN 5.
fn lan(host: &Sandbox) -> Rc<Ns> {
    let far = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
    for command in [
        "ip link add link lan name five type vlan id 5",
        "ip addr add 10.5.0.1/24 dev five",
        "ip link set five up",
    ] {
        far.run(command);
    }
    far
}

#[test]
fn a_container_is_in_the_vlan_with_its_parents_hardware_address() {
    needs!(Vlan);
    let host = Sandbox::new();
    let far = lan(&host);
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan());
    let result = call.add().result();
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": host.the_link("lan")["address"], "sandbox": "/run/netns/a"}],
        "ips": [{"address": "10.5.0.2/24", "gateway": "10.5.0.1", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    assert_eq!(result, expected);
    assert_eq!(pod.the_link("eth0")["linkinfo"]["info_data"]["id"], 5);
    assert_eq!(
        pod.the_link("eth0")["address"],
        host.the_link("lan")["address"]
    );
    assert_eq!(pod.seen_by(&far, "10.5.0.1").to_string(), "10.5.0.2");
    call.check(&result).ok();
    for _ in 0..2 {
        call.clone().prev(&result).del().ok();
        host.assert_nothing_left();
        assert_eq!(pod.link_names(), Vec::<String>::new());
    }
}

#[test]
fn the_parent_may_have_the_name_of_the_interface() {
    needs!(Vlan);
    let host = Sandbox::new();
    host.outside("eth0", "10.3.0.253/24", "10.3.0.254/24");
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan()).with("master", "eth0");
    let result = call.add().result();
    assert_eq!(pod.link_names(), ["eth0"]);
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn an_invalid_vlan_is_refused_before_an_address_is_reserved() {
    let host = Sandbox::new();
    lan_alone(&host);
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan());
    let before = host.state();
    call.clone()
        .with("vlanId", 4095)
        .add()
        .refused(7, &["invalid VLAN ID 4095 (must be between 0 and 4094)"]);
    call.clone()
        .with("vlanId", -1)
        .add()
        .refused(7, &["invalid VLAN ID -1"]);
    call.clone().with("mtu", 1600).add().refused(
        7,
        &["\"mtu\": 1600 is outside 68-1500, the MTU of master \"lan\""],
    );
    call.clone()
        .with("mtu", -100)
        .add()
        .refused(7, &["\"mtu\": -100 is outside 68-1500"]);
    call.clone()
        .with("ipam", json!({}))
        .add()
        .refused(7, &["vlan needs an IPAM type"]);
    call.clone()
        .with("master", "none")
        .add()
        .refused(999, &["failed to lookup master \"none\""]);
    call.clone()
        .with("linkInContainer", true)
        .add()
        .refused(999, &["failed to lookup master \"lan\""]);
    call.clone()
        .with("master", "")
        .add()
        .refused(999, &["no default route interface found"]);
    before.assert_same(&host.state());
    host.run("ip link set lan down");
    let before = host.state();
    call.add().refused(999, &["master \"lan\" is down"]);
    before.assert_same(&host.state());
}

fn lan_alone(host: &Sandbox) {
    host.run("ip link add lan type veth peer name lan-far");
    host.run("ip link set lan up");
}

#[test]
fn without_a_master_the_link_of_the_default_route_is_used() {
    needs!(Vlan);
    let host = Sandbox::new();
    lan(&host);
    host.run("ip route add default via 10.3.0.254");
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan()).with("master", "");
    call.status().ok();
    let result = call.add().result();
    assert_eq!(
        pod.the_link("eth0")["address"],
        host.the_link("lan")["address"]
    );
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn the_mtu_defaults_to_the_mtu_of_the_parent() {
    needs!(Vlan);
    let host = Sandbox::new();
    lan(&host);
    host.run("ip link set lan mtu 1200");
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan());
    for (asked, expected) in [(0, 1200), (1100, 1100)] {
        call.clone().with("mtu", asked).add().result();
        assert_eq!(pod.the_link("eth0")["mtu"], expected);
        call.del().ok();
    }
}

#[test]
fn a_vlan_id_used_on_the_parent_is_refused_and_nothing_is_left() {
    needs!(Vlan);
    let host = Sandbox::new();
    lan(&host);
    let (first, second) = (host.pod("a"), host.pod("b"));
    host.call("vlan", &first, conf::vlan()).add().result();
    let before = host.state().without_marks();
    host.call("vlan", &second, conf::vlan())
        .add()
        .refused(999, &["id 5", "EEXIST"]);
    before.assert_same(&host.state().without_marks());
    host.call("vlan", &second, conf::vlan())
        .with("vlanId", 6)
        .add()
        .result();
    // host-local does not reuse a freed address immediately.
    assert_eq!(second.addrs("eth0"), ["10.5.0.4/24"]);
}

#[test]
fn check_reports_another_vlan_id() {
    needs!(Vlan);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add lan type veth peer name far");
    pod.run("ip link set lan up");
    let call = host
        .call("vlan", &pod, conf::vlan())
        .with("linkInContainer", true);
    let result = call.add().result();
    call.check(&result).ok();
    for command in [
        "ip link del eth0",
        "ip link add link lan name eth0 type vlan id 6",
        "ip addr add 10.5.0.2/24 dev eth0",
        "ip link set eth0 up",
        "ip route add default via 10.5.0.1",
    ] {
        pod.run(command);
    }
    call.check(&result).refused(999, &["has id 6, not 5"]);
    fs::remove_dir_all("/run/braid").unwrap();
    call.check(&result).refused(999, &["has id 6, not 5"]);
    call.prev(&result).del().ok();
    assert_eq!(pod.link_names(), ["far", "lan"]);
    host.assert_nothing_left();
}

#[test]
fn del_of_a_vlan_needs_no_parent_link_or_namespace() {
    needs!(Vlan);
    for gone in ["parent", "link", "namespace"] {
        let host = Sandbox::new();
        lan(&host);
        let pod = host.pod("a");
        let call = host.call("vlan", &pod, conf::vlan());
        let result = call.add().result();
        match gone {
            "parent" => drop(host.run("ip link del lan")),
            "link" => drop(pod.run("ip link del eth0")),
            _ => host.end(&pod),
        }
        for _ in 0..2 {
            call.clone().prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn gc_deletes_an_unlisted_vlan() {
    needs!(Vlan);
    let host = Sandbox::new();
    lan(&host);
    assert_gc_deletes_an_unlisted("vlan", conf::vlan(), &host);
}

#[test]
fn status_requires_the_parent_to_be_up() {
    needs!(Vlan);
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = host.call("vlan", &pod, conf::vlan());
    call.status()
        .refused(50, &["failed to lookup master \"lan\""]);
    lan_alone(&host);
    host.run("ip link set lan down");
    call.status().refused(50, &["master \"lan\" is down"]);
}

/// The node has no link in the VLAN, but the router does.
#[test]
fn a_host_port_reaches_a_container_in_a_vlan_through_a_router() {
    needs!(Vlan);
    let host = Sandbox::new();
    let far = lan(&host);
    let client = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    for ns in [&host, &*far] {
        ns.set_sysctl("net/ipv4/ip_forward", "1");
    }
    host.run("ip route add 10.5.0.0/24 via 10.3.0.254");
    far.run("ip route add 192.0.2.0/24 via 10.3.0.253");
    let pod = host.pod("a");
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    let list = json!({"cniVersion": "1.1.0", "name": "net", "type": "braid",
        "plugins": [conf::vlan(), {"type": "portmap", "capabilities": {"portMappings": true}}],
        "runtimeConfig": {"portMappings": [mapping]}});
    let call = host.call("braid", &pod, list);
    let result = call.add().result();
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
    host.assert_nothing_left();
}
