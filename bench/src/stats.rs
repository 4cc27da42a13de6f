//! Statistics of a figure.

use serde::Serialize;

/// Samples of a figure in the order of measurement, and their statistics.
///
/// Percentiles are by nearest rank: the Nth percentile is the sample at N percent of the sorted
/// samples, rounded up to a whole position.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) samples: Vec<f64>,
}

impl Spread {
    /// Returns the statistics of `samples`; `None` without a sample.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            sorted
                .get((sorted.len() * percent).div_ceil(100).checked_sub(1)?)
                .copied()
        };
        Some(Spread {
            p50: rank(50)?,
            p95: rank(95)?,
            p99: rank(99)?,
            min: *sorted.first()?,
            mean: sorted.iter().sum::<f64>() / float(sorted.len()),
            max: *sorted.last()?,
            samples: samples.to_vec(),
        })
    }

    /// Returns half of the distance between minimum and maximum, in percent of the median.
    pub(crate) fn off_percent(&self) -> f64 {
        (self.max - self.min) / 2.0 / self.p50 * 100.0
    }
}

/// Converts a count for calculations.
#[expect(
    clippy::cast_precision_loss,
    reason = "no count of a bench needs more than 53 bits"
)]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank_in_any_order() {
        let spread = Spread::of(&(1..=100).rev().map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!((spread.p50, spread.p95, spread.p99), (50.0, 95.0, 99.0));
        assert_eq!((spread.min, spread.mean, spread.max), (1.0, 50.5, 100.0));
    }

    #[test]
    fn few_samples_give_their_largest_as_p99() {
        let spread = Spread::of(&[4.0, 2.0, 9.0]).unwrap();
        assert_eq!((spread.p50, spread.p99), (4.0, 9.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn off_percent_is_half_the_range() {
        assert!((Spread::of(&[90.0, 100.0, 120.0]).unwrap().off_percent() - 15.0).abs() < 1e-9);
    }
}
