//! Handover of a node: one implementation detaches the other's attachments, with libcni's cache in
//! between.

use crate::cnitool::{Form, Node, Plugins, conflist};
use crate::program::needs_programs;
use braid_tests::{json, needs};

#[test]
fn braid_checks_and_detaches_attachments_of_the_reference_plugins() {
    needs_programs!("cnitool");
    needs!(Reference);
    let node = changes_hands(Plugins::Reference, Plugins::Braid);
    node.assert_nothing_left();
}

#[test]
fn reference_plugins_check_and_detach_attachments_of_braid() {
    needs_programs!("cnitool");
    needs!(Reference);
    let node = changes_hands(Plugins::Braid, Plugins::Reference);
    assert_eq!(node.link_names(), ["wan", "br0"]);
    // State that only braid knows, its record and its masquerading, stays until braid's next GC.
    let other = node.pod("other");
    node.ok(Plugins::Braid, "gc", &other);
    node.assert_nothing_left();
}

/// Attaches, checks and detaches a container by each implementation on one node; both containers
/// end.
fn changes_hands(from: Plugins, to: Plugins) -> Node {
    let mut conflist = conflist(Form::Names, "1.1.0");
    // Only a sysctl: the reference plugin's backup of changed attributes is a separate subject.
    conflist["plugins"][1] = json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}});
    let node = Node::new(conflist);
    let outside = node.outside("wan", "192.0.2.1/24", "192.0.2.2/24");
    let (old, new) = (node.pod("old"), node.pod("new"));
    let old_addr = node.add(from, &old);
    node.ok(to, "check", &old);
    let new_addr = node.add(to, &new);
    assert_ne!(old_addr, new_addr, "each sees the other's leases");
    let peer = old_addr.split('/').next().unwrap_or_default();
    assert!(new.can_ping(peer), "both are on one bridge");
    for pod in [&old, &new] {
        assert_eq!(
            pod.seen_by(&outside, "192.0.2.2").to_string(),
            "192.0.2.1",
            "{} is masqueraded",
            pod.name()
        );
    }
    node.ok(to, "del", &old);
    assert_eq!(old.link_names(), Vec::<String>::new());
    assert_eq!(new.addrs("eth0"), [new_addr], "the other stays");
    node.ok(to, "del", &new);
    node.end(&old);
    node.end(&new);
    node
}
