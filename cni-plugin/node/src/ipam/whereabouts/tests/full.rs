//! A pool without a free address.

use super::calls::{By, Verb};
use super::{Trial, name};
use braid_core::ipam::whereabouts::pool::Entry;

const LAST: usize = super::ADDRESSES;

/// Returns a pool that node 0 has filled.
fn full() -> Trial {
    let trial = Trial::new(0);
    for number in 0..LAST {
        add(&trial, 0, number).expect("a free address");
    }
    trial
}

fn entry(number: usize) -> Entry {
    Trial::entry(&format!("{number}-full-container"), By::Braid)
}

fn add(trial: &Trial, node: usize, number: usize) -> Result<(), String> {
    let added = trial.call(node, &Verb::Add(entry(number)));
    added.map(|address| assert!(address.is_some()))
}

#[test]
fn an_error_names_the_pool_and_the_addresses_in_use() {
    let why = add(&full(), 1, LAST).expect_err("no free address");
    assert!(
        why.contains("IPPool 10.0.0.0-24 has 5 in use"),
        "it is: {why}"
    );
}

#[test]
fn addresses_of_a_node_that_is_gone_are_free() {
    let trial = full();
    trial.world.lock().objects.nodes.remove(&name(0));
    add(&trial, 1, LAST).expect("node 0 has no Node object");

    let trial = full();
    let found = |change: &dyn Fn(&mut super::FoundNode)| {
        let mut state = trial.world.lock();
        change(state.objects.nodes.get_mut(&name(0)).expect("a Node"));
    };
    // Its kubelet has registered it again, and its containers run on.
    found(&|node| node.uid = "another".to_owned());
    add(&trial, 1, LAST).expect_err("node 0 is alive");
    found(&|node| node.is_out_of_service = true);
    add(&trial, 1, LAST).expect("node 0 is shut down");
    // One node frees them, and all others have them.
    for number in 1..LAST {
        add(&trial, 2, LAST + number).expect("a free address");
    }
    add(&trial, 2, 2 * LAST).expect_err("no free address");
}

#[test]
fn an_attachment_of_whereabouts_is_released_by_id_and_interface() {
    let mut trial = full();
    let foreign = Trial::entry("foreign", By::Whereabouts);
    trial.call(0, &Verb::Del(entry(0))).expect("a DEL");
    trial.start(1, By::Whereabouts, Verb::Add(foreign.clone()));
    trial.end_calls();
    add(&trial, 1, LAST).expect_err("no free address");
    trial.call(1, &Verb::Del(foreign)).expect("a DEL");
    add(&trial, 1, LAST).expect("the address of Whereabouts");
    assert_eq!(trial.world.lock().objects.reservations.len(), {
        if trial.has_reservations { LAST } else { 0 }
    });
}

#[test]
fn held_addresses_have_reservations_and_are_given_back() {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    add(&trial, 0, 0).expect("a free address");
    trial.call(0, &Verb::Tend(3)).expect("an answer");
    let count = |trial: &Trial| {
        let state = trial.world.lock();
        let pool = super::world::parse(&state.objects.pools[super::peer::POOL]);
        let held = pool.entries.values().filter(|entry| entry.is_held());
        (held.count(), state.objects.reservations.len())
    };
    assert_eq!(count(&trial), (3, 4));
    trial.call(0, &Verb::Take(entry(1))).expect("a held one");
    trial.call(0, &Verb::Leave(entry(0))).expect("a DEL");
    trial.call(0, &Verb::Tend(3)).expect("an answer");
    assert_eq!(count(&trial), (3, 4));
    trial.call(0, &Verb::Tend(0)).expect("an answer");
    assert_eq!(count(&trial), (0, 1));
}

#[test]
fn a_call_holds_addresses_for_the_calls_that_wait() {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    let mut state = trial.world.lock();
    let journal = state
        .journals
        .entry((0, super::peer::POOL.to_owned()))
        .or_default();
    journal.waiting.add(&entry(1), 1);
    journal.waiting.add(&entry(2), 2);
    drop(state);
    // Its first candidate has a reservation of another pool.
    let passing = serde_json::json!({"uid": "other", "id": "other"});
    let name = "10.0.0.1".to_owned();
    trial
        .world
        .lock()
        .objects
        .reservations
        .insert(name, passing);
    add(&trial, 0, 0).expect("a free address");
    assert_eq!(trial.world.lock().objects.reservations.len(), 4);
    trial.call(0, &Verb::Take(entry(1))).expect("a held one");
    // The other was killed: its DEL ends the wait, and the next call gives the address back.
    trial.call(0, &Verb::Leave(entry(2))).expect("a DEL");
    add(&trial, 0, 3).expect("a held address, or a free one");
    trial.call(0, &Verb::Tend(0)).expect("an answer");
    assert_eq!(trial.world.lock().objects.reservations.len(), 4);
}

#[test]
fn an_address_that_another_call_reserves_meanwhile_is_tried_again() {
    let mut trial = full();
    trial.has_reservations = true;
    trial.call(0, &Verb::Del(entry(0))).expect("a DEL");
    // Another node has made the reservation, and has lost the race for the entry.
    let passing = serde_json::json!({"uid": "other", "id": "other"});
    let reservation = |trial: &Trial| {
        let state = &mut *trial.world.lock();
        let pool = super::world::parse(&state.objects.pools[super::peer::POOL]);
        let at = [1, 2, 4, 5, 6]
            .into_iter()
            .find(|at| !pool.entries.contains_key(at));
        format!("10.0.0.{}", at.expect("a free address"))
    };
    let name = reservation(&trial);
    trial
        .world
        .lock()
        .objects
        .reservations
        .insert(name.clone(), passing);
    trial.start(1, By::Braid, Verb::Add(entry(LAST)));
    // Until the call has met the reservation.
    for _ in 0..8 {
        trial.world.go_on(0, super::Fate::Done);
    }
    assert!(trial.world.lock().ended.is_empty(), "the ADD still runs");
    trial.world.lock().objects.reservations.remove(&name);
    trial.end_calls();
    let state = trial.world.lock();
    let pool = super::world::parse(&state.objects.pools[super::peer::POOL]);
    assert_eq!(pool.entries.len(), LAST);
}

#[test]
fn a_reservation_of_another_pool_of_the_node_is_not_its_own() {
    for id in ["braid:node-0", "0-full-container"] {
        let mut trial = Trial::new(0);
        trial.has_reservations = true;
        let other = serde_json::json!({"uid": "u", "id": id, "of": ["node-0", "10.0.0.0-16"]});
        let name = "10.0.0.1".to_owned();
        let mut state = trial.world.lock();
        state.objects.reservations.insert(name, other);
        drop(state);
        let added = trial.call(0, &Verb::Add(entry(0))).expect("an address");
        assert_ne!(added, Some([10, 0, 0, 1].into()), "{id}");
        trial.call(0, &Verb::Del(entry(0))).expect("a DEL");
        assert_eq!(trial.world.lock().objects.reservations.len(), 1);
    }
}

#[test]
fn the_reservation_of_a_used_again_address_goes_with_its_node() {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    add(&trial, 0, 0).expect("a free address");
    trial.call(0, &Verb::Leave(entry(0))).expect("a DEL");
    trial.call(0, &Verb::Tend(1)).expect("an answer");
    trial.call(0, &Verb::Take(entry(1))).expect("a held one");
    trial.call(0, &Verb::Tend(0)).expect("an answer");
    trial.world.lock().objects.nodes.remove(&name(0));
    for number in 2..2 + LAST {
        add(&trial, 1, number).expect("an address of the lost node");
    }
}
