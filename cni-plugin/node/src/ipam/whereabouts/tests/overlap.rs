//! Pools with ranges that overlap.

use super::calls::{By, Verb};
use super::world::parse;
use super::{Trial, second};
use braid_core::ipam::whereabouts::names;
use std::collections::BTreeSet;
use std::net::IpAddr;

#[test]
fn a_node_does_not_hold_an_address_in_two_pools() {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    trial.ranges = vec![trial.ranges[0].clone(), second()];
    for (pool, id) in ["1-container", "1-second"].into_iter().enumerate() {
        let add = Verb::Add(Trial::entry(id, By::Braid));
        trial.call(0, &add).expect("an address");
        let held = trial.call_in(pool, 0, &Verb::Tend(3));
        held.expect("an answer");
    }
    let state = trial.world.lock();
    let mut all = BTreeSet::new();
    for range in &trial.ranges {
        let pool = parse(&state.objects.pools[&names::pool("", range.net)]);
        for at in pool.entries.into_keys() {
            let address = names::address(range.net, at).expect("an address");
            assert!(all.insert(address), "{address} twice");
        }
    }
    assert!(all.contains(&IpAddr::from([10, 0, 0, 7])), "{all:?}");
}
