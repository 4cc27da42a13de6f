//! The last addresses of pods of a `StatefulSet`. The id `web-<key>` is that of a container of such a pod.

use super::calls::{By, Verb};
use super::{ADDRESSES, Trial};
use braid_core::ipam::whereabouts::pool::Entry;
use std::net::IpAddr;

fn entry(id: &str) -> Entry {
    Trial::entry(id, By::Braid)
}

fn add(trial: &Trial, node: usize, id: &str) -> IpAddr {
    let added = trial.call(node, &Verb::Add(entry(id)));
    added.expect("a free address").expect("an address")
}

fn del(trial: &Trial, node: usize, id: &str) {
    trial.call(node, &Verb::Del(entry(id))).expect("a DEL");
}

#[test]
fn a_pod_gets_its_last_address_on_any_node_if_it_is_free() {
    let trial = Trial::new(0);
    let last = add(&trial, 0, "web-0");
    del(&trial, 0, "web-0");
    assert_ne!(add(&trial, 0, "other"), last);
    assert_ne!(add(&trial, 1, "another"), last);
    assert_eq!(add(&trial, 0, "web-0"), last);
    del(&trial, 0, "web-0");
    // The agent of node 1 has seen the pool, and holds another address.
    trial.call(1, &Verb::Tend(1)).expect("an answer");
    assert_eq!(add(&trial, 1, "web-0"), last);
    let left = trial.call(1, &Verb::Leave(entry("web-0")));
    left.expect("a DEL that its agent pays");
    assert_eq!(add(&trial, 1, "web-0"), last);
    del(&trial, 1, "web-0");
    // The last free address of the pool is another pod's now.
    for number in 2..ADDRESSES {
        add(&trial, 1, &format!("{number}-more"));
    }
    let taken = trial.world.lock();
    let pool = super::world::parse(&taken.objects.pools[super::peer::POOL]);
    assert_eq!(pool.entries.len(), ADDRESSES);
    drop(taken);
    del(&trial, 1, "2-more");
    add(&trial, 2, "web-0");
}
