//! Handover of a node between braid and the reference plugins: one implementation detaches
//! attachments of the other. libcni's cache passes on the results.

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
    // braid's record and its masquerading stay until braid's next GC, because the reference plugins
    // do not know them.
    let other = node.pod("other");
    node.ok(Plugins::Braid, "gc", &other);
    node.assert_nothing_left();
}

/// Attaches a container with the plugins `from` and another one with the plugins `to`, on the same
/// node. Checks and detaches both with `to`.
fn changes_hands(from: Plugins, to: Plugins) -> Node {
    let mut conflist = conflist(Form::Names, "1.1.0");
    // Only a sysctl, because the reference plugin's backup of changed attributes has separate
    // tests.
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
