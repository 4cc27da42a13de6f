//! Garbage: the agent detaches terminated containers, and no running ones.

use super::socket::Served;
use super::{CONFLIST, Pair, await_true, is_ready, serde_json_of};
use crate::{json, uid};
use braid_core::k8s::NETWORKS;
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

#[test]
fn addresses_of_a_claim_that_was_deleted_while_the_agent_was_away_are_released() {
    let Some(node) = Served::new("garbage-claim", 222) else {
        return;
    };
    await_true("conflist", || fs::exists(CONFLIST).is_ok_and(|is| is));
    let world = &node.pair.world;
    for name in ["deleted", "kept"] {
        world.create(json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1",
            "kind": "IPAMClaim",
            "metadata": {"name": name},
            "spec": {"network": "lan", "interface": "net1"},
        }));
        let asked = json!([{"name": "lan", "ipam-claim-reference": name}]);
        let pod = node.pod(name, &json!({NETWORKS: asked.to_string()}));
        pod.call.add().result();
        pod.call.del().ok();
    }
    let held = || {
        let mut owners = BTreeSet::new();
        for network in names("/var/lib/cni/networks") {
            let folder = format!("/var/lib/cni/networks/{network}");
            for name in names(&folder) {
                let text = fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
                owners.extend(text.starts_with("ipamclaim-").then_some(text));
            }
        }
        owners
    };
    let owner = |name: &str| format!("ipamclaim-{}", uid(&world.get("ipamclaim", name)));
    let [deleted, kept] = ["deleted", "kept"].map(owner);
    assert_eq!(held(), BTreeSet::from([deleted, kept.clone()]));
    node.agent.stop();
    let namespace = format!("--namespace={}", world.namespace);
    let delete = ["delete", "ipamclaim", "deleted", &namespace];
    world.server.kubectl(&delete, None);
    let _agent = node.pair.start();
    await_true("the address of the deleted claim", || {
        held() == BTreeSet::from([kept.clone()])
    });
}

#[test]
fn leases_of_an_earlier_boot_are_released_at_the_start_and_those_of_this_boot_stay() {
    let Some(pair) = Pair::new("garbage-boot", 223) else {
        return;
    };
    // Nothing else is known of these containers: neither a record nor a file of libcni.
    let folder = "/var/lib/cni/networks/lan";
    fs::create_dir_all(folder).expect("a folder");
    for address in ["10.223.9.2", "10.223.9.3", "10.223.9.4"] {
        fs::write(format!("{folder}/{address}"), "unknown\r\neth0").expect("a lease");
    }
    fs::write(format!("{folder}/10.223.9.5"), "kept for the printer").expect("a note");
    for address in ["10.223.9.2", "10.223.9.3", "10.223.9.5"] {
        let of_another_boot = format!("touch -d 2001-01-01 {folder}/{address}");
        pair.world.sandbox.run(&of_another_boot);
    }
    let _agent = pair.start();
    let addresses = || {
        let mut all = names(folder);
        all.retain(|name| name.starts_with("10."));
        all
    };
    let expected = BTreeSet::from(["10.223.9.4".to_owned(), "10.223.9.5".to_owned()]);
    await_true("leases of this boot alone", || addresses() == expected);
}
