//! A range of addresses in a pool.

use crate::ipam::range::{from_bits, to_bits};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Most addresses between the places where two neighbouring nodes begin to look for a free one.
const STRIDE: u128 = 256;
/// Largest distance of an address from its network address that Whereabouts reads. It drops entries of
/// larger ones at its next write.
const OFFSET_MAX: u128 = (1 << 63) - 1;

/// A range whose addresses are in a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRange {
    /// The network, without host bits.
    pub net: IpNet,
    /// Prefix length of the assigned addresses.
    pub prefix_len: u8,
    /// First address that may be assigned.
    pub first: IpAddr,
    /// Last address that may be assigned.
    pub last: IpAddr,
    /// Networks with addresses that are not assigned.
    pub exclude: Vec<IpNet>,
    /// Gateway of the range, which is not assigned.
    pub gateway: Option<IpAddr>,
}

impl PoolRange {
    /// True if the address may be assigned: it is between the first and the last, neither excluded
    /// nor the gateway.
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_inside = address.is_ipv4() == self.first.is_ipv4()
            && (self.first..=self.last).contains(&address);
        is_inside
            && self.gateway != Some(address)
            && !self.exclude.iter().any(|net| net.contains(&address))
    }

    /// True if the address may be assigned, and is the `requested` one if there is one.
    pub fn has(&self, address: Option<IpAddr>, requested: Option<IpAddr>) -> bool {
        let is_requested = |address| requested.is_none_or(|requested| requested == address);
        address.is_some_and(|address| self.contains(address) && is_requested(address))
    }

    /// Returns the part of the range that a node may assign addresses of; `None` if it has none.
    pub fn slice(&self, net: IpNet) -> Option<Self> {
        let (first, last) = usable(net);
        let slice = Self {
            net,
            first: first.max(self.first),
            last: last.min(self.last),
            ..self.clone()
        };
        let is_inside = self.net.contains(&net) && slice.first <= slice.last;
        is_inside.then_some(slice)
    }

    /// Returns the part of the range that Whereabouts reads too; `None` if it reads none of it.
    pub fn shared(&self) -> Option<Self> {
        let readable = to_bits(self.net.network()).saturating_add(OFFSET_MAX);
        let last = to_bits(self.last).min(readable);
        (to_bits(self.first) <= readable).then(|| Self {
            last: from_bits(last, self.last.is_ipv4()),
            ..self.clone()
        })
    }

    /// Returns the addresses that may be assigned and that `is_taken` does not hold, in the order in
    /// which a node of a pool takes them: from a place of its own on, so that nodes seldom choose the
    /// same address, then from the lowest. `rank` is the node's place among the `nodes` of the pool.
    pub fn free_from<'a>(
        &'a self,
        rank: usize,
        nodes: usize,
        is_taken: impl Fn(IpAddr) -> bool + 'a,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        let (first, last) = (to_bits(self.first), to_bits(self.last));
        let (rank, nodes) = (rank as u128, nodes.max(1) as u128);
        let size = (last - first).saturating_add(1);
        let begin = first + (rank * size.min(STRIDE * nodes) / nodes).min(last - first);
        let before = begin.checked_sub(1);
        let parts = [Some((begin, last)), before.map(|before| (first, before))];
        let mut parts: VecDeque<(u128, u128)> = parts.into_iter().flatten().collect();
        std::iter::from_fn(move || {
            while let Some((from, to)) = parts.pop_front() {
                if let Some(found) = self.next_free(from..=to, &is_taken) {
                    if found < to {
                        parts.push_front((found + 1, to));
                    }
                    return Some(from_bits(found, self.first.is_ipv4()));
                }
            }
            None
        })
    }

    /// Returns the number of addresses that may be assigned.
    pub fn capacity(&self) -> u128 {
        let is_ipv4 = self.first.is_ipv4();
        let (first, last) = (to_bits(self.first), to_bits(self.last));
        let mut excluded: Vec<(u128, u128)> = self
            .exclude
            .iter()
            .filter(|net| matches!(net, IpNet::V4(_)) == is_ipv4)
            .map(|net| (to_bits(net.network()), to_bits(net.broadcast())))
            .collect();
        let gateway = self.gateway.filter(|gateway| gateway.is_ipv4() == is_ipv4);
        excluded.extend(gateway.map(|gateway| (to_bits(gateway), to_bits(gateway))));
        excluded.sort_unstable();
        let (mut capacity, mut next) = (0, first);
        for (start, end) in excluded {
            let end_of_gap = start.min(last.saturating_add(1));
            capacity += end_of_gap.saturating_sub(next);
            next = next.max(end.saturating_add(1));
        }
        capacity + last.saturating_add(1).saturating_sub(next)
    }

    /// Returns the addresses that may be assigned and that `is_taken` does not hold, lowest first.
    pub fn free<'a>(
        &'a self,
        is_taken: impl Fn(IpAddr) -> bool + 'a,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        self.free_from(0, 1, is_taken)
    }

    fn next_free(
        &self,
        bits: RangeInclusive<u128>,
        is_taken: &impl Fn(IpAddr) -> bool,
    ) -> Option<u128> {
        let (mut next, last) = (*bits.start(), *bits.end());
        while next <= last {
            let address = from_bits(next, self.first.is_ipv4());
            let excluded = self.exclude.iter().find(|net| net.contains(&address));
            let is_gateway = self.gateway == Some(address);
            if excluded.is_none() && !is_gateway && !is_taken(address) {
                return Some(next);
            }
            let end = excluded.map_or(next, |net| to_bits(net.broadcast()));
            next = end.checked_add(1)?;
        }
        None
    }
}

/// True if Whereabouts does not read an entry at this offset.
pub fn is_far(offset: u128) -> bool {
    offset > OFFSET_MAX
}

/// Returns the first and the last address that may be assigned: all but the network address and the
/// last one, or both addresses of a /31 and a /127, or the only one of a /32 and a /128.
pub(super) fn usable(net: IpNet) -> (IpAddr, IpAddr) {
    let (network, last) = (to_bits(net.network()), to_bits(net.broadcast()));
    let is_ipv4 = matches!(net, IpNet::V4(_));
    if last - network < 2 {
        return (from_bits(network, is_ipv4), from_bits(last, is_ipv4));
    }
    (
        from_bits(network + 1, is_ipv4),
        from_bits(last - 1, is_ipv4),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> PoolRange {
        PoolRange {
            net: "10.0.0.0/16".parse().unwrap(),
            prefix_len: 16,
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            exclude: Vec::new(),
            gateway: None,
        }
    }

    #[test]
    fn nodes_begin_apart_and_pass_all_addresses() {
        let small = range("10.0.0.10", "10.0.0.19");
        for (rank, nodes, expected) in [
            (0, 1, "10.0.0.10"),
            (0, 2, "10.0.0.10"),
            (1, 2, "10.0.0.15"),
            (9, 10, "10.0.0.19"),
            (19, 20, "10.0.0.19"),
        ] {
            let mut free = small.free_from(rank, nodes, |_| false);
            assert_eq!(free.next().unwrap().to_string(), expected, "{rank} {nodes}");
            assert_eq!(1 + free.count(), 10, "{rank} {nodes}");
        }
        let large = range("10.0.0.1", "10.0.255.254");
        let begin = large.free_from(3, 10, |_| false).next();
        assert_eq!(begin.unwrap().to_string(), "10.0.3.1");
    }

    #[test]
    fn whereabouts_reads_the_lower_half_of_an_ipv6_subnet() {
        let range = |first: &str, last: &str| PoolRange {
            net: "fd00::/64".parse().unwrap(),
            ..range(first, last)
        };
        let ends = |range: PoolRange| {
            let shared = range.shared()?;
            Some(format!("{}-{}", shared.first, shared.last))
        };
        let all = range("fd00::1", "fd00::ffff:ffff:ffff:fffe");
        assert_eq!(
            ends(all).as_deref(),
            Some("fd00::1-fd00::7fff:ffff:ffff:ffff")
        );
        let near = range("fd00::1", "fd00::9");
        assert_eq!(ends(near).as_deref(), Some("fd00::1-fd00::9"));
        let far = range("fd00::8000:0:0:0", "fd00::8000:0:0:9");
        assert_eq!(ends(far), None);
        assert!(is_far(1 << 63) && !is_far((1 << 63) - 1));
    }
}
