//! Garbage: the agent detaches terminated containers, and no running ones.

use super::{CONFLIST, Pair, await_true, is_ready, serde_json_of};
use crate::json;
use braid_node::apply::host::This;
use braid_node::attach::garbage;
use braid_node::log::Log;
use braid_tests::{Call, Ns, Value};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const RECORDS: &str = "/run/braid/attachments";

/// Returns the configuration of the node's network as one list.
pub(super) fn conf() -> Value {
    let list = serde_json_of(CONFLIST);
    json!({
        "cniVersion": "1.1.0",
        "name": list["name"],
        "type": "braid",
        "plugins": list["plugins"][0]["plugins"],
    })
}

/// Returns the names of the files in a folder.
fn names(folder: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let name = entry.expect("an entry").file_name();
        names.insert(name.into_string().expect("text"));
    }
    names
}

/// Returns the leased addresses of the node's network.
fn leases() -> BTreeSet<String> {
    let list = serde_json_of(CONFLIST);
    let name = list["name"].as_str().expect("a name");
    let mut leases = names(&format!("/var/lib/cni/networks/{name}"));
    leases.retain(|name| name.starts_with("10."));
    leases
}

/// Returns the address in the result of an ADD.
fn address_of(result: &Value) -> String {
    let address = result["ips"][0]["address"].as_str().expect("an address");
    address.split('/').next().expect("an address").to_owned()
}

#[test]
fn containers_that_are_gone_are_collected_and_unknown_ones_keep_everything() {
    let Some(pair) = Pair::new("garbage-gone", 175) else {
        return;
    };
    let _agent = pair.start();
    await_true("readiness", is_ready);
    let sandbox = &pair.world.sandbox;
    let [gone, alive] = ["gone", "alive"].map(|name| sandbox.pod(name));
    let of = |pod: &Ns| sandbox.call("braid", pod, conf());
    of(&gone).add().result();
    // No runtime and no API server knows it.
    let result = of(&alive).add().result();
    let kept = address_of(&result);
    sandbox.end(&gone);
    // A lease of an unknown container, as an administrator's own tool leaves it.
    let list = serde_json_of(CONFLIST);
    let folder = format!(
        "/var/lib/cni/networks/{}",
        list["name"].as_str().expect("a name")
    );
    fs::write(format!("{folder}/10.175.1.200"), "foreign\r\neth0").expect("a lease");
    let expected = BTreeSet::from([kept, "10.175.1.200".to_owned()]);
    await_true("garbage collection", || leases() == expected);
    await_true("a detached container", || {
        names(RECORDS) == BTreeSet::from(["alive".to_owned()])
    });
    of(&alive).check(&result).ok();
    of(&alive).del().ok();
    fs::remove_file(format!("{folder}/10.175.1.200")).expect("the lease stayed");
}

#[test]
fn nothing_alive_is_collected_in_a_storm_of_adds_and_dels() {
    let Some(pair) = Pair::new("garbage-storm", 176) else {
        return;
    };
    let agent = pair.start();
    await_true("readiness", is_ready);
    // Its own collection is too rare for this test.
    agent.stop();
    let (is_over, passes) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let collecting = {
        let (is_over, passes) = (Arc::clone(&is_over), Arc::clone(&passes));
        std::thread::spawn(move || {
            let machine = This::new(Log::new(|text| eprintln!("{text}")));
            while !is_over.load(Ordering::SeqCst) {
                let collected = garbage::collect(&machine);
                assert!(collected.errors.is_empty(), "{:?}", collected.errors);
                passes.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let sandbox = &pair.world.sandbox;
    for round in 0..40 {
        // The same names in each round, each time with a new namespace at the same path.
        let names = ["p0", "p1", "p2"];
        let pods = names.map(|name| sandbox.pod(name));
        let calls: Vec<Call> = pods
            .iter()
            .map(|pod| sandbox.call("braid", pod, conf()))
            .collect();
        let results: Vec<Value> = calls.iter().map(|call| call.add().result()).collect();
        let addresses: BTreeSet<String> = results.iter().map(address_of).collect();
        let before = passes.load(Ordering::SeqCst);
        await_true("two collections", || {
            passes.load(Ordering::SeqCst) >= before + 2
        });
        assert!(leases().is_superset(&addresses), "round {round}");
        for (call, result) in calls.iter().zip(&results) {
            call.check(result).ok();
        }
        // One gets its DEL, one dies without it, one dies first.
        calls[0].del().ok();
        for pod in &pods {
            sandbox.end(pod);
            fs::remove_file(pod.path()).expect("the path of a namespace");
        }
        calls[2].del().ok();
    }
    await_true("an empty node", || {
        leases().is_empty() && names(RECORDS).is_empty()
    });
    is_over.store(true, Ordering::SeqCst);
    collecting.join().expect("the collection");
}
