//! Validated ranges of addresses and sets of ranges, the input of the allocator.

use crate::cni::{Error, Json};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address range as written in the configuration. [`Range::new`] sets defaults for absent
/// fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSpec {
    /// `subnet`, with the host bits as written.
    pub subnet: Option<IpNet>,
    /// `rangeStart`, inclusive; default the first address after the network address.
    pub range_start: Option<IpAddr>,
    /// `rangeEnd`, inclusive; default the last address of the subnet, or in IPv4 the address before
    /// the broadcast address.
    pub range_end: Option<IpAddr>,
    /// `gateway`, which may be outside the subnet; default the first address after the network
    /// address. A /31 (RFC 3021) or /127 (RFC 6164) has two host addresses and no default gateway.
    pub gateway: Option<IpAddr>,
}

impl RangeSpec {
    /// Parses `subnet`, `rangeStart`, `rangeEnd` and `gateway` of `json`; errors have code 6.
    pub fn parse(json: &Json) -> Result<Self, Error> {
        json.expect_object("range")?;
        Ok(Self {
            subnet: json.cidr("subnet")?,
            range_start: json.ip("rangeStart")?,
            range_end: json.ip("rangeEnd")?,
            gateway: json.ip("gateway")?,
        })
    }

    /// Sets the gateway of a two-address subnet that has none: the first address, or the last
    /// address if the range contains only the first.
    #[must_use]
    pub fn with_gateway(mut self) -> Self {
        if let Some(subnet) = self.subnet.filter(is_pair)
            && self.gateway.is_none()
        {
            let (first, last) = (subnet.network(), subnet.broadcast());
            self.gateway = Some(if self.range_end == Some(first) {
                last
            } else {
                first
            });
        }
        self
    }

    /// Parses the value of `key`, a list of range sets, without validation. Each set is a list of
    /// ranges and gives an attachment one address. Errors have code 6.
    pub fn parse_sets(json: &Json, key: &str) -> Result<Vec<Vec<Self>>, Error> {
        json.each(key, |set| match set {
            Json::Null => Ok(Vec::new()),
            Json::Array(ranges) => {
                let mut set = Vec::with_capacity(ranges.len());
                for (index, range) in ranges.iter().enumerate() {
                    set.push(Self::parse(range).map_err(|e| e.at_index(index))?);
                }
                Ok(set)
            }
            Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
                Err(set.mismatch("a list of ranges"))
            }
        })
    }
}

/// Consecutive addresses of one subnet. The gateway is never assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    subnet: IpNet,
    start: IpAddr,
    end: IpAddr,
    gateway: Option<IpAddr>,
}

/// Ranges of one address family without overlaps. An attachment gets one address from the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// Reason why a range or a range set is refused. The messages match the reference plugin. If the
/// reference plugin's message lacks the offending value, braid appends the value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each arm's sentence is in Display")]
pub enum RangeError {
    NoSubnet,
    TooSmall(IpNet),
    HostBits(IpNet),
    StartOutside { start: IpAddr, subnet: IpNet },
    EndOutside { end: IpAddr, subnet: IpNet },
    StartAfterEnd { start: IpAddr, end: IpAddr },
    EmptySet,
    MixedFamilies(IpNet, IpNet),
    Overlap(Box<Range>, Box<Range>),
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSubnet => f.write_str("subnet is missing: IP <nil> not v4 nor v6"),
            Self::TooSmall(net) => write!(f, "Network {net} too small to allocate from"),
            Self::HostBits(net) => write!(
                f,
                "Network has host bits set. For a subnet mask of length {} the network address is {}, got {net}",
                net.prefix_len(),
                net.network()
            ),
            Self::StartOutside { start, subnet } => {
                write!(f, "RangeStart {start} not in network {subnet}")
            }
            Self::EndOutside { end, subnet } => write!(f, "RangeEnd {end} not in network {subnet}"),
            Self::StartAfterEnd { start, end } => {
                write!(f, "RangeStart {start} is after RangeEnd {end}")
            }
            Self::EmptySet => f.write_str("empty range set"),
            Self::MixedFamilies(a, b) => write!(f, "mixed address families: {a} and {b}"),
            Self::Overlap(a, b) => write!(f, "subnets {a} and {b} overlap"),
        }
    }
}

impl std::error::Error for RangeError {}

impl Range {
    /// Returns the validated range, with defaults for absent fields. Refuses a range that can't
    /// provide an address.
    pub fn new(spec: &RangeSpec) -> Result<Self, RangeError> {
        let subnet = spec.subnet.ok_or(RangeError::NoSubnet)?;
        if subnet.prefix_len() == subnet.max_prefix_len() {
            return Err(RangeError::TooSmall(subnet));
        }
        if subnet.addr() != subnet.network() {
            return Err(RangeError::HostBits(subnet));
        }
        let is_pair = is_pair(&subnet);
        let first = if is_pair {
            subnet.network()
        } else {
            offset(subnet.network(), 1)
        };
        let range_start = spec.range_start.map_or(first, |ip| ip.to_canonical());
        let range_end = spec
            .range_end
            .map_or_else(|| last_usable(subnet), |ip| ip.to_canonical());
        if !subnet.contains(&range_start)
            || (spec.range_start.is_some() && spec.range_end.is_some_and(|e| range_start > e))
        {
            return Err(RangeError::StartOutside {
                start: range_start,
                subnet,
            });
        }
        if !subnet.contains(&range_end) || (spec.range_end.is_some() && range_end < range_start) {
            return Err(RangeError::EndOutside {
                end: range_end,
                subnet,
            });
        }
        if range_start > range_end {
            // Happens only if the range starts at the broadcast address. The reference plugin would
            // then assign addresses outside the subnet.
            return Err(RangeError::StartAfterEnd {
                start: range_start,
                end: range_end,
            });
        }
        let gateway = spec
            .gateway
            .map(|ip| ip.to_canonical())
            .or((!is_pair).then_some(first));
        Ok(Self {
            subnet,
            start: range_start,
            end: range_end,
            gateway,
        })
    }

    /// Returns the first address, inclusive.
    pub fn range_start(&self) -> IpAddr {
        self.start
    }

    /// Returns the last address, inclusive.
    pub fn range_end(&self) -> IpAddr {
        self.end
    }

    /// Returns the gateway, which is never assigned; `None` if a two-address subnet has none.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// True if `ip` is between the first and the last address, inclusive.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.start.is_ipv4() && (self.start..=self.end).contains(&ip)
    }

    /// True if the two ranges share an address.
    pub fn overlaps(&self, other: &Range) -> bool {
        self.contains(other.start) || other.contains(self.start)
    }

    /// Returns `ip` with the subnet's prefix length.
    pub fn with_prefix(&self, ip: IpAddr) -> IpNet {
        IpNet::new(ip, self.subnet.prefix_len()).unwrap_or_else(|_| IpNet::from(ip))
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

impl RangeSet {
    /// Validates each range, and refuses mixed families and overlaps.
    pub fn new(specs: &[RangeSpec]) -> Result<Self, RangeError> {
        let mut ranges: Vec<Range> = Vec::with_capacity(specs.len());
        for spec in specs {
            let range = Range::new(spec)?;
            if let Some(first) = ranges.first()
                && first.start.is_ipv4() != range.start.is_ipv4()
            {
                return Err(RangeError::MixedFamilies(first.subnet, range.subnet));
            }
            ranges.push(range);
        }
        for (i, a) in ranges.iter().enumerate() {
            if let Some(b) = ranges[i + 1..].iter().find(|b| a.overlaps(b)) {
                return Err(RangeError::Overlap(
                    Box::new(a.clone()),
                    Box::new(b.clone()),
                ));
            }
        }
        if ranges.is_empty() {
            Err(RangeError::EmptySet)
        } else {
            Ok(Self(ranges))
        }
    }

    /// Returns the ranges in the order written, at least one.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// True if the addresses are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.0[0].start.is_ipv4()
    }

    /// Returns the range that contains `ip`.
    pub fn range_for(&self, ip: IpAddr) -> Option<&Range> {
        self.0.iter().find(|r| r.contains(ip))
    }

    /// True if the two sets share an address.
    pub fn overlaps(&self, other: &RangeSet) -> bool {
        self.0.iter().any(|a| other.0.iter().any(|b| a.overlaps(b)))
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            write!(f, "{}{range}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Returns the address as a number of 32 or 128 bits.
pub fn to_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// Returns the address with these bits. IPv4 uses only the low 32 bits.
pub fn from_bits(bits: u128, is_ipv4: bool) -> IpAddr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    if is_ipv4 {
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

fn offset(ip: IpAddr, by: u128) -> IpAddr {
    from_bits(to_bits(ip).wrapping_add(by), ip.is_ipv4())
}

/// True if the subnet is a /31 or /127, which has exactly two addresses, both for hosts.
fn is_pair(subnet: &IpNet) -> bool {
    subnet.prefix_len() + 1 == subnet.max_prefix_len()
}

/// Returns the last usable address: in IPv4 the address before the broadcast address, in IPv6 the
/// last address.
fn last_usable(subnet: IpNet) -> IpAddr {
    match subnet {
        IpNet::V4(net) if !is_pair(&subnet) => {
            from_bits(u128::from(net.broadcast().to_bits()) - 1, true)
        }
        IpNet::V4(_) | IpNet::V6(_) => subnet.broadcast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(subnet: &str, start: &str, end: &str, gateway: &str) -> RangeSpec {
        let ip = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        RangeSpec {
            subnet: Some(subnet.parse().unwrap()),
            range_start: ip(start),
            range_end: ip(end),
            gateway: ip(gateway),
        }
    }

    const HOST_BITS_31: &str = "Network has host bits set. For a subnet mask of length 31 the network address is 10.1.0.0, got 10.1.0.1/31";

    fn refused(specs: &[RangeSpec]) -> String {
        RangeSet::new(specs).unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_the_first_address_as_gateway_and_the_last_usable_as_end() {
        let range = Range::new(&spec("10.1.0.0/24", "", "", "")).unwrap();
        assert_eq!(
            range,
            Range::new(&spec("10.1.0.0/24", "10.1.0.1", "10.1.0.254", "10.1.0.1")).unwrap()
        );
        let range = Range::new(&spec("2001:db8::/64", "", "", "")).unwrap();
        let full = spec(
            "2001:db8::/64",
            "2001:db8::1",
            "2001:db8::ffff:ffff:ffff:ffff",
            "2001:db8::1",
        );
        assert_eq!(range, Range::new(&full).unwrap());
    }

    #[test]
    fn two_address_subnet_gives_both_unless_one_is_the_gateway() {
        for (subnet, first, last) in [
            ("10.1.0.0/31", "10.1.0.0", "10.1.0.1"),
            ("fd00::2/127", "fd00::2", "fd00::3"),
        ] {
            let bare = spec(subnet, "", "", "");
            let range = Range::new(&bare).unwrap();
            assert_eq!(
                (range.to_string(), range.gateway()),
                (format!("{first}-{last}"), None)
            );
            let gateway = |spec: RangeSpec| {
                Range::new(&spec.with_gateway())
                    .unwrap()
                    .gateway()
                    .unwrap()
                    .to_string()
            };
            assert_eq!(gateway(bare), first);
            assert_eq!(
                gateway(spec(subnet, first, first, "")),
                last,
                "the other one is not in the range"
            );
            assert_eq!(gateway(spec(subnet, "", "", last)), last, "as configured");
        }
        let larger = spec("10.1.0.0/30", "", "", "");
        assert_eq!(
            larger.clone().with_gateway(),
            larger,
            "it has one by default"
        );
    }

    #[test]
    fn network_and_broadcast_addresses_may_be_named() {
        let range = Range::new(&spec("10.1.0.0/30", "10.1.0.0", "10.1.0.3", "192.0.2.1")).unwrap();
        assert_eq!(range.to_string(), "10.1.0.0-10.1.0.3");
    }

    #[test]
    fn unusable_ranges_are_refused_with_the_reference_plugins_messages() {
        for (spec, sentence) in [
            (
                RangeSpec::default(),
                "subnet is missing: IP <nil> not v4 nor v6",
            ),
            (
                spec("10.1.0.0/32", "", "", ""),
                "Network 10.1.0.0/32 too small to allocate from",
            ),
            (
                spec("2001:db8::/128", "", "", ""),
                "Network 2001:db8::/128 too small to allocate from",
            ),
            (spec("10.1.0.1/31", "", "", ""), HOST_BITS_31),
            (
                spec("10.1.2.3/24", "", "", ""),
                "Network has host bits set. For a subnet mask of length 24 the network address is 10.1.2.0, got 10.1.2.3/24",
            ),
            (
                spec("10.1.0.0/24", "10.2.0.1", "", ""),
                "RangeStart 10.2.0.1 not in network 10.1.0.0/24",
            ),
            (
                spec("10.1.0.0/24", "::1", "", ""),
                "RangeStart ::1 not in network 10.1.0.0/24",
            ),
            (
                spec("10.1.0.0/24", "10.1.0.9", "10.1.0.8", ""),
                "RangeStart 10.1.0.9 not in network 10.1.0.0/24",
            ),
            (
                spec("10.1.0.0/24", "", "10.2.0.1", ""),
                "RangeEnd 10.2.0.1 not in network 10.1.0.0/24",
            ),
            (
                spec("10.1.0.0/24", "", "10.1.0.0", ""),
                "RangeEnd 10.1.0.0 not in network 10.1.0.0/24",
            ),
            (
                spec("10.1.0.0/24", "10.1.0.255", "", ""),
                "RangeStart 10.1.0.255 is after RangeEnd 10.1.0.254",
            ),
        ] {
            assert_eq!(refused(&[spec]), sentence);
        }
    }

    #[test]
    fn set_has_one_family_and_no_overlaps() {
        let (a, b) = (
            spec("10.1.0.0/24", "", "10.1.0.9", ""),
            spec("10.1.0.0/24", "10.1.0.9", "", ""),
        );
        assert_eq!(refused(&[]), "empty range set");
        assert_eq!(
            refused(&[a.clone(), b]),
            "subnets 10.1.0.1-10.1.0.9 and 10.1.0.9-10.1.0.254 overlap"
        );
        let mixed = refused(&[a.clone(), spec("2001:db8::/64", "", "", "")]);
        assert_eq!(
            mixed,
            "mixed address families: 10.1.0.0/24 and 2001:db8::/64"
        );
        let set = RangeSet::new(&[a, spec("10.1.0.0/24", "10.1.0.10", "", "")]).unwrap();
        assert_eq!(set.to_string(), "10.1.0.1-10.1.0.9,10.1.0.10-10.1.0.254");
        assert_eq!(
            set.range_for("10.1.0.10".parse().unwrap()),
            set.ranges().last()
        );
    }

    #[test]
    fn a_range_inside_another_overlaps_it_from_both_sides() {
        let outer = RangeSet::new(&[spec("10.0.0.0/8", "", "", "")]).unwrap();
        let inner = RangeSet::new(&[spec("10.1.0.0/24", "", "", "")]).unwrap();
        let v6 = RangeSet::new(&[spec("2001:db8::/64", "", "", "")]).unwrap();
        assert!(outer.overlaps(&inner) && inner.overlaps(&outer));
        assert!(!outer.overlaps(&v6) && !v6.overlaps(&outer));
    }

    #[test]
    fn numbers_and_addresses_convert_both_ways() {
        for text in [
            "0.0.0.0",
            "255.255.255.255",
            "10.1.2.3",
            "::",
            "2001:db8::ffff",
            "::1.2.3.4",
        ] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(from_bits(to_bits(ip), ip.is_ipv4()), ip);
        }
    }
}
