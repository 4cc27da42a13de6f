//! Addresses of IPAMClaims.

use super::calls::{By, Verb};
use super::world::Fate;
use super::{ADDRESSES, Trial, boot, name};
use braid_core::ipam::whereabouts::journal::{Own, Reservation, State};
use braid_core::ipam::whereabouts::pool::Entry;
use std::net::IpAddr;

fn add(trial: &Trial, node: usize, entry: &Entry) -> IpAddr {
    let added = trial.call(node, &Verb::Add(entry.clone()));
    added.expect("a free address").expect("an address")
}

/// Returns the ids of the pool's entries.
fn ids(trial: &Trial) -> Vec<String> {
    let state = trial.world.lock();
    let pool = super::world::parse(&state.objects.pools[super::peer::POOL]);
    pool.entries.into_values().map(|entry| entry.id).collect()
}

#[test]
fn a_claim_keeps_its_address_when_its_node_is_lost() {
    let trial = Trial::new(0);
    let claim = Entry::of_claim("c1");
    let kept = add(&trial, 0, &claim);
    let pod = |number: usize| Trial::entry(&format!("{number}-pod"), By::Braid);
    for number in 1..ADDRESSES {
        add(&trial, 0, &pod(number));
    }
    trial.world.lock().objects.nodes.remove(&name(0));
    for number in ADDRESSES..2 * ADDRESSES - 1 {
        assert_ne!(add(&trial, 1, &pod(number)), kept);
    }
    assert_eq!(add(&trial, 1, &claim), kept);
}

#[test]
fn a_deleted_claim_is_free_when_no_node_uses_it() {
    let trial = Trial::new(0);
    let claim = Entry::of_claim("c1");
    add(&trial, 0, &claim);
    let free = Verb::Free(["c1".to_owned()].into());
    trial.call(1, &free).expect("an answer");
    assert_eq!(ids(&trial), ["claim:c1"]);
    trial.call(0, &Verb::Del(claim)).expect("a DEL");
    assert_eq!(ids(&trial), ["claim:c1"]);
    trial.call(1, &free).expect("an answer");
    assert_eq!(ids(&trial), [""; 0]);
    assert!(trial.world.lock().objects.reservations.is_empty());
}

#[test]
fn a_killed_add_of_a_claim_leaves_no_reservation() {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    let claim = Entry::of_claim("c1");
    // The reservation of an earlier use is deleted, and the answer to this was lost.
    let owed = Own {
        entry: claim.clone(),
        boot: boot(0),
        state: State::Owed,
        reservation: Reservation::Made("deleted".to_owned()),
        ..Own::default()
    };
    let mut state = trial.world.lock();
    state
        .journals
        .entry((0, super::peer::POOL.to_owned()))
        .or_default()
        .own
        .insert(1, owed);
    drop(state);
    trial.start(0, By::Braid, Verb::Add(claim.clone()));
    while trial.world.lock().objects.reservations.is_empty() {
        trial.world.go_on(0, Fate::Done);
    }
    trial.world.go_on(0, Fate::KilledBefore);
    trial.end_calls();
    trial.call(0, &Verb::Del(claim)).expect("a DEL");
    let free = Verb::Free(["c1".to_owned()].into());
    trial.call(0, &free).expect("an answer");
    assert_eq!(ids(&trial), [""; 0]);
    let reservations = &trial.world.lock().objects.reservations;
    assert!(reservations.is_empty(), "{reservations:?}");
}
