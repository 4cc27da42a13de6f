//! Rate limits of a container's packet sockets (`AF_PACKET`), which can bypass the qdisc of a link.

use super::shaping::{Shaper, Subnets};
use super::state::{State, Verb, refuse_if};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
pub use crate::plan::fact::packet_guard::{PacketGuardFact, PacketLimit};
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A rate limit of the packet sockets on a link of the container. Such sockets can bypass the qdisc
/// of the link (`PACKET_QDISC_BYPASS`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketGuard {
    /// The container's link.
    pub at: LinkRef,
    /// Rate and burst of the limit.
    pub limit: PacketLimit,
    /// Subnets that select the limited packets; `None` limits all packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnets: Option<Subnets>,
}

impl PacketGuard {
    /// Returns a guard known only by its link, for deletion.
    pub fn any(at: LinkRef) -> Self {
        Self {
            at,
            limit: PacketLimit { rate: 0, burst: 0 },
            subnets: None,
        }
    }

    /// Returns the guard for a container's shaper, with a limit slightly above the shaper's limit.
    /// `None` for a rate above 140 Gbit/s, because the kernel can't count it.
    pub fn of(shaper: &Shaper, subnets: Option<&Subnets>) -> Option<Self> {
        /// Nanoseconds in a second. `nft_limit` multiplies the sum of rate and burst in bytes by
        /// this number, in 64 bits.
        const SECOND_NS: u64 = 1_000_000_000;
        let rate = (shaper.guard_bps() / 8).max(1);
        let burst = u32::try_from(shaper.rate.burst / 8).unwrap_or(u32::MAX);
        rate.checked_add(u64::from(burst))?.checked_mul(SECOND_NS)?;
        let limit = PacketLimit { rate, burst };
        Some(Self {
            at: shaper.at.clone(),
            limit,
            subnets: subnets.cloned(),
        })
    }
}

impl State for PacketGuard {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => print_add(self, f),
            Verb::Del => write!(f, "nft delete table netdev braid-{}", self.at.name),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::PacketGuard(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let (at, limit) = (&self.at, self.limit);
        match facts.packet_guards.get(at) {
            None => Err(format!("packet sockets on link {at} are not limited")),
            Some(fact) => refuse_if(fact.limit != limit, || {
                format!(
                    "packet sockets on link {at} are limited to {:?}, not to {limit:?}",
                    fact.limit
                )
            }),
        }
    }
}

fn print_add(guard: &PacketGuard, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (PacketLimit { rate, burst }, link) = (guard.limit, &guard.at.name);
    write!(f, "nft 'table netdev braid-{link} {{ chain held {{ ")?;
    write!(
        f,
        "limit rate over {rate} bytes/second burst {burst} bytes counter drop; }}; chain out {{ "
    )?;
    write!(
        f,
        "type filter hook egress device \"{link}\" priority 0; meta rtclassid >= 0 accept; "
    )?;
    let (only, nets) = guard
        .subnets
        .as_ref()
        .map_or((false, &[][..]), |subnets| (subnets.only, &subnets.nets));
    for net in nets {
        let is_ip = if net.addr().is_ipv4() {
            "@ll,96,16 0x0800 "
        } else {
            "@ll,96,16 0x86dd "
        };
        let (before, verdict) = if only {
            ("", "goto held")
        } else {
            (is_ip, "accept")
        };
        write!(f, "{before}{} {verdict}; ", destination(net))?;
    }
    f.write_str(if only {
        "@nh,0,4 4 accept; @nh,0,4 6 accept; "
    } else {
        ""
    })?;
    f.write_str("goto held; }; }'")
}

/// Returns the nft match of IP packets to a subnet, which uses raw bytes only.
fn destination(net: &IpNet) -> String {
    let len = u32::from(net.prefix_len());
    let (version, at, prefix) = match net {
        IpNet::V4(net) => (
            4,
            128,
            u128::from(net.network().to_bits()).checked_shr(32 - len),
        ),
        IpNet::V6(net) => (6, 192, net.network().to_bits().checked_shr(128 - len)),
    };
    let prefix = prefix
        .filter(|_| len > 0)
        .map(|prefix| format!(" @nh,{at},{len} {prefix:#x}"));
    format!("@nh,0,4 {version}{}", prefix.unwrap_or_default())
}
