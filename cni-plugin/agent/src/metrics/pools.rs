//! Use of the pools of cluster-wide addresses that the node uses. The series of others are gone.

use super::scrape::gauges;
use braid_core::ipam::whereabouts::usage::Usage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One of the counts of a pool.
type Count = fn(&Usage) -> u64;

/// The pools that scrapes show.
#[derive(Debug, Clone, Default)]
pub(super) struct Pools(Arc<Mutex<Vec<Usage>>>);

impl Pools {
    pub(super) fn set(&self, usages: Vec<Usage>) {
        *self.lock() = usages;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Usage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Pools {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usages = self.lock();
        let families: [(_, _, Count); 5] = [
            (
                "braid_pool_addresses_used",
                "Addresses of a cluster-wide pool that containers of braid have",
                |usage| usage.used as u64,
            ),
            (
                "braid_pool_addresses_held",
                "Addresses of a cluster-wide pool that nodes hold for their next pods",
                |usage| usage.held as u64,
            ),
            (
                "braid_pool_addresses_claimed",
                "Addresses of a cluster-wide pool that claims without a pod have",
                |usage| usage.claimed as u64,
            ),
            (
                "braid_pool_addresses_foreign",
                "Addresses of a cluster-wide pool that containers of Whereabouts have",
                |usage| usage.foreign as u64,
            ),
            (
                "braid_pool_addresses_free",
                "Free addresses of a cluster-wide pool",
                |usage| u64::try_from(usage.free).unwrap_or(u64::MAX),
            ),
        ];
        for (name, help, value) in families {
            let pools = usages
                .iter()
                .map(|usage| ([("pool", usage.place.name.as_str())], value(usage)));
            gauges(&mut encoder, name, help, pools)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::events::pools::tests::usage;
    use crate::metrics::Metrics;

    #[test]
    fn a_pool_that_the_node_no_longer_uses_leaves_no_series() {
        let metrics = Metrics::default();
        let before = metrics.text();
        metrics.pools(vec![usage(17, true)]);
        let text = metrics.text();
        for line in [
            "braid_pool_addresses_used{pool=\"10.0.0.0-24\"} 17",
            "braid_pool_addresses_held{pool=\"10.0.0.0-24\"} 1",
            "braid_pool_addresses_claimed{pool=\"10.0.0.0-24\"} 0",
            "braid_pool_addresses_foreign{pool=\"10.0.0.0-24\"} 0",
            "braid_pool_addresses_free{pool=\"10.0.0.0-24\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        metrics.pools(Vec::new());
        assert_eq!(metrics.text(), before);
    }
}
