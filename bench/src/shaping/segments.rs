//! Counts of TCP segments that arrived, and of retransmissions of segments that the shaper dropped.

use crate::node::in_netns;
use anyhow::{Context, Result};
use std::fs::File;

/// Counters of TCP in a network namespace (RFC 4022, and `TCPDelivered` of Linux 4.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    /// All segments, including retransmissions.
    sent: u32,
    resent: u32,
    /// Segments acknowledged by their receiver, each counted once, including segments that wait for
    /// an earlier one.
    delivered: u32,
}

impl Segments {
    pub(crate) fn of(netns: &File) -> Result<Self> {
        let read = |name| {
            in_netns(netns, || {
                crate::read::read(&format!("/proc/thread-self/net/{name}"))
            })
        };
        let (snmp, netstat) = (read("snmp")?, read("netstat")?);
        Self::parse(&snmp, &netstat).context("/proc/net has no counters of TCP")
    }

    fn parse(snmp: &str, netstat: &str) -> Option<Self> {
        Some(Segments {
            sent: counter(snmp, "Tcp:", "OutSegs")?,
            resent: counter(snmp, "Tcp:", "RetransSegs")?,
            delivered: counter(netstat, "TcpExt:", "TCPDelivered")?,
        })
    }

    /// Returns the number of segments that arrived since `before`.
    pub(crate) fn delivered_since(self, before: Self) -> u32 {
        self.delivered.wrapping_sub(before.delivered)
    }

    /// Returns the share of retransmissions since `before`; `None` if nothing was sent.
    pub(crate) fn part_since(self, before: Self) -> Option<f64> {
        let (sent, resent) = (
            self.sent.wrapping_sub(before.sent),
            self.resent.wrapping_sub(before.resent),
        );
        (sent > 0).then(|| f64::from(resent) / f64::from(sent))
    }
}

/// Returns the counter `name` from the two lines with the prefix `lines`: the first has names, the
/// second values. The kernel's counter has 64 bits; the low 32 are sufficient.
fn counter(text: &str, lines: &str, name: &str) -> Option<u32> {
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(lines))
        .map(str::split_whitespace);
    let (names, values) = (lines.next()?, lines.next()?);
    let value: u64 = names
        .zip(values)
        .find(|(of, _)| *of == name)?
        .1
        .parse()
        .ok()?;
    u32::try_from(value & u64::from(u32::MAX)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: MaxConn InSegs OutSegs RetransSegs\nTcp: -1 7 500 20\nUdp: A\nUdp: 1\n";
        let netstat =
            "TcpExt: SyncookiesSent TCPDelivered\nTcpExt: 9 4294967300\nIpExt: A\nIpExt: 1\n";
        let all = Segments {
            sent: 500,
            resent: 20,
            delivered: 4,
        };
        assert_eq!(Segments::parse(snmp, netstat), Some(all));
        assert_eq!(Segments::parse("Tcp: OutSegs\n", netstat), None);
    }

    #[test]
    fn counters_may_wrap() {
        let before = Segments {
            sent: u32::MAX - 99,
            resent: 0,
            delivered: u32::MAX,
        };
        let after = Segments {
            sent: 100,
            resent: 50,
            delivered: 9,
        };
        assert_eq!(
            (after.part_since(before), after.delivered_since(before)),
            (Some(0.25), 10)
        );
        assert_eq!(before.part_since(before), None);
    }
}
