//! Cells: the combinations of varied parameters, and the payload's share of a rate.

use crate::options::word;
use crate::traffic::{DATAGRAM, Protocol};
use anyhow::{Context, Error, Result};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// A full frame as queues count it: an MTU of 1500 and the Ethernet header.
const FRAME: u16 = 1514;
/// Payload of TCP in a full frame: without the headers of IP and TCP and TCP's timestamps.
const SEGMENT_V4: u16 = 1500 - 20 - 32;
const SEGMENT_V6: u16 = 1500 - 40 - 32;
/// Headers of a UDP datagram: Ethernet, IP, UDP.
const UDP_HEADERS_V4: u16 = 14 + 20 + 8;
const UDP_HEADERS_V6: u16 = 14 + 40 + 8;
/// Burst of a limit: the bits of one second divided by this number, but at least `LEAST_BURST`
/// bits.
const BURST_PARTS: u64 = 100;
const LEAST_BURST: u64 = 64 * 1024 * 8;
/// Minimum of bits that the rate lets through before the measurement starts: the burst, the first
/// window of each of 16 flows, and the retransmissions in the meantime.
const SETTLE_BITS: f64 = 6e6;
/// Minimum of bits during the measurement: 500 frames, so that one more frame at either end makes
/// no difference.
const WINDOW_BITS: f64 = 6e6;
/// Minimum of bits during a measurement of TCP. A flow reports several frames together. With
/// [`WINDOW_BITS`], four flows at 1M were off by up to 7 %, with this number by 1.3 %.
const TCP_WINDOW_BITS: f64 = 20e6;
/// Minimum number of TCP flows for a longer measurement. The initial retransmissions of so many
/// flows fall into the measurement. A longer measurement makes their effect small.
const MANY_FLOWS: u16 = 16;
const MANY_FLOWS_WINDOW: Duration = Duration::from_secs(4);

/// Rate in Mbit/s, written `10M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rate(NonZeroU32);

/// Direction of the traffic, from the pod's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// Version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    #[value(name = "4")]
    V4,
    #[value(name = "6")]
    V6,
}

/// One combination of the varied parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Limit of the pod in both directions.
    pub(crate) rate: Rate,
    pub(crate) direction: Direction,
    pub(crate) protocol: Protocol,
    pub(crate) flows: u16,
    pub(crate) family: Family,
}

impl Cell {
    /// Returns the payload that the rate allows, in bits per second.
    pub(crate) fn ideal_bps(&self) -> f64 {
        let frame = match (self.protocol, self.family) {
            (Protocol::Tcp, _) => FRAME,
            (Protocol::Udp, Family::V4) => DATAGRAM + UDP_HEADERS_V4,
            (Protocol::Udp, Family::V6) => DATAGRAM + UDP_HEADERS_V6,
        };
        self.rate.bps() * f64::from(self.payload()) / f64::from(frame)
    }

    /// Returns the payload of a full segment or a datagram, in bytes.
    pub(crate) fn payload(&self) -> u16 {
        match (self.protocol, self.family) {
            (Protocol::Tcp, Family::V4) => SEGMENT_V4,
            (Protocol::Tcp, Family::V6) => SEGMENT_V6,
            (Protocol::Udp, _) => DATAGRAM,
        }
    }

    /// Returns the minimum time of a goodput measurement.
    pub(crate) fn least_window(&self) -> Duration {
        let window = self.rate.least_window();
        if self.protocol == Protocol::Udp {
            return window;
        }
        let window = window.max(Duration::from_secs_f64(TCP_WINDOW_BITS / self.rate.bps()));
        if self.flows < MANY_FLOWS {
            window
        } else {
            window.max(MANY_FLOWS_WINDOW)
        }
    }

    /// Returns the names and values of the first columns of the table. `beside` is the limit of
    /// another pod that sends at the same time.
    pub(crate) fn setting(
        &self,
        conflist: &str,
        beside: Option<Rate>,
    ) -> Vec<(&'static str, String)> {
        let Cell {
            rate,
            direction,
            protocol,
            flows,
            family,
        } = self;
        vec![
            ("conflist", conflist.to_owned()),
            (
                "rate",
                beside.map_or_else(
                    || rate.to_string(),
                    |beside| format!("{rate} beside {beside}"),
                ),
            ),
            ("direction", word(direction)),
            ("protocol", word(protocol)),
            ("flows", flows.to_string()),
            ("family", word(family)),
        ]
    }
}

impl Rate {
    pub(crate) const M10: Rate = Rate::of(10);
    pub(crate) const M50: Rate = Rate::of(50);
    pub(crate) const M100: Rate = Rate::of(100);

    const fn of(mbps: u32) -> Rate {
        match NonZeroU32::new(mbps) {
            Some(mbps) => Rate(mbps),
            None => panic!("a rate of 0"),
        }
    }

    pub(crate) fn bps(self) -> f64 {
        f64::from(self.0.get()) * 1e6
    }

    /// Returns the minimum time of traffic before the measurement starts.
    pub(crate) fn least_settle(self) -> Duration {
        Duration::from_secs_f64(SETTLE_BITS / self.bps())
    }

    /// Returns the minimum time of a measurement.
    pub(crate) fn least_window(self) -> Duration {
        Duration::from_secs_f64(WINDOW_BITS / self.bps())
    }

    /// Returns the value of the capability `bandwidth` with this rate in both directions.
    pub(crate) fn limits(self) -> Value {
        let rate = u64::from(self.0.get()) * 1_000_000;
        let burst = (rate / BURST_PARTS).max(LEAST_BURST);
        json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mbps = text
            .strip_suffix('M')
            .and_then(|digits| digits.parse().ok());
        mbps.map(Rate)
            .with_context(|| format!("\"{text}\" is not like 10M"))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_as_it_is_read() {
        assert_eq!("1500M".parse::<Rate>().unwrap().to_string(), "1500M");
        for wrong in ["fast", "M", "0M", "10", "99999999999M"] {
            assert_eq!(
                wrong.parse::<Rate>().unwrap_err().to_string(),
                format!("\"{wrong}\" is not like 10M")
            );
        }
    }

    #[test]
    fn ideal_is_the_payloads_share_of_a_frame() {
        let ideal = |protocol, family| {
            let cell = Cell {
                rate: Rate::M10,
                direction: Direction::Egress,
                protocol,
                flows: 1,
                family,
            };
            cell.ideal_bps().round()
        };
        let all = [Protocol::Tcp, Protocol::Udp]
            .map(|protocol| [Family::V4, Family::V6].map(|of| ideal(protocol, of)));
        let expected = [
            [10e6 * 1448.0 / 1514.0, 10e6 * 1428.0 / 1514.0],
            [10e6 * 1400.0 / 1442.0, 10e6 * 1400.0 / 1462.0],
        ];
        assert_eq!(all, expected.map(|row| row.map(f64::round)));
    }

    #[test]
    fn slow_rates_are_measured_for_longer() {
        let least = |mbps| {
            (
                Rate::of(mbps).least_settle().as_secs_f64(),
                Rate::of(mbps).least_window().as_secs_f64(),
            )
        };
        assert_eq!(
            [1, 10, 100, 1000].map(least),
            [(6.0, 6.0), (0.6, 0.6), (0.06, 0.06), (0.006, 0.006)]
        );
    }

    #[test]
    fn goodput_of_tcp_is_measured_for_longer() {
        let least = |rate, protocol, flows| {
            let cell = Cell {
                rate,
                direction: Direction::Egress,
                protocol,
                flows,
                family: Family::V4,
            };
            cell.least_window().as_millis()
        };
        assert_eq!(
            [1, 4, 16].map(|flows| least(Rate::M10, Protocol::Tcp, flows)),
            [2000, 2000, 4000]
        );
        assert_eq!(
            [
                least(Rate::of(1), Protocol::Tcp, 16),
                least(Rate::M10, Protocol::Udp, 16)
            ],
            [20_000, 600]
        );
    }

    #[test]
    fn burst_is_ten_milliseconds_of_the_rate_and_64_kib_at_least() {
        assert_eq!(Rate::M10.limits()["egressBurst"], 64 * 1024 * 8);
        assert_eq!(Rate::M100.limits()["ingressBurst"], 1_000_000);
    }
}
