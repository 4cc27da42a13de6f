//! `ipvlan`, on kernels that have it.

use crate::conf;
use crate::macvlan::assert_parent_of_same_name;
use braid_tests::{Call, Ns, Sandbox, json, needs};
use std::rc::Rc;

fn attach(host: &Sandbox, pod: &Ns) -> Call {
    host.call("ipvlan", pod, conf::macvlan())
        .with("type", "ipvlan")
}

fn lan(host: &Sandbox) -> Rc<Ns> {
    host.outside("lan", "10.3.0.253/24", "10.3.0.254/24")
}

#[test]
fn an_ipvlan_shares_its_parents_hardware_address_and_reaches_its_network() {
    needs!(Ipvlan);
    let host = Sandbox::new();
    let far = lan(&host);
    let pod = host.pod("a");
    let call = attach(&host, &pod);
    let result = call.add().result();
    assert_eq!(
        pod.the_link("eth0")["address"],
        host.the_link("lan")["address"]
    );
    assert_eq!(
        result["interfaces"][0]["mac"],
        host.the_link("lan")["address"]
    );
    assert_eq!(pod.seen_by(&far, "10.3.0.254").to_string(), "10.3.0.2");
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}

#[test]
fn the_parent_may_have_the_name_of_the_interface() {
    needs!(Ipvlan);
    assert_parent_of_same_name("ipvlan");
}

#[test]
fn each_mode_is_set_in_the_kernel() {
    needs!(Ipvlan);
    for (mode, expected) in [("", "l2"), ("l2", "l2"), ("l3", "l3"), ("l3s", "l3s")] {
        let host = Sandbox::new();
        lan(&host);
        let pod = host.pod("a");
        let call = attach(&host, &pod)
            .with("mode", mode)
            .with("ipam", conf::dual_stack());
        let result = call.add().result();
        assert_eq!(
            pod.the_link("eth0")["linkinfo"]["info_data"]["mode"],
            expected
        );
        call.check(&result).ok();
    }
}

#[test]
fn another_mode_is_refused_by_name() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let before = host.state();
    attach(&host, &pod)
        .with("mode", "l4")
        .add()
        .refused(7, &["unknown ipvlan mode: \"l4\""]);
    before.assert_same(&host.state());
}

#[test]
fn chained_without_a_master_it_uses_the_interface_and_ips_of_prev_result() {
    needs!(Ipvlan);
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let prev = json!({"interfaces": [{"name": "lan"}], "ips": [{"address": "10.3.0.9/24"}]});
    let call = attach(&host, &pod)
        .with("master", "")
        .with("ipam", json!({}))
        .prev(&prev);
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.3.0.9/24"]);
    assert_eq!(result["interfaces"].as_array().map(Vec::len), Some(1));
    call.del().ok();
}

#[test]
fn chained_behind_several_interfaces_it_requires_a_master() {
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let prev = json!({"interfaces": [{"name": "lan"}, {"name": "eth9"}], "ips": [{"address": "10.3.0.9/24"}]});
    let before = host.state();
    let call = attach(&host, &pod)
        .with("master", "")
        .with("ipam", json!({}))
        .prev(&prev);
    call.add().refused(
        7,
        &["chained master failure. PrevResult lacks a single named interface"],
    );
    before.assert_same(&host.state());
}

#[test]
fn the_master_may_be_in_the_container() {
    needs!(Ipvlan);
    let host = Sandbox::new();
    let pod = host.pod("a");
    pod.run("ip link add lan type veth peer name far");
    let call = attach(&host, &pod).with("linkInContainer", true);
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.3.0.2/24"]);
    call.check(&result).ok();
    call.del().ok();
    assert_eq!(pod.link_names(), ["far", "lan"]);
}

#[test]
fn a_kernel_without_ipvlan_is_reported_and_nothing_is_left() {
    if braid_tests::Feature::Ipvlan.missing().is_none() {
        return;
    }
    let host = Sandbox::new();
    lan(&host);
    let pod = host.pod("a");
    let before = host.state().without_marks();
    attach(&host, &pod)
        .add()
        .refused(999, &["type ipvlan", "EOPNOTSUPP"]);
    before.assert_same(&host.state().without_marks());
    host.assert_nothing_left();
}
