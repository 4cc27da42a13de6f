//! Prepared resource claims, and the bandwidth of the links that claims share. The series of links that
//! are not offered are gone.

use super::scrape::gauges;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Prepared claims, and bandwidths in bits per second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Number of prepared claims.
    pub(crate) claims: u64,
    /// Offered links.
    pub(crate) links: Vec<Link>,
}

/// Bandwidth of an offered link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// Bandwidth for claims.
    pub(crate) capacity: u64,
    /// Bandwidth that prepared claims have.
    pub(crate) claimed: u64,
}

/// Claims and links that scrapes show.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims(Arc<Mutex<Traffic>>);

impl Claims {
    pub(super) fn set(&self, traffic: Traffic) {
        *self.lock() = traffic;
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Claims {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Traffic { claims, links } = &*self.lock();
        gauges(
            &mut encoder,
            "braid_dra_prepared_claims",
            "Resource claims that are prepared for pods of this node",
            std::iter::once(([], *claims)),
        )?;
        let of = |value: u64, link| ([("link", link)], value);
        gauges(
            &mut encoder,
            "braid_dra_capacity_bytes_per_second",
            "Bandwidth of a link for claims",
            links.iter().map(|link| of(link.capacity / 8, &*link.name)),
        )?;
        gauges(
            &mut encoder,
            "braid_dra_claimed_bytes_per_second",
            "Bandwidth of a link that prepared claims have",
            links.iter().map(|link| of(link.claimed / 8, &*link.name)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Traffic};
    use crate::metrics::Metrics;

    #[test]
    fn a_link_that_is_no_longer_offered_leaves_no_series() {
        let metrics = Metrics::default();
        let before = metrics.text();
        metrics.claims(Traffic {
            claims: 2,
            links: vec![Link {
                name: "eth1".to_owned(),
                capacity: 10_000_000_000,
                claimed: 300_000_000,
            }],
        });
        let text = metrics.text();
        for line in [
            "braid_dra_prepared_claims 2",
            "braid_dra_capacity_bytes_per_second{link=\"eth1\"} 1250000000",
            "braid_dra_claimed_bytes_per_second{link=\"eth1\"} 37500000",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        metrics.claims(Traffic::default());
        assert_eq!(metrics.text(), before);
        assert!(before.contains("braid_dra_prepared_claims 0\n"), "{before}");
    }
}
