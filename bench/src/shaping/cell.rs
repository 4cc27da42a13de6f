//! What is varied, and how much of a rate can arrive as payload.

use crate::stats::float;
use crate::traffic::{DATAGRAM, Protocol};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A whole frame as queues count it: an MTU of 1500 and Ethernet's header.
const FRAME: u16 = 1514;
/// TCP's payload in it: without the headers of IP and TCP and TCP's time stamps.
const SEGMENT_V4: u16 = 1500 - 20 - 32;
const SEGMENT_V6: u16 = 1500 - 40 - 32;
/// Headers of a UDP datagram: Ethernet, IP, UDP.
const UDP_HEADERS_V4: u16 = 14 + 20 + 8;
const UDP_HEADERS_V6: u16 = 14 + 40 + 8;
/// The burst: so many parts of a second, and at least so many bits.
const BURST_PARTS: u64 = 100;
const LEAST_BURST: u64 = 64 * 1024 * 8;
/// What the rate lets through before the clock starts, at least: the burst, the first window of each of 16 flows, and what
/// these send again while that waits.
const SETTLE_BITS: f64 = 6e6;
/// And what while it runs: 500 frames, so that one at either end makes no difference.
const WINDOW_BITS: f64 = 6e6;
/// The same of TCP, of which a flow tells at once what several frames brought: at 1M four flows were off by up to 7 % in the
/// former, and by 1.3 % in this.
const TCP_WINDOW_BITS: f64 = 20e6;
/// From so many flows of TCP on, what they send again as they begin comes within the window too, and for so long that it
/// makes no difference.
const MANY_FLOWS: u16 = 16;
const MANY_FLOWS_WINDOW: Duration = Duration::from_secs(4);

/// Bits per second, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Rate(u64);

/// Which way the traffic goes, seen from the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// Version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
pub(crate) enum Family {
    #[value(name = "4")]
    #[serde(rename = "4")]
    V4,
    #[value(name = "6")]
    #[serde(rename = "6")]
    V6,
}

/// One combination of what is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    /// The limit of the pod, both ways.
    #[serde(rename = "rate_bps")]
    pub(crate) rate: Rate,
    pub(crate) direction: Direction,
    pub(crate) protocol: Protocol,
    pub(crate) flows: u16,
    pub(crate) family: Family,
}

impl Cell {
    /// The payload that the rate lets through, in bits per second.
    pub(crate) fn ideal_bps(&self) -> f64 {
        let frame = match (self.protocol, self.family) {
            (Protocol::Tcp, _) => FRAME,
            (Protocol::Udp, Family::V4) => DATAGRAM + UDP_HEADERS_V4,
            (Protocol::Udp, Family::V6) => DATAGRAM + UDP_HEADERS_V6,
        };
        self.rate.bps() * f64::from(self.payload()) / f64::from(frame)
    }

    /// Of a full segment or a datagram, in bytes.
    pub(crate) fn payload(&self) -> u16 {
        match (self.protocol, self.family) {
            (Protocol::Tcp, Family::V4) => SEGMENT_V4,
            (Protocol::Tcp, Family::V6) => SEGMENT_V6,
            (Protocol::Udp, _) => DATAGRAM,
        }
    }

    /// How long goodput is measured, at least.
    pub(crate) fn least_window(&self) -> Duration {
        let window = self.rate.least_window();
        if self.protocol == Protocol::Udp {
            return window;
        }
        let window = window.max(Duration::from_secs_f64(TCP_WINDOW_BITS / self.rate.bps()));
        if self.flows < MANY_FLOWS { window } else { window.max(MANY_FLOWS_WINDOW) }
    }
}

impl Rate {
    pub(crate) const M10: Rate = Rate(10_000_000);
    pub(crate) const M50: Rate = Rate(50_000_000);
    pub(crate) const M100: Rate = Rate(100_000_000);
    pub(crate) const ALL: [Rate; 4] = [Rate(1_000_000), Rate::M10, Rate::M100, Rate(1_000_000_000)];

    pub(crate) fn bps(self) -> f64 {
        float(self.0)
    }

    /// How long its traffic flows before the clock starts, at least.
    pub(crate) fn least_settle(self) -> Duration {
        Duration::from_secs_f64(SETTLE_BITS / self.bps())
    }

    /// How long a figure is measured, at least.
    pub(crate) fn least_window(self) -> Duration {
        Duration::from_secs_f64(WINDOW_BITS / self.bps())
    }

    /// The value of the capability `bandwidth`: this rate both ways.
    pub(crate) fn limits(self) -> Value {
        let (rate, burst) = (self.0, (self.0 / BURST_PARTS).max(LEAST_BURST));
        json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
    }
}

impl Direction {
    pub(crate) const ALL: [Direction; 2] = [Direction::Ingress, Direction::Egress];
}

impl Family {
    pub(crate) const ALL: [Family; 2] = [Family::V4, Family::V6];
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (text.get(..text.len() - 1), 1_000),
            Some(b'M') => (text.get(..text.len() - 1), 1_000_000),
            Some(b'G') => (text.get(..text.len() - 1), 1_000_000_000),
            _ => (Some(text), 1),
        };
        let count: u64 = digits.unwrap_or_default().parse().with_context(|| format!("\"{text}\" is not like 10M"))?;
        match count.checked_mul(unit) {
            Some(0) | None => bail!("\"{text}\" is no rate"),
            Some(bps) => Ok(Rate(bps)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        match units.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Direction::Ingress { "ingress" } else { "egress" })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Family::V4 { "4" } else { "6" })
    }
}

/// Without the flows.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { rate, direction, protocol, family, .. } = self;
        write!(f, "{rate} {direction} {protocol} IPv{family}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_they_are_read() {
        for text in ["1G", "10M", "1500k", "12345"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!("1000000".parse::<Rate>().unwrap().to_string(), "1M");
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        let refused = |text: &str| text.parse::<Rate>().unwrap_err().to_string();
        assert_eq!(refused("fast"), "\"fast\" is not like 10M");
        assert_eq!(refused("M"), "\"M\" is not like 10M");
        assert_eq!(refused("0M"), "\"0M\" is no rate");
        assert_eq!(refused("99999999999G"), "\"99999999999G\" is no rate");
    }

    #[test]
    fn ideal_is_the_payload_s_part_of_a_frame() {
        let ideal = |protocol, family| {
            let cell = Cell { rate: Rate::M10, direction: Direction::Egress, protocol, flows: 1, family };
            cell.ideal_bps().round()
        };
        let all = Protocol::ALL.map(|protocol| Family::ALL.map(|family| ideal(protocol, family)));
        let expected =
            [[10e6 * 1448.0 / 1514.0, 10e6 * 1428.0 / 1514.0], [10e6 * 1400.0 / 1442.0, 10e6 * 1400.0 / 1462.0]];
        assert_eq!(all, expected.map(|row| row.map(f64::round)));
    }

    #[test]
    fn slow_rates_are_measured_for_longer() {
        let least = |rate: Rate| (rate.least_settle().as_secs_f64(), rate.least_window().as_secs_f64());
        assert_eq!(Rate::ALL.map(least), [(6.0, 6.0), (0.6, 0.6), (0.06, 0.06), (0.006, 0.006)]);
    }

    #[test]
    fn goodput_of_tcp_is_measured_for_longer() {
        let least = |rate, protocol, flows| {
            let cell = Cell { rate, direction: Direction::Egress, protocol, flows, family: Family::V4 };
            cell.least_window().as_millis()
        };
        assert_eq!([1, 4, 16].map(|flows| least(Rate::M10, Protocol::Tcp, flows)), [2000, 2000, 4000]);
        assert_eq!([least(Rate(1_000_000), Protocol::Tcp, 16), least(Rate::M10, Protocol::Udp, 16)], [20_000, 600]);
    }

    #[test]
    fn burst_is_ten_milliseconds_of_the_rate_and_64_kib_at_least() {
        assert_eq!(Rate::M10.limits()["egressBurst"], 64 * 1024 * 8);
        assert_eq!(Rate::M100.limits()["ingressBurst"], 1_000_000);
    }
}
