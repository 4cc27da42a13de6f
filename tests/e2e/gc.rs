//! Cleanup with `cnitool gc` after a container has terminated.
//!
//! cnitool considers no attachment valid and passes no list of attachments to the plugin. So a
//! running container must be unknown to libcni. The plugin keeps its attachment because its
//! namespace still exists.

use crate::cnitool::{CACHE, Form, Node, Plugins, conflist};
use crate::program::needs_programs;
use braid_tests::state::elements;
use std::fs::{self, File};
use std::path::Path;

/// State about the terminated container that the node has lost: libcni's cache entry, braid's
/// record, both, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    Cache,
    Record,
    CacheAndRecord,
}

#[test]
fn gc_detaches_a_terminated_container_in_libcnis_cache() {
    needs_programs!("cnitool");
    for form in [Form::Names, Form::Braid] {
        gc_ends_what_is_left(form, Lost::Nothing);
        gc_ends_what_is_left(form, Lost::Record);
    }
}

#[test]
fn gc_deletes_leftovers_of_a_terminated_container_by_its_record() {
    needs_programs!("cnitool");
    gc_ends_what_is_left(Form::Names, Lost::Cache);
    gc_ends_what_is_left(Form::Braid, Lost::Cache);
}

#[test]
fn gc_deletes_unrecorded_leftovers_once_the_runtime_lists_attachments() {
    needs_programs!("cnitool");
    for form in [Form::Names, Form::Braid] {
        let node = Node::new(conflist(form, "1.1.0"));
        let live = node.pod("live");
        node.add_past_libcni(&live);
        let of_the_living = node.leftovers();
        let _namespace = plant_dead(&node, Lost::CacheAndRecord);
        let planted = node.leftovers();
        node.ok(Plugins::Braid, "gc", &live);
        assert_eq!(
            node.leftovers(),
            planted,
            "{form:?}: without a list, it may be alive"
        );
        node.gc_all_but(&live);
        assert_eq!(node.leftovers(), of_the_living, "{form:?}");
        assert!(
            live.can_ping("10.1.0.1"),
            "{form:?}: the living are still attached"
        );
    }
}

#[track_caller]
fn gc_ends_what_is_left(form: Form, lost: Lost) {
    let node = Node::new(conflist(form, "1.1.0"));
    let live = node.pod("live");
    node.add_past_libcni(&live);
    let of_the_living = node.leftovers();
    let namespace = plant_dead(&node, lost);
    node.ok(Plugins::Braid, "gc", &live);
    assert_eq!(node.leftovers(), of_the_living, "{form:?} {lost:?}");
    assert!(
        live.can_ping("10.1.0.1"),
        "{form:?} {lost:?}: the living are still attached"
    );
    drop(namespace);
}

/// Attaches a container and terminates it so that only the plugin can clean up. The path of its
/// network namespace is gone, but an open file keeps the namespace and its veth alive. Returns this
/// file.
#[track_caller]
fn plant_dead(node: &Node, lost: Lost) -> File {
    let pod = node.pod("dead");
    let addr = node.add(Plugins::Braid, &pod);
    let addr = addr.split('/').next().expect("an address");
    let kept = File::open(pod.path()).expect("the container's namespace");
    node.end(&pod);
    if matches!(lost, Lost::Cache | Lost::CacheAndRecord) {
        fs::remove_dir_all(CACHE).expect("libcni's cache");
    }
    if matches!(lost, Lost::Record | Lost::CacheAndRecord) {
        forget_records();
    }
    let lease = Path::new("/var/lib/cni/networks/net").join(addr);
    assert!(lease.is_file(), "{} is planted", lease.display());
    let masqueraded = elements(node.host())
        .iter()
        .filter(|element| element.contains(addr))
        .count();
    assert_eq!(
        (veths(node), masqueraded),
        (2, 1),
        "veths and masquerading are planted"
    );
    kept
}

/// Deletes braid's records of cnitool's attachments.
fn forget_records() {
    let containers = fs::read_dir("/run/braid/attachments")
        .expect("records")
        .filter_map(Result::ok);
    let of_cnitool =
        containers.filter(|entry| entry.file_name().to_string_lossy().starts_with("cnitool-"));
    let forgotten = of_cnitool
        .map(|entry| fs::remove_dir_all(entry.path()).expect("a record"))
        .count();
    assert_eq!(forgotten, 1, "one container had records");
}

fn veths(node: &Node) -> usize {
    node.link_names()
        .iter()
        .filter(|name| name.starts_with("veth"))
        .count()
}
