//! What many durations of the same call amount to.

use serde::Serialize;
use std::time::Duration;

/// Durations of one call, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) calls: usize,
    pub(crate) min_ms: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Summary {
    /// `None` without a sample. A percentile is the smallest sample that so many percent do not exceed (nearest rank).
    pub(crate) fn of(samples: &[Duration]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let total: Duration = sorted.iter().sum();
        let rank = |percent: usize| {
            let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(at).copied().map(millis)
        };
        Some(Summary {
            calls: sorted.len(),
            min_ms: millis(*sorted.first()?),
            mean_ms: millis(total.checked_div(u32::try_from(sorted.len()).ok()?)?),
            p50_ms: rank(50)?,
            p95_ms: rank(95)?,
            p99_ms: rank(99)?,
        })
    }
}

/// The smallest that at least half of them do not exceed.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "no count of a bench needs more than 53 bits")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        values.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_samples_by_nearest_rank_in_any_order() {
        let summary = Summary::of(&ms((1..=100).rev())).unwrap();
        assert_eq!(
            summary,
            Summary { calls: 100, min_ms: 1.0, mean_ms: 50.5, p50_ms: 50.0, p95_ms: 95.0, p99_ms: 99.0 }
        );
    }

    #[test]
    fn few_samples_give_their_largest_as_p99() {
        let summary = Summary::of(&ms([4, 2, 9])).unwrap();
        assert_eq!(summary, Summary { calls: 3, min_ms: 2.0, mean_ms: 5.0, p50_ms: 4.0, p95_ms: 9.0, p99_ms: 9.0 });
    }

    #[test]
    fn no_sample_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }
}
