//! How many of TCP's segments are sent again, since the shaper dropped them.

use crate::node::in_netns;
use anyhow::{Context, Result};
use std::fs::File;

/// TCP's counters of a network namespace (RFC 4022).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segments {
    /// All, those that are sent again included.
    sent: u32,
    resent: u32,
}

impl Segments {
    pub(crate) fn of(netns: &File) -> Result<Self> {
        let text = in_netns(netns, || crate::read("/proc/thread-self/net/snmp"))?;
        Self::parse(&text).context("/proc/net/snmp has no counters of TCP")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:")).map(str::split_whitespace);
        let (names, values) = (lines.next()?, lines.next()?);
        let values: Vec<_> = names.zip(values).collect();
        let value = |wanted| values.iter().find(|(name, _)| *name == wanted)?.1.parse().ok();
        Some(Segments { sent: value("OutSegs")?, resent: value("RetransSegs")? })
    }

    /// The part of the segments since `before` that was sent again; `None` where nothing was sent.
    pub(crate) fn part_since(self, before: Self) -> Option<f64> {
        let (sent, resent) = (self.sent.wrapping_sub(before.sent), self.resent.wrapping_sub(before.resent));
        (sent > 0).then(|| f64::from(resent) / f64::from(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: MaxConn InSegs OutSegs RetransSegs\nTcp: -1 7 500 20\nUdp: A\nUdp: 1\n";
        assert_eq!(Segments::parse(text), Some(Segments { sent: 500, resent: 20 }));
        assert_eq!(Segments::parse("Tcp: OutSegs\n"), None);
    }

    #[test]
    fn counters_may_wrap() {
        let (before, after) = (Segments { sent: u32::MAX - 99, resent: 0 }, Segments { sent: 100, resent: 50 });
        assert_eq!(after.part_since(before), Some(0.25));
        assert_eq!(before.part_since(before), None);
    }
}
