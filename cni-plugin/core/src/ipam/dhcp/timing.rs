//! Waits before a packet is sent once more, and the times of a lease.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Random numbers, one at each call.
pub type Dice<'d> = &'d mut dyn FnMut() -> u64;

/// A number of 32 bits.
pub fn number(rng: Dice<'_>) -> u32 {
    let [a, b, c, d, ..] = rng().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Limits of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time in which an offer must be confirmed; then another one is looked for.
    pub request: Duration,
    /// Longest wait before a packet is sent once more.
    pub resend_most: Duration,
    /// Time in which there must be a lease.
    pub give_up: Duration,
}

impl Default for Limits {
    /// Those of the reference.
    fn default() -> Self {
        let [request, resend_most, give_up] = [10, 62, 208].map(Duration::from_secs);
        Self {
            request,
            resend_most,
            give_up,
        }
    }
}

/// Times of a lease, counted from when it was got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// When it was got, since boot.
    pub got: Duration,
    /// From then on its server is asked to prolong it: T1.
    pub renew: Duration,
    /// From then on any server is: T2.
    pub rebind: Duration,
    /// It is void from then on.
    pub expire: Duration,
}

impl Terms {
    /// Number of seconds that stands for no end.
    const FOR_EVER: u32 = u32::MAX;

    /// Terms as servers say them, in seconds; those that are not said, or make no sense, follow
    /// from the length.
    pub fn new(got: Duration, length: u32, renew: Option<u32>, rebind: Option<u32>) -> Self {
        let at = |seconds: u32| got + Duration::from_secs(seconds.into());
        if length == Self::FOR_EVER {
            return Self {
                got,
                renew: Duration::MAX,
                rebind: Duration::MAX,
                expire: Duration::MAX,
            };
        }
        let part =
            |of: u32, hundred: u64| u32::try_from(u64::from(of) * hundred / 100).unwrap_or(of);
        let rebind = rebind
            .filter(|rebind| (1..=length).contains(rebind))
            .unwrap_or(part(length, 85));
        let renew = renew
            .filter(|renew| (1..=rebind).contains(renew))
            .unwrap_or(part(length, 50).min(rebind));
        Self {
            got,
            renew: at(renew),
            rebind: at(rebind),
            expire: at(length),
        }
    }

    /// When to ask again while the answer is out: at half of what is left until `end`, as RFC 2131
    /// has it, but not for each of the last moments.
    pub fn ask_again(&self, now: Duration, end: Duration) -> Duration {
        let least = (self.expire.saturating_sub(self.got) / 60)
            .clamp(Duration::from_secs(1), Duration::from_mins(1));
        let wait = (end.saturating_sub(now) / 2).max(least);
        now.saturating_add(wait).min(end)
    }
}

/// Wait behind the packet number `sent`, from 1 on, until there is an answer: four short ones, as
/// the reference waits, then each twice as long as the one before.
pub fn backoff(sent: u32, most: Duration, rng: Dice<'_>) -> Duration {
    const SHORT: u32 = 4;
    let wait = match sent.saturating_sub(SHORT) {
        0 => Duration::from_secs(2),
        more => Duration::from_secs(4 << (more - 1).min(8)).min(most),
    };
    // One second more or less.
    (wait + Duration::from_millis(rng() % 2000)).saturating_sub(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn waits_are_short_four_times_and_double_up_to_the_most() {
        let wait = |sent| backoff(sent, seconds(62), &mut || 1000).as_secs();
        let waits: Vec<u64> = (1..=11).map(wait).collect();
        assert_eq!(waits, [2, 2, 2, 2, 4, 8, 16, 32, 62, 62, 62]);
        assert_eq!(backoff(1, seconds(62), &mut || 0), seconds(1));
        assert_eq!(
            backoff(u32::MAX, seconds(62), &mut || 1999),
            seconds(62) + Duration::from_millis(999)
        );
    }

    #[test]
    fn terms_that_a_server_leaves_out_or_garbles_follow_from_the_length() {
        let terms = |renew, rebind| {
            let terms = Terms::new(seconds(100), 1000, renew, rebind);
            [terms.renew, terms.rebind, terms.expire].map(|at| at.as_secs() - 100)
        };
        assert_eq!(terms(None, None), [500, 850, 1000]);
        assert_eq!(terms(Some(300), Some(700)), [300, 700, 1000]);
        assert_eq!(terms(Some(900), Some(700)), [500, 700, 1000]);
        assert_eq!(terms(Some(0), Some(2000)), [500, 850, 1000]);
        assert_eq!(terms(None, Some(400)), [400, 400, 1000]);
        assert_eq!(
            Terms::new(seconds(1), u32::MAX, None, None).renew,
            Duration::MAX
        );
    }

    #[test]
    fn a_lease_is_asked_for_again_ever_sooner_and_never_past_the_end() {
        let terms = Terms::new(Duration::ZERO, 3600, None, None);
        let (mut now, mut asked) = (terms.renew, Vec::new());
        while now < terms.rebind {
            asked.push(now.as_secs());
            now = terms.ask_again(now, terms.rebind);
        }
        assert_eq!(asked, [1800, 2430, 2745, 2902, 2981, 3041]);
        assert_eq!(now, terms.rebind);
        let endless = Terms::new(Duration::ZERO, u32::MAX, None, None);
        assert!(endless.ask_again(seconds(5), Duration::MAX) > seconds(1_000_000));
    }
}
