//! A node changes hands: what one implementation attached, the other takes back, with libcni's
//! cache in between.

use crate::cnitool::{Form, Node, Plugins, conflist};
use crate::program::needs_programs;
use braid_tests::{json, needs};

#[test]
fn what_the_reference_plugins_attached_braid_checks_and_detaches() {
    needs_programs!("cnitool");
    needs!(Reference);
    let node = changes_hands(Plugins::Reference, Plugins::Braid);
    node.assert_nothing_left();
}

#[test]
fn what_braid_attached_the_reference_plugins_check_and_detach() {
    needs_programs!("cnitool");
    needs!(Reference);
    let node = changes_hands(Plugins::Braid, Plugins::Reference);
    assert_eq!(node.link_names(), ["wan", "br0"]);
    // What only braid knows of, its record and its masquerading, waits for braid's next GC.
    let other = node.pod("other");
    node.ok(Plugins::Braid, "gc", &other);
    node.assert_nothing_left();
}

/// A node with a container of each, attached, checked and detached; both containers have ended.
fn changes_hands(from: Plugins, to: Plugins) -> Node {
    let mut conflist = conflist(Form::Names, "1.1.0");
    // Only a sysctl: what the reference plugin remembers of the attributes that it changed is a
    // matter of its own.
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
