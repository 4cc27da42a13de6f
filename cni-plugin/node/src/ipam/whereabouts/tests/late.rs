//! Requests that are carried out after their sender has given up.

use super::Trial;
use super::calls::{By, Verb};
use super::world::Fate;

/// Runs an ADD with one late request, then its DEL. Returns the number of reservations that are left,
/// before and after they are collected; `None` if the ADD has fewer steps.
fn left(steps: usize) -> Option<[usize; 2]> {
    let mut trial = Trial::new(0);
    trial.has_reservations = true;
    let entry = Trial::entry("web", By::Braid);
    trial.start(0, By::Braid, Verb::Add(entry.clone()));
    if !trial.go_on_for(steps) {
        return None;
    }
    trial.world.go_on(0, Fate::Late);
    trial.end_calls();
    trial.call(0, &Verb::Del(entry)).expect("a DEL");
    trial.call(0, &Verb::Look).expect("an answer");
    while !trial.world.lock().objects.late.is_empty() {
        trial.carry_out_late();
    }
    let count = || trial.world.lock().objects.reservations.len();
    let before = count();
    trial.call(0, &Verb::Collect).expect("an answer");
    Some([before, count()])
}

#[test]
fn a_reservation_that_is_made_after_the_node_has_paid_is_collected() {
    let all: Vec<[usize; 2]> = (0..).map_while(left).collect();
    assert!(
        all.len() > 5 && all.iter().any(|[before, _]| *before > 0),
        "{all:?}"
    );
    assert!(all.iter().all(|[_, after]| *after == 0), "{all:?}");
}
