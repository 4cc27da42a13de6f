//! Retransmission delays of a DHCP client, and the times of a lease.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Source of random numbers. Each call returns one number.
pub type Dice<'d> = &'d mut dyn FnMut() -> u64;

/// Returns a random number of 32 bits.
pub fn number(rng: Dice<'_>) -> u32 {
    let [a, b, c, d, ..] = rng().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Timeouts of the DHCP daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time in which an offer must be confirmed before the client drops it.
    pub request: Duration,
    /// Maximum delay between retransmissions.
    pub resend_most: Duration,
    /// Time in which a lease must be acquired.
    pub give_up: Duration,
}

impl Default for Limits {
    /// Returns the timeouts of the reference daemon.
    fn default() -> Self {
        let [request, resend_most, give_up] = [10, 62, 208].map(Duration::from_secs);
        Self {
            request,
            resend_most,
            give_up,
        }
    }
}

/// Times of a lease, measured from boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Start of the lease.
    pub got: Duration,
    /// T1: time from which the client asks the server that granted the lease to renew it.
    pub renew: Duration,
    /// T2: time from which the client asks any server to renew the lease.
    pub rebind: Duration,
    /// End of the lease.
    pub expire: Duration,
}

impl Terms {
    /// Lease time in seconds of a lease that never expires.
    const FOR_EVER: u32 = u32::MAX;

    /// Returns the times of a lease that starts at `got`, from the server's values in seconds. If
    /// the server's value is missing or invalid, T1 is at 50 % of `length` and T2 at 85 %.
    pub fn new(got: Duration, length: u32, renew: Option<u32>, rebind: Option<u32>) -> Self {
        let after = |seconds: u32| got + Duration::from_secs(seconds.into());
        if length == Self::FOR_EVER {
            return Self {
                got,
                renew: Duration::MAX,
                rebind: Duration::MAX,
                expire: Duration::MAX,
            };
        }
        let part =
            |len: u32, hundred: u64| u32::try_from(u64::from(len) * hundred / 100).unwrap_or(len);
        let rebind = rebind
            .filter(|rebind| (1..=length).contains(rebind))
            .unwrap_or(part(length, 85));
        let renew = renew
            .filter(|renew| (1..=rebind).contains(renew))
            .unwrap_or(part(length, 50).min(rebind));
        Self {
            got,
            renew: after(renew),
            rebind: after(rebind),
            expire: after(length),
        }
    }

    /// Returns the time at which to repeat an unanswered renewal: after half of the time until
    /// `end`, as in RFC 2131. The minimum wait is 1/60 of the lease time, clamped to 1-60 s.
    pub fn ask_again(&self, now: Duration, end: Duration) -> Duration {
        let least = (self.expire.saturating_sub(self.got) / 60)
            .clamp(Duration::from_secs(1), Duration::from_mins(1));
        let wait = (end.saturating_sub(now) / 2).max(least);
        now.saturating_add(wait).min(end)
    }
}

/// Returns the delay after the unanswered packet number `sent`, counted from 1. The first four
/// delays are 2 s, as in the reference daemon. Later delays double from 4 s up to `most`. Each
/// delay has a random jitter of up to 1 s.
pub fn backoff(sent: u32, most: Duration, rng: Dice<'_>) -> Duration {
    const SHORT: u32 = 4;
    let wait = match sent.saturating_sub(SHORT) {
        0 => Duration::from_secs(2),
        more => Duration::from_secs(4 << (more - 1).min(8)).min(most),
    };
    // Random jitter of up to one second in both directions.
    (wait + Duration::from_millis(rng() % 2000)).saturating_sub(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delays_are_short_four_times_and_then_double_up_to_the_maximum() {
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
    fn missing_or_invalid_times_are_derived_from_the_length() {
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
    fn renewal_is_retried_ever_sooner_and_never_after_the_end() {
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
