//! Lost journals and damaged records, and containers without a record: a foreign plugin calls braid as
//! its IPAM.

use super::{Node, json};
use braid_tests::{Call, Ns, Value};
use std::fs;
use std::rc::Rc;

const JOURNALS: &str = "/var/lib/braid/ipam";

/// Returns a pod, and the call of a foreign plugin's IPAM for it.
fn foreign(node: &Node, name: &str, ipam: &Value) -> (Rc<Ns>, Call) {
    let (ns, call) = node.pod(name, ipam);
    (ns, alone(&call, "lan", ipam, node))
}

/// Returns the call of the IPAM of a network alone, for the container of `call`.
fn alone(call: &Call, network: &str, ipam: &Value, node: &Node) -> Call {
    let mut all = ipam.clone();
    all["type"] = "whereabouts".into();
    all["kubernetes"] = json!({"kubeconfig": node.kubeconfig});
    let conf = json!({"cniVersion": "1.1.0", "name": network, "type": "sriov", "ipam": all});
    call.clone().plugin("whereabouts").conf(conf)
}

#[test]
fn gc_frees_an_address_of_a_journal_that_was_read_back_from_the_pool() {
    let Some(node) = Node::new("whereabouts-read-back") else {
        return;
    };
    let (ipam, pool) = (json!({"range": "172.31.240.0/29"}), "172.31.240.0-29");
    let [(_a, first), (_b, second), (_c, third)] =
        ["first", "second", "third"].map(|name| foreign(&node, name, &ipam));
    first.add().result();
    second.add().result();
    fs::remove_dir_all(JOURNALS).expect("journals");
    third.add().result();
    third.del().ok();
    assert_eq!(node.entries(pool).len(), 2);
    first.gc(&[("second", "eth0")]).ok();
    let left = node.entries(pool);
    assert!(left.len() == 1 && left[0].1 == "second", "{left:?}");
    second.del().ok();
    assert_eq!(node.entries(pool), []);
}

#[test]
fn a_del_with_a_damaged_record_keeps_the_addresses_of_other_networks() {
    let Some(node) = Node::new("whereabouts-damaged") else {
        return;
    };
    let (ipam, pool) = (json!({"range": "172.31.240.8/29"}), "172.31.240.8-29");
    let (_ns, call) = node.pod("web", &ipam);
    let other = alone(&call, "vf", &ipam, &node).ifname("net2");
    call.add().result();
    other.add().result();
    let record = "/run/braid/attachments/web/eth0:lan:bridge.json";
    assert!(fs::exists(record).is_ok_and(|exists| exists));
    fs::write(record, "{").expect("damaged");
    call.del().ok();
    assert_eq!(node.entries(pool).len(), 1);
    other.del().ok();
    assert_eq!(node.entries(pool), []);
}
