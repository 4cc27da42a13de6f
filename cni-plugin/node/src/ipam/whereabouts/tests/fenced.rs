//! Entries of a node that is gone, or seems to be: each entry of a container has its reservation at
//! any time.

use super::calls::{By, Verb};
use super::peer::POOL;
use super::world::{Fate, parse};
use super::{ADDRESSES, Trial, name};
use braid_core::ipam::whereabouts::journal::State;
use braid_core::ipam::whereabouts::names;
use std::collections::BTreeSet;

/// Returns a full pool in which node 0, without a Node object, has all addresses but one.
fn fenced() -> Trial {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    for number in 0..ADDRESSES {
        let node = if number == 0 { 2 } else { 0 };
        add(&trial, node, &format!("{number}-fenced"));
    }
    trial.world.lock().objects.nodes.remove(&name(0));
    trial
}

fn add(trial: &Trial, node: usize, id: &str) {
    let added = trial.call(node, &Verb::Add(Trial::entry(id, By::Braid)));
    added.expect("a free address");
}

/// Returns the addresses with an entry, and those with a reservation.
fn addresses(trial: &Trial) -> [BTreeSet<String>; 2] {
    let state = trial.world.lock();
    let pool = parse(&state.objects.pools[POOL]);
    let net = trial.ranges[0].net;
    let entries = pool.entries.keys();
    let entries = entries.filter_map(|at| names::address(net, *at));
    [
        entries.map(|address| address.to_string()).collect(),
        state.objects.reservations.keys().cloned().collect(),
    ]
}

/// Returns the addresses that the ADD of the other node requests.
fn requested(trial: &Trial) -> BTreeSet<String> {
    let state = trial.world.lock();
    let Some(journal) = state.journals.get(&(1, POOL.to_owned())) else {
        return BTreeSet::new();
    };
    let intents = journal
        .own
        .iter()
        .filter(|(_, own)| own.state == State::Intent);
    let all = intents.filter_map(|(at, _)| names::address(trial.ranges[0].net, *at));
    all.map(|address| address.to_string()).collect()
}

/// Runs an ADD of another node for so many steps. Returns false if it has fewer.
fn run(trial: &mut Trial, steps: usize) -> bool {
    trial.start(1, By::Braid, Verb::Add(Trial::entry("new", By::Braid)));
    trial.go_on_for(steps)
}

#[test]
fn a_node_that_returns_while_another_frees_its_addresses_keeps_their_reservations() {
    for steps in 0.. {
        let mut trial = fenced();
        run(&mut trial, steps);
        // Its addresses are free then: a Node object must not be deleted while its containers run.
        if addresses(&trial)[0].len() < ADDRESSES {
            assert!(steps > 10, "{steps}");
            return;
        }
        let first = Trial::entry("1-fenced", By::Braid);
        trial.register(0);
        trial.call(0, &Verb::Del(first)).expect("a DEL");
        trial.end_calls();
        let [entries, reserved] = addresses(&trial);
        assert!(
            entries.is_subset(&reserved),
            "{steps}: {entries:?} {reserved:?}"
        );
    }
}

#[test]
fn a_call_killed_while_it_frees_addresses_leaves_no_entry_without_a_reservation() {
    for steps in 0.. {
        let mut trial = fenced();
        if !run(&mut trial, steps) {
            assert!(steps > 10, "{steps}");
            return;
        }
        trial.world.go_on(0, Fate::KilledAfter);
        trial.end_calls();
        let [mut entries, reserved] = addresses(&trial);
        // No container has the address of the killed call.
        let requested = requested(&trial);
        entries.retain(|address| !requested.contains(address));
        assert!(
            entries.is_subset(&reserved),
            "{steps}: {entries:?} {reserved:?}"
        );
        trial.call(1, &Verb::Look).expect("an answer");
        trial.call(1, &Verb::Collect).expect("an answer");
        let [entries, reserved] = addresses(&trial);
        assert_eq!(entries, reserved, "{steps}");
    }
}
