//! Order in which the addresses of a range set are tried. The order is round robin: it starts after
//! the last reserved address, goes around once, and skips gateways.

use crate::ipam::range::{Range, RangeSet, to_bits};
use std::net::IpAddr;

/// Addresses from `first` to `last`, inclusive, as numbers that [`to_bits`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub first: u128,
    /// Last address, inclusive.
    pub last: u128,
}

/// Returns the spans to search for a free address, in order. Together they contain every address
/// except the gateways, once.
///
/// The search starts after `last_reserved`, so that a released address is reused as late as
/// possible. A changed configuration may no longer have `last_reserved` in the set. The search then
/// starts at the first range.
pub fn spans(set: &RangeSet, last_reserved: Option<IpAddr>) -> Vec<Span> {
    let ranges = set.ranges();
    let start = last_reserved.and_then(|ip| {
        let index = ranges.iter().position(|range| range.contains(ip))?;
        Some((index, to_bits(ip)))
    });
    let mut spans = Vec::with_capacity(2 * ranges.len() + 2);
    let Some((index, last)) = start else {
        for range in ranges {
            push(
                &mut spans,
                range,
                to_bits(range.range_start()),
                to_bits(range.range_end()),
            );
        }
        return spans;
    };
    let split = &ranges[index];
    if last < to_bits(split.range_end()) {
        push(&mut spans, split, last + 1, to_bits(split.range_end()));
    }
    for range in ranges[index + 1..].iter().chain(&ranges[..index]) {
        push(
            &mut spans,
            range,
            to_bits(range.range_start()),
            to_bits(range.range_end()),
        );
    }
    push(&mut spans, split, to_bits(split.range_start()), last);
    spans
}

/// Adds `first..=last` without the range's gateway.
fn push(spans: &mut Vec<Span>, range: &Range, first: u128, last: u128) {
    let is_ipv4 = range.range_start().is_ipv4();
    let gateway = match range.gateway() {
        Some(ip) if ip.is_ipv4() == is_ipv4 => to_bits(ip),
        Some(_) | None => {
            spans.push(Span { first, last });
            return;
        }
    };
    if !(first..=last).contains(&gateway) {
        spans.push(Span { first, last });
        return;
    }
    if first < gateway {
        spans.push(Span {
            first,
            last: gateway - 1,
        });
    }
    if gateway < last {
        spans.push(Span {
            first: gateway + 1,
            last,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::range::{RangeSpec, from_bits};

    /// Returns a set of ranges, each with subnet, start, end, gateway. An empty text means absent.
    fn set(specs: &[[&str; 4]]) -> RangeSet {
        let ip = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let spec = |&[subnet, start, end, gateway]: &[&str; 4]| RangeSpec {
            subnet: Some(subnet.parse().unwrap()),
            range_start: ip(start),
            range_end: ip(end),
            gateway: ip(gateway),
        };
        RangeSet::new(&specs.iter().map(spec).collect::<Vec<_>>()).unwrap()
    }

    fn order(set: &RangeSet, last: Option<&str>) -> Vec<String> {
        spans(set, last.map(|l| l.parse().unwrap()))
            .iter()
            .flat_map(|s| (s.first..=s.last).map(|bits| from_bits(bits, set.is_ipv4()).to_string()))
            .collect()
    }

    #[test]
    fn slash_29_gives_addresses_2_to_6_and_then_wraps() {
        let set = set(&[["10.0.0.0/29", "", "", ""]]);
        assert_eq!(
            order(&set, None),
            ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
        assert_eq!(
            order(&set, Some("10.0.0.4")),
            ["10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
        );
        assert_eq!(
            order(&set, Some("10.0.0.6")),
            ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
        );
    }

    #[test]
    fn slash_31_gives_both_addresses_or_the_one_beside_the_gateway() {
        assert_eq!(
            order(&set(&[["10.0.0.0/31", "", "", ""]]), Some("10.0.0.0")),
            ["10.0.0.1", "10.0.0.0"]
        );
        assert_eq!(
            order(&set(&[["2001:db8::/127", "", "", ""]]), None),
            ["2001:db8::", "2001:db8::1"]
        );
        assert_eq!(
            order(&set(&[["10.0.0.0/31", "", "", "10.0.0.1"]]), None),
            ["10.0.0.0"]
        );
    }

    #[test]
    fn a_last_reserved_address_outside_the_set_begins_at_the_first_range() {
        let set = set(&[["10.0.0.0/30", "", "", ""]]);
        assert_eq!(order(&set, Some("10.9.9.9")), ["10.0.0.2"]);
        assert_eq!(order(&set, Some("::1")), ["10.0.0.2"]);
    }

    #[test]
    fn search_covers_all_ranges_and_ends_with_the_last_reserved_address() {
        let set = set(&[
            ["10.0.0.0/30", "", "", ""],
            ["10.0.1.0/29", "10.0.1.3", "10.0.1.5", "10.0.1.4"],
            ["10.0.2.0/30", "", "", "10.0.2.2"],
        ]);
        assert_eq!(
            order(&set, Some("10.0.1.3")),
            ["10.0.1.5", "10.0.2.1", "10.0.0.2", "10.0.1.3"]
        );
    }

    #[test]
    fn last_reserved_address_may_have_become_the_gateway() {
        let set = set(&[["10.0.0.0/29", "", "", "10.0.0.4"]]);
        assert_eq!(
            order(&set, Some("10.0.0.4")),
            ["10.0.0.5", "10.0.0.6", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
        );
    }

    #[test]
    fn gateway_outside_the_range_or_of_the_other_family_excludes_nothing() {
        let outside = set(&[["10.0.0.0/30", "", "", "10.9.9.9"]]);
        assert_eq!(order(&outside, None), ["10.0.0.1", "10.0.0.2"]);
        let other_family = set(&[["10.0.0.0/30", "", "", "::a00:1"]]);
        assert_eq!(order(&other_family, None), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn ipv6_counts_across_words_and_gives_the_all_ones_address() {
        let set = set(&[["2001:db8::/64", "2001:db8::ffff:ffff:ffff:fffe", "", ""]]);
        assert_eq!(
            order(&set, None),
            [
                "2001:db8::ffff:ffff:ffff:fffe",
                "2001:db8::ffff:ffff:ffff:ffff"
            ]
        );
    }

    #[test]
    fn one_address_that_is_the_gateway_leaves_nothing() {
        let set = set(&[["10.0.0.0/29", "10.0.0.3", "10.0.0.3", "10.0.0.3"]]);
        assert_eq!(order(&set, None), Vec::<String>::new());
    }
}
