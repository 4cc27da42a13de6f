//! Containers of both programs in one pool, as on the nodes of a cluster that moves from one to the
//! other.

use super::peers::{Braid, Peers, Program, Whereabouts};
use super::{NAMESPACE, addresses, json};
use braid_tests::{Call, Value};
use std::collections::BTreeSet;

/// Attachment of a container.
struct Attached {
    call: Call,
    container: String,
    address: String,
}

impl Attached {
    /// Attaches a container. Whereabouts' ADD fails if braid reserves the address while this ADD
    /// runs. The runtime then tries again, and so does this function.
    fn new(call: Call, by: Program, container: &str) -> Self {
        let mut answer = call.add();
        while answer.code != 0 && by == Whereabouts {
            call.del().ok();
            answer = call.add();
        }
        let result = answer.result();
        let [address] = addresses(&result)[..] else {
            panic!("{result}");
        };
        Self {
            call,
            container: container.to_owned(),
            address: address.to_owned(),
        }
    }
}

/// Attaches these containers at the same time.
fn attach(peers: &Peers, containers: &[(&str, Program)], ipam: &Value) -> Vec<Attached> {
    let mut calls = Vec::new();
    for (name, by) in containers {
        let ns = peers.node.world.sandbox.pod(name);
        calls.push((peers.call(*by, &ns, ipam), *by, *name));
    }
    at_once(calls, |(call, by, name)| Attached::new(call, by, name))
}

/// Runs `work` on all items at the same time.
fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let mut threads = Vec::new();
        for item in items {
            threads.push(scope.spawn(move || work(item)));
        }
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("an end"))
            .collect()
    })
}

fn detach(attached: Vec<Attached>) {
    at_once(attached, |attached| attached.call.del().ok());
}

/// Fails unless the addresses are different, and exactly these containers have entries.
fn assert_in_pool(peers: &Peers, attached: &[Attached]) {
    let unique: BTreeSet<&str> = attached.iter().map(|one| one.address.as_str()).collect();
    assert_eq!(
        unique.len(),
        attached.len(),
        "an address is in two containers"
    );
    let objects = peers.objects(Braid);
    let containers: BTreeSet<&str> = attached.iter().map(|one| one.container.as_str()).collect();
    assert_eq!(objects.containers(), containers);
    assert_eq!(objects.entries.len(), attached.len());
}

/// Attaches 17 containers, most of them four at a time, and detaches others meanwhile.
fn churn(test: &str, ipam: &Value) {
    let Some(peers) = Peers::new(test) else {
        return;
    };
    let names: Vec<String> = (0..17).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    peers.create_pods(&names);
    // The node's first call reads the node's name.
    let mut attached = attach(&peers, &[(names[16], Braid)], ipam);
    for some in names[..16].chunks(4) {
        let containers = [0, 1, 2, 3].map(|at| (some[at], [Whereabouts, Braid][at % 2]));
        // One of each program.
        let gone = attached.split_off(attached.len().saturating_sub(2));
        let added = std::thread::scope(|scope| {
            let going = scope.spawn(|| detach(gone));
            let added = attach(&peers, &containers, ipam);
            going.join().expect("an end");
            added
        });
        attached.extend(added);
        assert_in_pool(&peers, &attached);
    }
    detach(attached);
    peers.assert_all_free(Braid);
}

#[test]
fn no_address_is_in_two_containers_while_both_programs_attach_at_once() {
    let ipam = json!({"range": "10.235.0.0/27", "gateway": "10.235.0.30"});
    churn("whereabouts-mixed", &ipam);
}

#[test]
fn no_address_is_in_two_containers_without_reservations_either() {
    let ipam = json!({"range": "10.235.1.0/27", "enable_overlapping_ranges": false});
    churn("whereabouts-mixed-plain", &ipam);
}

#[test]
fn both_programs_together_use_each_address_of_a_pool() {
    let Some(peers) = Peers::new("whereabouts-mixed-full") else {
        return;
    };
    let ipam = json!({"range": "10.235.2.0/28"});
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    peers.create_pods(&names);
    let mut attached = Vec::new();
    for (number, name) in names[..14].iter().enumerate() {
        let by = [Whereabouts, Braid][number % 2];
        attached.extend(attach(&peers, &[(name, by)], &ipam));
    }
    assert_in_pool(&peers, &attached);
    assert_reserved(&peers, &attached);
    // The pool is full for both.
    for (by, name) in [(Whereabouts, names[14]), (Braid, names[15])] {
        let ns = peers.node.world.sandbox.pod(name);
        let call = peers.call(by, &ns, &ipam);
        let error = call.add();
        assert!(error.code != 0, "{}", error.stdout);
        call.del().ok();
    }
    // The addresses of each program go to the other one.
    for (number, name) in names[16..].iter().enumerate() {
        let gone = attached.remove(0);
        let by = [Braid, Whereabouts][number % 2];
        detach(vec![gone]);
        attached.extend(attach(&peers, &[(name, by)], &ipam));
        assert_in_pool(&peers, &attached);
    }
    assert_reserved(&peers, &attached);
    detach(attached);
    peers.assert_all_free(Braid);
}

/// Fails unless exactly the addresses of these containers are reserved.
fn assert_reserved(peers: &Peers, attached: &[Attached]) {
    let addresses = attached.iter().map(|one| &one.address);
    let addresses: BTreeSet<&str> = addresses
        .map(|address| address.split('/').next().expect("an address"))
        .collect();
    assert_eq!(peers.objects(Braid).reserved(), addresses);
}

#[test]
fn whereabouts_del_frees_an_address_of_braid_and_a_late_del_of_braid_leaves_the_next_owner() {
    let Some(peers) = Peers::new("whereabouts-downgrade") else {
        return;
    };
    let ipam = json!({"range": "10.235.3.0/29"});
    let [old, new, last] = peers.pods(["old", "new", "last"]);
    let braids = peers.call(Braid, &old, &ipam);
    assert_eq!(addresses(&braids.add().result()), ["10.235.3.1/29"]);
    peers.call(Whereabouts, &old, &ipam).del().ok();
    peers.assert_all_free(Braid);
    let next = peers.call(Whereabouts, &new, &ipam);
    assert_eq!(addresses(&next.add().result()), ["10.235.3.1/29"]);
    braids.del().ok();
    // Another attempt would have the same answer.
    let account = format!("{NAMESPACE}:whereabouts-downgrade");
    let requests = peers.node.world.server.audit_of(&account).counts();
    let right = "delete whereabouts.cni.cncf.io/overlappingrangeipreservations";
    assert_eq!(requests[right], 1);
    let objects = peers.objects(Braid);
    assert_eq!(objects.containers(), ["new"].into());
    assert_eq!(objects.reserved(), ["10.235.3.1"].into());
    let braids = peers.call(Braid, &last, &ipam);
    assert_eq!(addresses(&braids.add().result()), ["10.235.3.2/29"]);
    next.del().ok();
    braids.del().ok();
    peers.assert_all_free(Braid);
}

#[test]
fn del_of_braid_frees_addresses_that_whereabouts_assigned() {
    let Some(peers) = Peers::new("whereabouts-upgrade") else {
        return;
    };
    let both = json!({"ipRanges": [{"range": "10.235.4.0/29"}, {"range": "fd35:4::/64"}]});
    let [before, own] = peers.pods(["before", "own"]);
    peers.call(Whereabouts, &before, &both).add().result();
    let own = peers.call(Braid, &own, &both);
    own.add().result();
    let before = peers.call(Braid, &before, &both);
    // Another interface of the container has other addresses.
    before.clone().ifname("net1").del().ok();
    assert_eq!(peers.objects(Braid).containers(), ["before", "own"].into());
    before.del().ok();
    let objects = peers.objects(Braid);
    assert_eq!(objects.containers(), ["own"].into());
    assert_eq!(objects.reservations.len(), 2);
    own.del().ok();
    peers.assert_all_free(Braid);
}

#[test]
fn the_first_call_of_a_node_may_be_a_del_of_what_whereabouts_attached() {
    let Some(peers) = Peers::new("whereabouts-first-del") else {
        return;
    };
    let ipam = json!({"range": "10.235.5.0/29"});
    let [web] = peers.pods(["web"]);
    peers.call(Whereabouts, &web, &ipam).add().result();
    peers.call(Braid, &web, &ipam).del().ok();
    peers.assert_all_free(Braid);
}

#[test]
fn the_first_calls_of_a_node_may_run_at_once() {
    let Some(peers) = Peers::new("whereabouts-first-adds") else {
        return;
    };
    let ipam = json!({"range": "10.235.6.0/28"});
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    peers.create_pods(&names);
    let attached = attach(&peers, &names.map(|name| (name, Braid)), &ipam);
    assert_in_pool(&peers, &attached);
    detach(attached);
    peers.assert_all_free(Braid);
}
