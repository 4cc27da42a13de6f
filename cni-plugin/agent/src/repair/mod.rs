//! Repair of objects that another program has deleted or changed.
//!
//! ```text
//!  netlink groups ─► watch ─► message: may it be the agent's? ─► the comparison
//!  the same for links of pods ─► pods: records compared with the node, duplicates of their addresses
//!  comparison: broken objects ─► pace: now, or after a pause ─► restored ─► event, counter
//! ```

mod duplicates;
pub mod message;
pub mod pace;
pub(crate) mod pods;
pub mod watch;

use crate::events::{Reason, Warning};
use pace::{Pace, Verdict};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Kind of a restored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A link.
    Link,
    /// An address of a link.
    Address,
    /// An FDB entry.
    Fdb,
    /// A neighbour.
    Neighbour,
    /// A rule of the routing policy.
    Rule,
    /// A route.
    Route,
    /// An nf_tables table, or rules in one.
    Table,
    /// A sysctl.
    Sysctl,
    /// A network of a pod.
    Attachment,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Link,
        Self::Address,
        Self::Fdb,
        Self::Neighbour,
        Self::Rule,
        Self::Route,
        Self::Table,
        Self::Sysctl,
        Self::Attachment,
    ];

    /// Returns the value of the counter's label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Address => "address",
            Self::Fdb => "fdb",
            Self::Neighbour => "neighbour",
            Self::Rule => "rule",
            Self::Route => "route",
            Self::Table => "table",
            Self::Sysctl => "sysctl",
            Self::Attachment => "attachment",
        }
    }

    /// Returns the noun of the log lines and events.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Fdb => "FDB entry",
            Self::Link
            | Self::Address
            | Self::Neighbour
            | Self::Rule
            | Self::Route
            | Self::Table
            | Self::Sysctl
            | Self::Attachment => self.word(),
        }
    }
}

/// Repairs of one comparison after the other.
#[derive(Debug, Default)]
pub struct Repairs {
    pace: Pace,
    /// Repairs since the last report: their number, and the first one.
    made: BTreeMap<Kind, (u64, String)>,
    news: Vec<Warning>,
}

/// Repairs to report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of repairs by kind.
    pub counts: BTreeMap<Kind, u64>,
    /// Events.
    pub news: Vec<Warning>,
}

impl Repairs {
    /// Returns true if the broken thing is to be restored now. Otherwise it is restored after a
    /// pause, because another program breaks it again and again.
    pub fn may_restore(&mut self, thing: &str, now: Instant) -> bool {
        match self.pace.broken(thing, now) {
            Verdict::Restore => true,
            Verdict::Wait => false,
            Verdict::Pause(pause) => {
                let note = format!(
                    "another program breaks it again and again, so it is restored after a pause \
                     of up to a minute: {thing}"
                );
                tracing::warn!(
                    thing,
                    ?pause,
                    "it was broken again, and is restored after a pause"
                );
                let reason = Reason::RepairPaused;
                self.news.push(Warning { reason, note });
                false
            }
        }
    }

    /// Notes a repair, with the command or the name of the thing.
    pub fn made(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        let (count, _) = self.made.entry(kind).or_insert_with(|| (0, text()));
        *count += 1;
    }

    /// Returns the repairs since the last report.
    pub fn report(&mut self) -> Report {
        let mut report = Report {
            counts: BTreeMap::new(),
            news: std::mem::take(&mut self.news),
        };
        for (kind, (count, first)) in std::mem::take(&mut self.made) {
            report.counts.insert(kind, count);
            let reason = Reason::Repaired;
            let note = note(kind, count, &first);
            report.news.push(Warning { reason, note });
        }
        report
    }

    /// Returns the time until the end of the first pause.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        Some(self.pace.due(now)?.duration_since(now))
    }
}

fn note(kind: Kind, count: u64, first: &str) -> String {
    let noun = kind.noun();
    match count {
        1 => format!("restored a lost {noun}: {first}"),
        2 => format!("restored a lost {noun}, and one more: {first}"),
        _ => format!("restored a lost {noun}, and {} more: {first}", count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_of_a_kind_are_one_event_and_are_reported_once() {
        let mut repairs = Repairs::default();
        for number in 1..=3 {
            repairs.made(Kind::Route, || format!("ip route add 10.{number}.0.0/16"));
        }
        repairs.made(Kind::Link, || "ip link add braid-vxlan".to_owned());
        let report = repairs.report();
        assert_eq!(
            report.counts,
            BTreeMap::from([(Kind::Link, 1), (Kind::Route, 3)])
        );
        let notes: Vec<&str> = report.news.iter().map(|news| news.note.as_str()).collect();
        assert_eq!(
            notes,
            [
                "restored a lost link: ip link add braid-vxlan",
                "restored a lost route, and 2 more: ip route add 10.1.0.0/16",
            ]
        );
        assert_eq!(repairs.report(), Report::default());
    }

    #[test]
    fn a_thing_that_is_broken_again_and_again_gets_a_warning_and_a_pause() {
        let (mut repairs, now) = (Repairs::default(), Instant::now());
        let restored: Vec<bool> = (0..8).map(|_| repairs.may_restore("a", now)).collect();
        assert_eq!(
            restored,
            [true, true, true, true, true, false, false, false]
        );
        assert!(repairs.may_restore("b", now), "another thing");
        let report = repairs.report();
        assert_eq!(report.news.len(), 1, "{report:?}");
        assert_eq!(report.news[0].reason, Reason::RepairPaused);
        assert!(repairs.due(now).is_some());
    }
}
