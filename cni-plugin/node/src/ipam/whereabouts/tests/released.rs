//! DEL while another call sends requests: of a container with an ADD that still runs, as a foreign plugin's
//! IPAM has no lock on the container, and of one that the journal does not know.

use super::calls::{By, Verb};
use super::peer::POOL;
use super::world::{Fate, parse};
use super::{Life, Trial};

/// Number of steps of an ADD after which its container is removed.
const MOST: usize = 16;

/// Runs DEL after so many steps of an ADD. Returns false if the ADD has fewer.
fn del_after(steps: usize) -> bool {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    let entry = Trial::entry("web", By::Braid);
    trial.start(0, By::Braid, Verb::Add(entry.clone()));
    if !trial.go_on_for(steps) {
        return false;
    }
    // The ADD has the lock for requests, so the next call pays.
    let left = trial.call(0, &Verb::Leave(entry.clone()));
    left.expect("a DEL");
    trial.end_calls();
    let life = &trial.containers["web"].1;
    assert_eq!(*life, Life::Ending, "a DEL after {steps} steps");
    trial.call(0, &Verb::Look).expect("an answer");
    let state = trial.world.lock();
    for pool in state.objects.pools.values() {
        let entries = parse(pool).entries;
        assert!(entries.is_empty(), "{steps} steps: {entries:?}");
    }
    let reservations = &state.objects.reservations;
    assert!(reservations.is_empty(), "{steps} steps: {reservations:?}");
    let own = &state.journals[&(0, POOL.to_owned())].own;
    assert!(own.is_empty(), "{steps} steps: {own:?}");
    true
}

#[test]
fn an_add_fails_whose_container_is_removed_at_any_step_of_it() {
    let ends = (1..MOST).find(|steps| !del_after(*steps));
    let steps = ends.expect("an end of the ADD");
    assert!(steps > 5, "{steps}");
}

#[test]
fn a_container_whose_del_comes_while_the_pool_is_read_is_looked_for_later() {
    let mut trial = Trial::new(0);
    let [first, second] = ["first", "second"].map(|id| Trial::entry(id, By::Braid));
    let sought = |trial: &Trial| {
        let state = trial.world.lock();
        let sought = &state.journals[&(0, POOL.to_owned())].sought;
        sought.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>()
    };
    trial.start(0, By::Braid, Verb::Del(first));
    // It writes the journal twice, and finds no pool.
    for _ in 0..3 {
        trial.world.go_on(0, Fate::Done);
    }
    assert_eq!(sought(&trial), ["first"]);
    let left = trial.call(0, &Verb::Leave(second));
    left.expect("a DEL");
    trial.end_calls();
    assert_eq!(sought(&trial), ["second"]);
}

/// Kills a DEL after so many steps, and lets the agent hold addresses then. Returns false if the DEL has
/// fewer.
fn killed_after(steps: usize) -> bool {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    let entry = Trial::entry("web", By::Braid);
    trial
        .call(0, &Verb::Add(entry.clone()))
        .expect("an address");
    trial.start(0, By::Braid, Verb::Del(entry));
    if !trial.go_on_for(steps) {
        return false;
    }
    trial.world.go_on(0, Fate::KilledBefore);
    trial.end_calls();
    trial.call(0, &Verb::Tend(1)).expect("an answer");
    let state = trial.world.lock();
    let entries = parse(&state.objects.pools[POOL]).entries;
    let reservations = &state.objects.reservations;
    assert!(!entries.is_empty(), "after {steps} steps");
    assert_eq!(entries.len(), reservations.len(), "after {steps} steps");
    true
}

#[test]
fn after_a_killed_del_each_held_address_has_its_reservation() {
    let ends = (0..MOST).find(|steps| !killed_after(*steps));
    let steps = ends.expect("an end of the DEL");
    assert!(steps > 3, "{steps}");
}
