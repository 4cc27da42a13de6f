//! Use of a pool: numbers for metrics, and the decision whether it runs short.

use super::journal::{Journal, Place};
use super::names::address;
use super::range::PoolRange;
use super::steps;
use std::collections::BTreeSet;

/// Part of a pool, in hundredths, from which on it runs short.
const SHORT: u128 = 90;
/// Part of a pool, in hundredths, below which it no longer runs short.
const ENOUGH: u128 = 85;

/// Use of a pool from which this node has addresses, by its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The pool.
    pub place: Place,
    /// Range of the node's last ADD.
    pub range: PoolRange,
    /// Addresses of containers that braid attached, and those that this node still has to give back.
    pub used: usize,
    /// Addresses that nodes hold for their next pods.
    pub held: usize,
    /// Addresses of claims without a pod.
    pub claimed: usize,
    /// Addresses of Whereabouts' containers.
    pub foreign: usize,
    /// Addresses of the range without an entry.
    pub free: u128,
    /// True if this node is the one that reports about the pool.
    pub is_reporter: bool,
    /// True if Whereabouts no longer uses the pool.
    pub is_exclusive: bool,
}

impl Usage {
    /// Returns the use of a pool; `None` if the node has no address of it.
    pub fn of(journal: &Journal) -> Option<Self> {
        let (place, range) = (journal.place.clone()?, journal.range.clone()?);
        let seen = journal.seen.as_ref()?;
        if journal.own.is_empty() {
            return None;
        }
        let is_inside =
            |at: &u128| address(place.net, *at).is_some_and(|address| range.contains(address));
        let own: BTreeSet<u128> = journal.own.keys().copied().collect();
        let entries = journal.taken.union(&own).filter(|at| is_inside(at)).count();
        let held = steps::held(journal);
        Some(Self {
            used: journal.own.len() - held + seen.others.used,
            held: held + seen.others.held.len(),
            claimed: seen.others.claimed,
            foreign: seen.others.foreign,
            free: range.capacity().saturating_sub(entries as u128),
            is_reporter: seen.is_first,
            is_exclusive: seen.is_exclusive,
            place,
            range,
        })
    }

    /// True if the pool runs short: 90 % of the range is in use, or, if it ran short before
    /// (`was_short`), 85 %. Held addresses are not in use.
    pub fn is_short(&self, was_short: bool) -> bool {
        let limit = if was_short { ENOUGH } else { SHORT };
        let capacity = self.range.capacity();
        let in_use = capacity.saturating_sub(self.left());
        in_use.saturating_mul(100) >= capacity.saturating_mul(limit)
    }

    /// True if Whereabouts is used again: it has written entries to a pool that is braid's alone.
    pub fn is_intruded(&self) -> bool {
        self.is_exclusive && self.foreign > 0
    }

    /// Returns a sentence about a pool in which Whereabouts has written entries again.
    pub fn intrusion(&self) -> String {
        let (name, foreign) = (&self.place.name, self.foreign);
        format!(
            "IPPool {name} is braid's alone, and Whereabouts has written entries ({foreign}): it runs \
             again on a node"
        )
    }

    /// Returns a sentence about a pool that runs short.
    pub fn shortage(&self) -> String {
        let (name, range) = (&self.place.name, &self.range);
        format!(
            "IPPool {name} runs short: {} of {} addresses of {}-{} are left",
            self.left(),
            range.capacity(),
            range.first,
            range.last
        )
    }

    /// Returns the number of addresses that pods can still get.
    fn left(&self) -> u128 {
        self.free.saturating_add(self.held as u128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::whereabouts::journal::{Own, Sought, State};
    use crate::ipam::whereabouts::last::Last;
    use crate::ipam::whereabouts::pool::{Entry, Node, Note, Pool};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn node(name: &str) -> Node {
        Node {
            name: name.into(),
            uid: "u".into(),
            boot: "b".into(),
        }
    }

    fn entry(id: &str) -> Entry {
        Entry {
            id: id.into(),
            ..Entry::default()
        }
    }

    /// Returns a pool with these entries of each node, and one of Whereabouts at each offset of `foreign`.
    fn pool(nodes: &[(&Node, &[(u128, Entry)])], foreign: &[u128]) -> Pool {
        let mut pool = Pool::default();
        let mut notes = BTreeMap::new();
        for (node, own) in nodes {
            let own: BTreeMap<u128, Entry> = own.iter().cloned().collect();
            let note = Note::new((*node).clone(), 1, &own, &Last::default());
            notes.insert(node.key(), note.text());
            pool.entries.extend(own);
        }
        let foreign = foreign.iter().map(|at| (*at, entry("whereabouts")));
        pool.entries.extend(foreign);
        pool.annotations = Some(notes);
        pool
    }

    /// Returns a journal of 10.0.0.1-10.0.0.20 with `used` and `held` addresses of the node.
    fn journal(used: u128, held: u128) -> Journal {
        let net = "10.0.0.0/24".parse().unwrap();
        let mut journal = Journal {
            place: Some(Place {
                name: "10.0.0.0-24".into(),
                net,
                network: String::new(),
                has_reservations: false,
                kubeconfig: PathBuf::new(),
            }),
            range: Some(PoolRange {
                net,
                prefix_len: 24,
                first: "10.0.0.1".parse().unwrap(),
                last: "10.0.0.20".parse().unwrap(),
                exclude: Vec::new(),
                gateway: None,
            }),
            ..Journal::default()
        };
        for at in 1..=used + held {
            let (entry, state) = if at <= used {
                (entry("c"), State::Used)
            } else {
                (Entry::held_by(&node("a")), State::Held)
            };
            let own = Own {
                entry,
                state,
                ..Own::default()
            };
            journal.own.insert(at, own);
        }
        journal
    }

    #[test]
    fn entries_are_those_of_braid_held_or_foreign() {
        let (own, other) = (node("a"), node("b"));
        let of_own = [(1, entry("c")), (2, Entry::held_by(&own))];
        let of_other = [(5, entry("x")), (6, Entry::held_by(&other))];
        // The last one is outside the range of the journal.
        let pool = pool(&[(&own, &of_own), (&other, &of_other)], &[8, 9, 30]);
        let mut journal = journal(1, 1);
        journal.read(&pool, &own, &Sought::default());
        let usage = Usage::of(&journal).unwrap();
        let numbers = (usage.used, usage.held, usage.foreign, usage.free);
        assert_eq!(numbers, (2, 2, 3, 14));
        assert!(!usage.is_intruded());
        let alone = Usage {
            is_exclusive: true,
            ..usage
        };
        assert!(alone.is_intruded());
        assert_eq!(
            alone.intrusion(),
            "IPPool 10.0.0.0-24 is braid's alone, and Whereabouts has written entries (3): it runs again \
             on a node"
        );
        journal.own.clear();
        assert_eq!(Usage::of(&journal), None, "the node has no address");
    }

    #[test]
    fn the_first_node_with_entries_reports() {
        let (first, second) = (node("a"), node("b"));
        let (first, second) = if first.key() < second.key() {
            (first, second)
        } else {
            (second, first)
        };
        let of_first = [(5, entry("x"))];
        for (of_first, expected) in [(&of_first[..], [true, false]), (&[], [true, true])] {
            let of_second = [(1, entry("c"))];
            let pool = pool(&[(&first, of_first), (&second, &of_second)], &[]);
            let is_first = [&first, &second].map(|node| {
                let mut journal = Journal::default();
                journal.read(&pool, node, &Sought::default());
                journal.seen.is_some_and(|seen| seen.is_first)
            });
            assert_eq!(is_first, expected);
        }
    }

    #[test]
    fn a_pool_runs_short_at_90_percent_until_it_is_below_85() {
        for (used, held, was_short, expected) in [
            (17, 0, false, false),
            (18, 0, false, true),
            (18, 2, false, true),
            (17, 3, false, false),
            (17, 0, true, true),
            (16, 4, true, false),
        ] {
            let mut journal = journal(used, held);
            journal.read(&Pool::default(), &node("a"), &Sought::default());
            let usage = Usage::of(&journal).unwrap();
            let is_short = usage.is_short(was_short);
            assert_eq!(is_short, expected, "{used} {held} {was_short}");
        }
        let mut journal = journal(18, 1);
        journal.read(&Pool::default(), &node("a"), &Sought::default());
        assert_eq!(
            Usage::of(&journal).unwrap().shortage(),
            "IPPool 10.0.0.0-24 runs short: 2 of 20 addresses of 10.0.0.1-10.0.0.20 are left"
        );
    }
}
