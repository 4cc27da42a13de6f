//! The state of the node in the metrics: read at a scrape, at most every few seconds.

use super::node::{NodeState, Passed, Shaped};
use crate::error::Error;
use braid_node::attach::usage::Addresses;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time in which a state serves further scrapes.
const FRESH: Duration = Duration::from_secs(5);
/// Longest time in which a scrape waits for the state. Then it gets the one before.
const LONGEST: Duration = Duration::from_secs(5);

/// Reader of the state. One thread at a time reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrape {
    shown: Shown,
    read: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl Scrape {
    /// Returns the collector that encodes the state.
    pub(super) fn collector(&self) -> Box<dyn Collector> {
        Box::new(self.shown.clone())
    }

    /// Reads the state unless it is fresh. `conflist` is the node's conflist.
    pub(super) async fn refresh(&self, conflist: PathBuf) {
        let Ok(mut read) = timeout(LONGEST, Arc::clone(&self.read).lock_owned()).await else {
            return;
        };
        if read.is_some_and(|read| read.elapsed() < FRESH) {
            return;
        }
        let shown = self.shown.clone();
        let work = spawn_blocking(move || {
            match NodeState::read(&conflist) {
                Ok(state) => shown.set(state),
                Err(err) => {
                    let err = Error::new("read the node's attachments for metrics", err);
                    tracing::warn!(error = %err, "metrics show an earlier state");
                }
            }
            *read = Some(Instant::now());
        });
        let _ = timeout(LONGEST, work).await;
    }
}

/// One of the counts of a range.
type Count = fn(&Addresses) -> u64;

/// The state that scrapes show.
#[derive(Debug, Clone, Default)]
struct Shown(Arc<Mutex<NodeState>>);

impl Shown {
    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: NodeState) {
        *self.lock() = state;
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.lock();
        let networks = state.usage.attachments.iter();
        gauges(
            &mut encoder,
            "braid_attachments",
            "Attachments of containers on this node by network",
            networks.map(|(network, count)| ([("network", network.as_str())], *count)),
        )?;
        let families: [(_, _, Count); 2] = [
            (
                "braid_addresses_used",
                "Leased addresses of host-local ranges by network and range",
                |addresses| addresses.used,
            ),
            (
                "braid_addresses_free",
                "Free addresses of host-local ranges; a range counts as at most 65536",
                |addresses| addresses.free,
            ),
        ];
        for (name, help, value) in families {
            let ranges = state
                .usage
                .ranges
                .iter()
                .map(|((network, range), addresses)| {
                    let labels = [("network", network.as_str()), ("range", range.as_str())];
                    (labels, value(addresses))
                });
            gauges(&mut encoder, name, help, ranges)?;
        }
        shaped(
            &mut encoder,
            "braid_shaped_bytes",
            "Bytes of limited interfaces by pod",
            |passed| passed.bytes,
            &state,
        )?;
        shaped(
            &mut encoder,
            "braid_shaped_dropped_packets",
            "Packets that the limit of an interface dropped, by pod",
            |passed| passed.dropped,
            &state,
        )
    }
}

/// Encodes a family of gauges; one sample 0 without labels if there are none.
pub(super) fn gauges<'a, const COUNT: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = ([(&'a str, &'a str); COUNT], u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let mut is_empty = true;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        is_empty = false;
    }
    if is_empty {
        family.encode_gauge(&0_u64)?;
    }
    Ok(())
}

/// Encodes a counter of each shaped direction; one sample 0 without labels if there are none.
fn shaped(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: fn(&Passed) -> u64,
    state: &NodeState,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (shaped, passed) in &state.shaped {
        let Shaped {
            namespace,
            pod,
            interface,
            direction,
        } = shaped;
        let labels = [
            ("namespace", namespace.as_str()),
            ("pod", pod),
            ("interface", interface),
            ("direction", direction),
        ];
        ConstCounter::new(value(passed)).encode(family.encode_family(&labels)?)?;
    }
    if state.shaped.is_empty() {
        ConstCounter::new(0_u64).encode(family)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn shaped_pod(name: &str) -> NodeState {
        let mut state = NodeState::default();
        let key = Shaped {
            namespace: "ns".to_owned(),
            pod: name.to_owned(),
            interface: "eth0".to_owned(),
            direction: "egress",
        };
        let passed = Passed {
            bytes: 9,
            dropped: 1,
        };
        state.shaped.insert(key, passed);
        state.usage.attachments.insert("pods".to_owned(), 1);
        state
    }

    #[test]
    fn thirty_pods_that_came_and_went_leave_no_series() {
        let metrics = Metrics::default();
        let before = metrics.text();
        for number in 0..30 {
            let pod = format!("web-{number}");
            metrics.scrape().shown.set(shaped_pod(&pod));
            let text = metrics.text();
            let labels =
                format!(r#"namespace="ns",pod="{pod}",interface="eth0",direction="egress""#);
            for line in [
                format!("braid_shaped_bytes_total{{{labels}}} 9"),
                format!("braid_shaped_dropped_packets_total{{{labels}}} 1"),
                "braid_attachments{network=\"pods\"} 1".to_owned(),
            ] {
                assert!(text.lines().any(|one| one == line), "{line}: {text}");
            }
            assert_eq!(text.matches("pod=\"").count(), 2, "{text}");
        }
        metrics.scrape().shown.set(NodeState::default());
        assert_eq!(metrics.text(), before);
    }

    #[test]
    fn every_family_has_a_sample_from_the_start() {
        let text = Metrics::default().text();
        for name in [
            "braid_attachments 0",
            "braid_addresses_used 0",
            "braid_addresses_free 0",
            "braid_pool_addresses_used 0",
            "braid_pool_addresses_held 0",
            "braid_pool_addresses_foreign 0",
            "braid_pool_addresses_free 0",
            "braid_shaped_bytes_total 0",
            "braid_shaped_dropped_packets_total 0",
            "braid_api_errors_total 0",
            "braid_queue_depth 0",
        ] {
            assert!(text.lines().any(|one| one == name), "{name}: {text}");
        }
    }
}
