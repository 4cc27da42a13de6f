//! Steps of a journal: decisions without requests.

use super::journal::{Journal, Own, Reservation, State};
use super::names::address;
use super::pool::{Entry, Node};
use super::range::PoolRange;
use ipnet::IpNet;
use std::net::IpAddr;

/// Returns the offset that an attachment has, or gives it a held one.
pub fn take(
    (journal, range, requested): (&mut Journal, &PoolRange, Option<IpAddr>),
    owner: (&Entry, &str),
    boot: &str,
) -> Option<u128> {
    let known = journal.used_by(owner.0);
    // The pool has a claim's address before the pod has it, as another node may be next.
    let is_claim = owner.0.claim().is_some();
    let found = known.or_else(|| match is_claim {
        true => None,
        false => journal.take_held(owner, boot, range, requested),
    });
    if found.is_some() {
        journal.stop_waiting(owner.0);
    }
    found
}

/// Releases the addresses of an attachment. One that the journal does not know is looked for in the
/// pool when the node pays.
pub fn release(journal: &mut Journal, entry: &Entry) -> Vec<u128> {
    journal.stop_waiting(entry);
    if !journal.knows(entry) && entry.claim().is_none() {
        let key = (entry.id.clone(), entry.ifname.clone());
        journal.sought.insert(key);
    }
    release_where(journal, &|own| own.entry.is_of(&entry.id, &entry.ifname))
}

/// Releases the used addresses for which `is_gone` is true.
pub fn release_where(journal: &mut Journal, is_gone: &dyn Fn(&Own) -> bool) -> Vec<u128> {
    let mut released = Vec::new();
    for (at, own) in &mut journal.own {
        if own.state == State::Used && is_gone(own) {
            own.state = State::Owed;
            released.push(*at);
        }
    }
    released
}

/// Returns the free addresses of a range in the order in which the node takes them: the lowest first
/// if it is alone, otherwise those of its own part first.
pub fn free(
    journal: &Journal,
    range: &PoolRange,
    is_taken: impl Fn(IpAddr) -> bool,
) -> impl Iterator<Item = IpAddr> {
    let seen = journal.seen.as_ref();
    let (rank, nodes) = seen.map_or((0, 1), |seen| (seen.rank, seen.nodes));
    range.free_from(rank, nodes, is_taken)
}

/// Returns the addresses at these offsets.
pub fn addresses(net: IpNet, offsets: &[u128]) -> Vec<IpAddr> {
    let all = offsets.iter().filter_map(|at| address(net, *at));
    all.collect()
}

/// Returns the number of addresses that are held, or that will be.
pub fn held(journal: &Journal) -> usize {
    journal.count(State::Held) + journal.count(State::Holding)
}

/// Gives back held addresses beyond `target` and outside the range of the last ADD, and holds owed ones
/// up to it.
pub fn adjust(journal: &mut Journal, node: &Node, net: IpNet, target: usize) {
    let range = journal.range.clone();
    let is_inside = |at: u128| {
        let address = address(net, at);
        range
            .as_ref()
            .zip(address)
            .is_some_and(|(range, address)| range.contains(address))
    };
    let mut held = 0;
    for (at, own) in &mut journal.own {
        let is_whole = own.reservation != Reservation::Asked;
        if matches!(own.state, State::Held | State::Holding) {
            if held < target && is_whole && is_inside(*at) {
                held += 1;
            } else {
                own.state = State::Owed;
            }
        }
    }
    for (at, own) in &mut journal.own {
        // An entry of Whereabouts is removed, as the node's annotation does not name it. That of a
        // claim stays.
        let is_own = own.entry.podref.is_empty() && own.entry.claim().is_none();
        let is_whole = own.reservation != Reservation::Asked && is_own;
        if held < target && own.state == State::Owed && is_whole && is_inside(*at) {
            own.entry = Entry::held_by(node);
            own.state = State::Holding;
            own.boot.clone_from(&node.boot);
            held += 1;
        }
    }
}
