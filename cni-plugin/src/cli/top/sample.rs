//! Counters of all attached interfaces at one time, and the traffic between two samples.

use super::report::{InterfaceTraffic, LimitTraffic, NodeTraffic};
use crate::cli::shaped::{self, Direction};
use crate::cli::{output, status};
use braid_core::plan::thing::shaping::Traffic;
use braid_node::attach::counters::{self, Counters};
use braid_node::store::record;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

/// Link of the plugin `loopback`, which leads to no network.
const LOOPBACK: &str = "lo";

/// Counters of all attached interfaces.
pub(super) struct Sample {
    at: Instant,
    /// By container id and interface. A chain of single plugins has several records of one
    /// interface.
    interfaces: BTreeMap<(String, String), Interface>,
}

struct Interface {
    pod: Option<String>,
    network: String,
    counters: Counters,
    directions: Vec<Direction>,
}

impl Sample {
    /// Reads the counters. Interfaces of a namespace that is gone are left out.
    pub(super) fn take() -> Result<Self, braid_node::Error> {
        let mut interfaces = BTreeMap::new();
        for record in record::list()? {
            let counters = counters::of(&record, &output::log());
            for attached in &record.attachments {
                let ifname = attached.ifname.to_string();
                let Some(counters) = counters.get(&ifname) else {
                    continue;
                };
                if ifname == LOOPBACK {
                    continue;
                }
                let key = (record.key.owner.container_id.clone(), ifname);
                let interface = interfaces.entry(key).or_insert_with(|| Interface {
                    pod: status::pod_of(attached),
                    network: attached.network.clone(),
                    counters: *counters,
                    directions: Vec::new(),
                });
                interface.directions.extend(shaped::of(&record, attached));
            }
        }
        Ok(Self {
            at: Instant::now(),
            interfaces,
        })
    }
}

/// Returns the traffic of the interfaces that are in both samples, the busiest first.
pub(super) fn traffic(before: &Sample, now: &Sample) -> NodeTraffic {
    let seconds = (now.at - before.at).as_secs_f64();
    let mut interfaces = Vec::new();
    for (key, interface) in &now.interfaces {
        // Counters without an earlier sample have no rate.
        if let Some(earlier) = before.interfaces.get(key) {
            interfaces.push(of_interface(key, earlier, interface, seconds));
        }
    }
    interfaces.sort_by_key(|one| Reverse(one.bits()));
    NodeTraffic {
        seconds,
        interfaces,
    }
}

fn of_interface(
    (container_id, ifname): &(String, String),
    before: &Interface,
    now: &Interface,
    seconds: f64,
) -> InterfaceTraffic {
    let rate = |count: fn(&Counters) -> u64| {
        let more = count(&now.counters).saturating_sub(count(&before.counters));
        per_second(more, seconds)
    };
    let mut bandwidth = Vec::new();
    for direction in &now.directions {
        let toward = direction.toward;
        let earlier = before.directions.iter().find(|one| one.toward == toward);
        let earlier = earlier.and_then(|one| one.passed);
        if let (Some(earlier), Some(passed)) = (earlier, direction.passed) {
            bandwidth.push(of_limit(direction, &earlier, &passed, seconds));
        }
    }
    InterfaceTraffic {
        pod: now.pod.clone(),
        network: now.network.clone(),
        container_id: container_id.clone(),
        ifname: ifname.clone(),
        rx_bits_per_second: rate(|counters| counters.rx_bytes.saturating_mul(8)),
        tx_bits_per_second: rate(|counters| counters.tx_bytes.saturating_mul(8)),
        rx_packets_per_second: rate(|counters| counters.rx_packets),
        tx_packets_per_second: rate(|counters| counters.tx_packets),
        rx_dropped_per_second: rate(|counters| counters.rx_dropped),
        tx_dropped_per_second: rate(|counters| counters.tx_dropped),
        bandwidth,
    }
}

fn of_limit(direction: &Direction, before: &Traffic, now: &Traffic, seconds: f64) -> LimitTraffic {
    let rate =
        |count: fn(&Traffic) -> u64| per_second(count(now).saturating_sub(count(before)), seconds);
    LimitTraffic {
        direction: direction.toward.name().to_owned(),
        rate: direction.rate,
        bits_per_second: rate(|passed| passed.bytes.saturating_mul(8)),
        packets_per_second: rate(|passed| passed.packets),
        delayed_per_second: rate(|passed| passed.delayed),
        dropped_per_second: rate(|passed| passed.dropped),
        marked_per_second: rate(|passed| passed.marked),
        bypassed_per_second: rate(|passed| passed.bypassed),
        guarded_per_second: rate(|passed| passed.guarded),
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "for people"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds.max(0.001)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::thing::shaping::Toward;
    use std::time::Duration;

    fn sample(at: Instant, bytes: u64, packets: u64) -> Sample {
        let passed = Some(Traffic {
            bytes,
            packets,
            ..Traffic::default()
        });
        let direction = Direction {
            toward: Toward::Network,
            rate: 20_000_000,
            burst: 8_000,
            queue: "fq".to_owned(),
            passed,
        };
        let interface = |directions, bytes| Interface {
            pod: None,
            network: "pods".to_owned(),
            counters: Counters {
                rx_bytes: bytes,
                tx_dropped: packets,
                ..Counters::default()
            },
            directions,
        };
        let key = |ifname: &str| ("4f1c".to_owned(), ifname.to_owned());
        Sample {
            at,
            interfaces: BTreeMap::from([
                (key("eth0"), interface(vec![direction], bytes)),
                (key("net1"), interface(Vec::new(), 2 * bytes)),
            ]),
        }
    }

    #[test]
    fn traffic_is_the_difference_of_two_samples_and_the_busiest_comes_first() {
        let start = Instant::now();
        let before = sample(start, 1_000_000, 10);
        let mut now = sample(start + Duration::from_secs(2), 3_500_000, 30);
        let eth0 = now.interfaces.get(&("4f1c".to_owned(), "eth0".to_owned()));
        let counters = eth0.expect("eth0").counters;
        let new = Interface {
            pod: None,
            network: String::new(),
            counters,
            directions: Vec::new(),
        };
        now.interfaces
            .insert(("new".to_owned(), "eth0".to_owned()), new);
        let found = traffic(&before, &now);
        let rates: Vec<(&str, u64, u64, u64)> = found
            .interfaces
            .iter()
            .map(|one| {
                (
                    one.ifname.as_str(),
                    one.rx_bits_per_second,
                    one.tx_bits_per_second,
                    one.tx_dropped_per_second,
                )
            })
            .collect();
        assert_eq!(
            rates,
            [("net1", 20_000_000, 0, 10), ("eth0", 10_000_000, 0, 10)]
        );
        let limit = &found.interfaces[1].bandwidth[0];
        assert_eq!(
            (limit.direction.as_str(), limit.rate, limit.bits_per_second),
            ("egress", 20_000_000, 10_000_000)
        );
        assert_eq!(limit.packets_per_second, 10);
        assert!((found.seconds - 2.0).abs() < 0.001);
    }
}
