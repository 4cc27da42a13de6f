//! Ten nodes far from their API server: each request takes 200 ms, and some fail. The runtime tries a
//! failed ADD again, in another container.

use super::nodes::{Crowd, Mounts};
use super::{Node, addresses, json, reservations};
use crate::agent::await_true;
use crate::proxy::Fault;
use braid_tests::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// Delay of one direction.
const FAR: Duration = Duration::from_millis(100);
/// Time limit of a pod's attempts.
const PATIENCE: Duration = Duration::from_mins(2);

/// Pod with its address.
struct Added {
    container: String,
    result: Value,
    /// Number of ADDs that failed.
    failed: usize,
    /// Duration of the ADD that did not fail.
    took: Duration,
}

/// Attaches a pod as a runtime does: after an ADD that failed comes a DEL, and then another container.
fn add(mounts: &Mounts, pod: usize, conf: &Value) -> Added {
    let start = Instant::now();
    let mut failed = 0;
    loop {
        let container = format!("{}-{pod}-{failed}", mounts.name);
        let begun = Instant::now();
        match mounts.call("ADD", &container, conf) {
            Ok(result) => {
                let took = begun.elapsed();
                return Added {
                    container,
                    result,
                    failed,
                    took,
                };
            }
            Err(why) => {
                assert!(start.elapsed() < PATIENCE, "{why}");
                mounts.call("DEL", &container, conf).expect("a DEL");
                failed += 1;
            }
        }
    }
}

/// Returns the addresses of all pods. Fails if one is there twice.
fn unique(added: &[Added]) -> BTreeSet<&str> {
    let mut unique = BTreeSet::new();
    for added in added {
        for address in addresses(&added.result) {
            assert!(unique.insert(address), "{address} twice");
        }
    }
    unique
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// Returns the median of an ADD of host-local on the same nodes at the same time.
fn host_local(crowd: &Crowd) -> Duration {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/16"});
    let conf = json!({"cniVersion": "1.0.0", "name": "local", "type": "sriov", "ipam": ipam});
    median(crowd.each(|mounts, pod| {
        let id = format!("{}-{pod}", mounts.name);
        let start = Instant::now();
        mounts.call("ADD", &id, &conf).expect("an address");
        start.elapsed()
    }))
}

/// Prints the duration of ADDs.
fn tell(crowd: &Crowd, kind: &str, added: &[Added], start: Instant) {
    let mut text = format!(
        "{} ADDs {kind} took {:?}, the median one {:?} and one of host-local {:?}; failed and tried again:",
        added.len(),
        start.elapsed(),
        median(added.iter().map(|added| added.took).collect()),
        host_local(crowd),
    );
    let failed: usize = added.iter().map(|added| added.failed).sum();
    let _ = write!(text, " {failed}; {:?}", crowd.requests());
    eprintln!("{text}");
}

#[test]
fn each_pod_of_far_nodes_gets_an_address_of_both_families_outside_the_excluded_networks() {
    let Some(crowd) = Crowd::new("whereabouts-slow", Fault::Flaky(FAR)) else {
        return;
    };
    let conf = crowd.conf(&json!({"ipRanges": [
        {"range": "10.212.0.0/21", "exclude": ["10.212.0.0/29", "10.212.1.0/24", "10.212.3.8/32"]},
        {"range": "fd42::/64", "exclude": ["fd42::/125", "fd42::10/124"]},
    ]}));
    let start = Instant::now();
    let added = crowd.each(|mounts, pod| add(mounts, pod, &conf));
    tell(&crowd, "of two families without agents", &added, start);
    let unique = unique(&added);
    assert_eq!(unique.len(), 2 * crowd.number());
    for address in unique {
        let v4 = ["10.212.0.", "10.212.1.", "10.212.3.8/"];
        let is_excluded = v4[1..].iter().any(|start| address.starts_with(start));
        let host = address
            .strip_prefix(v4[0])
            .and_then(|host| host.split('/').next());
        let is_first = host.is_some_and(|host| host.parse::<u8>().expect("a byte") < 8);
        let host = address
            .strip_prefix("fd42::")
            .and_then(|host| host.split('/').next());
        let host = host.and_then(|host| u64::from_str_radix(host, 16).ok());
        let is_excluded = is_excluded || host.is_some_and(|host| host < 8 || host >> 4 == 1);
        assert!(!is_excluded && !is_first, "{address} is excluded");
    }
    let pools = ["10.212.0.0-21", "fd42---64"];
    let expected: BTreeSet<String> = added.iter().map(|added| added.container.clone()).collect();
    for pool in pools {
        assert_eq!(crowd.containers(pool), expected, "{pool}");
    }
    end(&crowd, &conf, &added);
    await_paid(&crowd, &pools, &["/10.212.", "/fd42"], &conf);
}

#[test]
fn each_pod_of_far_nodes_without_agents_gets_an_address_of_its_own() {
    let Some(crowd) = Crowd::new("whereabouts-slow-one", Fault::Flaky(FAR)) else {
        return;
    };
    let conf = crowd.conf(&json!({"range": "10.214.0.0/22"}));
    let start = Instant::now();
    let added = crowd.each(|mounts, pod| add(mounts, pod, &conf));
    tell(&crowd, "of one family without agents", &added, start);
    assert_eq!(unique(&added).len(), crowd.number());
    let pool = "10.214.0.0-22";
    let expected: BTreeSet<String> = added.iter().map(|added| added.container.clone()).collect();
    assert_eq!(crowd.containers(pool), expected);
    end(&crowd, &conf, &added);
    await_paid(&crowd, &[pool], &["/10.214."], &conf);
}

#[test]
fn far_nodes_with_agents_use_each_address_of_a_range_once() {
    let Some(crowd) = Crowd::new("whereabouts-slow-agents", Fault::Flaky(FAR)) else {
        return;
    };
    let agents = crowd.agents();
    let (last, conf) = (crowd.number(), crowd.exact(213));
    let start = Instant::now();
    let added = crowd.each(|mounts, pod| add(mounts, pod, &conf));
    tell(&crowd, "with agents", &added, start);
    assert_eq!(unique(&added).len(), last);
    let pool = "10.213.0.0-22";
    let expected: BTreeSet<String> = added.iter().map(|added| added.container.clone()).collect();
    await_true("all entries", || crowd.containers(pool) == expected);
    end(&crowd, &conf, &added);
    drop(agents);
    await_paid(&crowd, &[pool], &["/10.213."], &conf);
}

/// Detaches the pods. Their nodes may owe addresses to the API server then.
fn end(crowd: &Crowd, conf: &Value, added: &[Added]) {
    let start = Instant::now();
    let last = |mounts: &Mounts, pod: usize| {
        let name = format!("{}-{pod}-", mounts.name);
        let mut all = added.iter().map(|added| &added.container);
        all.find(|container| container.starts_with(&name))
            .expect("added")
    };
    for deleted in crowd.each(|mounts, pod| mounts.call("DEL", last(mounts, pod), conf)) {
        deleted.expect("a DEL");
    }
    eprintln!("their DELs took {:?}", start.elapsed());
}

/// Waits until the pools have no entries, and no address that begins like this is reserved. A node
/// that still owes addresses pays with another DEL.
fn await_paid(crowd: &Crowd, pools: &[&str], prefixes: &[&str], conf: &Value) {
    await_true("all addresses back", || {
        let is_empty = pools.iter().all(|pool| crowd.containers(pool).is_empty());
        let left = reservations(crowd.node.world.server);
        if is_empty && !prefixes.iter().any(|prefix| left.contains(prefix)) {
            return true;
        }
        crowd.each(|mounts, pod| (pod == 0).then(|| mounts.call("DEL", "none", conf)));
        false
    });
}

/// Locks the requests about all pools, as calls that wait for the API server do.
fn lock_pools() -> Vec<File> {
    let mut locks = Vec::new();
    for entry in fs::read_dir("/var/lib/braid/ipam").expect("journals") {
        let path = entry.expect("a journal").path();
        let is_lock = path.extension().is_some_and(|it| it == "lock");
        if is_lock && path.file_stem().is_some_and(|it| it != "node") {
            let file = File::open(path).expect("a lock");
            file.lock().expect("locked");
            locks.push(file);
        }
    }
    locks
}

#[test]
fn a_del_whose_pools_are_locked_answers_in_half_a_minute_and_owes_their_addresses() {
    let Some(node) = Node::new("whereabouts-locked") else {
        return;
    };
    let pools = [0, 8, 16, 24].map(|last| format!("172.31.241.{last}"));
    let ranges = pools
        .each_ref()
        .map(|net| json!({"range": format!("{net}/29")}));
    let (_ns, call) = node.pod("web", &json!({"ipRanges": ranges}));
    call.add().result();
    let mut locks = lock_pools();
    assert_eq!(locks.len(), 4);
    let left = |node: &Node| {
        let mut left = pools.to_vec();
        left.retain(|net| !node.entries(&format!("{net}-29")).is_empty());
        left.len()
    };
    // Of the last pool, no other call sends requests.
    drop(locks.pop());
    let start = Instant::now();
    call.del().ok();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(left(&node), 3);
    drop(locks);
    call.del().ok();
    assert_eq!(left(&node), 0);
}
