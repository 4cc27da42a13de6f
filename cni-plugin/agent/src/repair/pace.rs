//! Pauses before a thing is restored that another program breaks again and again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Repairs of a thing within [`MINUTE`] without a pause.
const MOST: usize = 5;
const MINUTE: Duration = Duration::from_mins(1);
/// Pause before the first repair that is one too many. Each further pause is twice as long.
const FIRST: Duration = Duration::from_secs(2);
/// Longest pause.
const LONGEST: Duration = Duration::from_mins(1);
/// Time in which a pause has just ended, and pause until the next comparison then.
const JUST: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(100);
/// Time without a break after which the breaks of a thing are forgotten.
const CALM: Duration = Duration::from_mins(2);

/// Decision about a broken thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Restore it now.
    Restore,
    /// Restore it after a pause, which begins now.
    Pause(Duration),
    /// The pause is not over.
    Wait,
}

/// Things that were broken lately, by name.
#[derive(Debug, Default)]
pub struct Pace {
    things: BTreeMap<String, Thing>,
}

#[derive(Debug)]
struct Thing {
    /// Times within the last minute at which it was found broken.
    breaks: VecDeque<Instant>,
    /// Time at which it was found broken or restored last.
    last: Instant,
    pause: Option<Duration>,
    /// End of the pause, until the thing is restored.
    until: Option<Instant>,
}

impl Pace {
    /// Decides about a thing that is broken now.
    pub fn broken(&mut self, name: &str, now: Instant) -> Verdict {
        self.things
            .retain(|_, thing| thing.is_paused(now) || thing.is_recent(now));
        let thing = self.things.entry(name.to_owned()).or_insert_with(|| Thing {
            breaks: VecDeque::new(),
            last: now,
            pause: None,
            until: None,
        });
        thing.broken(now)
    }

    /// Returns the time at which a comparison is due for the first pause that ends; `None` without one.
    /// A pause that has just ended counts: the comparison in which it ended may have waited.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let ends = self.things.values().filter_map(|thing| thing.until);
        let open = ends.filter(|until| *until + JUST > now);
        open.map(|until| if until > now { until } else { now + AGAIN })
            .min()
    }
}

impl Thing {
    fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.duration_since(self.last) < CALM
    }

    fn broken(&mut self, now: Instant) -> Verdict {
        if self.is_paused(now) {
            return Verdict::Wait;
        }
        self.last = now;
        if self.until.take().is_some() {
            return Verdict::Restore;
        }
        self.breaks.push_back(now);
        self.breaks
            .retain(|broken| now.duration_since(*broken) < MINUTE);
        if self.pause.is_none() && self.breaks.len() <= MOST {
            return Verdict::Restore;
        }
        let pause = self.pause.map_or(FIRST, |pause| pause * 2).min(LONGEST);
        (self.pause, self.until) = (Some(pause), Some(now + pause));
        Verdict::Pause(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the decisions about a thing that is found broken at these seconds.
    fn decisions(pace: &mut Pace, start: Instant, seconds: &[u64]) -> Vec<Verdict> {
        let mut decisions = Vec::new();
        for second in seconds {
            let now = start + Duration::from_secs(*second);
            decisions.push(pace.broken("route", now));
        }
        decisions
    }

    #[test]
    fn the_sixth_break_of_a_minute_begins_a_pause() {
        use Verdict::{Pause, Restore, Wait};
        let pause = |seconds| Pause(Duration::from_secs(seconds));
        let table: [(&[u64], &[Verdict]); 4] = [
            (&[0, 1, 2, 3, 4], &[Restore; 5]),
            (
                &[0, 1, 2, 3, 4, 5, 6, 7],
                &[
                    Restore,
                    Restore,
                    Restore,
                    Restore,
                    Restore,
                    pause(2),
                    Wait,
                    Restore,
                ],
            ),
            // Five in each minute are no fight.
            (
                &[0, 12, 24, 36, 48, 60, 72, 84, 96, 108, 120],
                &[Restore; 11],
            ),
            // After two minutes in which it stays, it is as new.
            (
                &[0, 0, 0, 0, 0, 0, 2, 122],
                &[
                    Restore,
                    Restore,
                    Restore,
                    Restore,
                    Restore,
                    pause(2),
                    Restore,
                    Restore,
                ],
            ),
        ];
        for (seconds, expected) in table {
            let found = decisions(&mut Pace::default(), Instant::now(), seconds);
            assert_eq!(found, expected, "{seconds:?}");
        }
    }

    #[test]
    fn pauses_grow_to_a_minute_and_the_thing_is_restored_after_each() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..MOST {
            assert_eq!(pace.broken("route", now), Verdict::Restore);
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let Verdict::Pause(pause) = pace.broken("route", now) else {
                panic!("no pause");
            };
            assert_eq!(pace.due(now), Some(now + pause));
            now += pause;
            assert_eq!(pace.broken("route", now), Verdict::Restore);
            assert_eq!(pace.due(now), None);
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn things_have_pauses_of_their_own_and_are_forgotten() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for _ in 0..=MOST {
            pace.broken("route", now);
        }
        assert_eq!(pace.broken("route", now), Verdict::Wait);
        assert_eq!(pace.broken("link", now), Verdict::Restore);
        let later = now + CALM + LONGEST;
        assert_eq!(pace.broken("rule", later), Verdict::Restore);
        assert_eq!(pace.things.len(), 1);
    }

    #[test]
    fn a_comparison_that_waits_at_the_end_of_a_pause_is_repeated_soon() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..MOST {
            pace.broken("route", start);
        }
        assert_eq!(pace.broken("route", start), Verdict::Pause(FIRST));
        assert_eq!(pace.due(at(0)), Some(at(2_000)));
        assert_eq!(pace.broken("route", at(1_999)), Verdict::Wait);
        assert_eq!(pace.due(at(2_001)), Some(at(2_101)));
        assert_eq!(pace.broken("route", at(2_101)), Verdict::Restore);
        assert_eq!(pace.due(at(2_102)), None);
        // Another program may have restored it.
        assert!(matches!(pace.broken("route", at(2_200)), Verdict::Pause(_)));
        assert_eq!(pace.due(at(60_000)), None);
    }
}
