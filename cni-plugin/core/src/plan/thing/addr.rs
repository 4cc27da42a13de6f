//! An address on a link.

use super::state::{Change, State, Verb, refuse_if};
use crate::kernel_numbers::{RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::Ns;
pub use crate::plan::fact::addr::AddrFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::fact::route::Route;
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Not;

/// An address on a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addr {
    /// The link that has the address.
    pub at: LinkRef,
    /// Address with its prefix length.
    pub net: IpNet,
    /// True if the kernel adds no route for the prefix (`noprefixroute`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub no_prefix_route: bool,
    /// True to skip duplicate address detection (`nodad`, IPv6 only).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub no_dad: bool,
}

impl Addr {
    /// Returns the broadcast address; `None` for IPv6, and for a subnet that is too small for one
    /// (RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.net {
            IpNet::V4(net) if net.prefix_len() <= 30 => Some(net.broadcast()),
            IpNet::V4(_) | IpNet::V6(_) => None,
        }
    }

    /// Returns the route that the kernel adds with the first address of a subnet. `None` with
    /// `no_prefix_route`, and for an IPv4 address with a /32 prefix.
    fn route_of_kernel(&self) -> Option<Route> {
        /// Metric of the kernel's own IPv6 routes (`IP6_RT_PRIO_ADDRCONF`).
        const ADDRCONF: u32 = 256;
        let (src, scope, priority) = match self.net {
            IpNet::V4(net) if net.prefix_len() == net.max_prefix_len() => return None,
            IpNet::V4(net) => (Some(net.addr().into()), RT_SCOPE_LINK, None),
            IpNet::V6(_) => (None, 0, Some(ADDRCONF)),
        };
        let (at, dst) = (self.at.clone(), self.net.trunc());
        let route = Route {
            at,
            dst,
            gw: None,
            src,
            table: RT_TABLE_MAIN,
            scope,
            priority,
            mtu: None,
            advmss: None,
            onlink: false,
        };
        (!self.no_prefix_route).then_some(route)
    }
}

impl State for Addr {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ip addr {} {} dev {}",
            verb.word("add", "del"),
            self.net,
            self.at.name
        )?;
        if verb == Verb::Add && self.broadcast().is_some() {
            write!(f, " brd +")?;
        }
        f.write_str(if self.no_prefix_route {
            " noprefixroute"
        } else {
            ""
        })?;
        f.write_str(if self.no_dad && self.net.addr().is_ipv6() {
            " nodad"
        } else {
            ""
        })
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Addrs(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let there = facts
            .addrs(&self.at)
            .iter()
            .any(|fact| fact.net == self.net);
        refuse_if(!there, || {
            format!("address {} is missing on {}", self.net, self.at)
        })
    }

    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.holds(facts).is_ok(), || {
            format!("address {} is still on {}", self.net, self.at)
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }

    fn predict(&self, facts: &mut Facts) {
        let fact = AddrFact {
            net: self.net,
            tentative: false,
            dad_failed: false,
            scope: 0,
        };
        facts.addrs.entry(self.at.clone()).or_default().push(fact);
        let of_kernel = self.route_of_kernel().filter(|new| {
            let is_same =
                |there: &Route| there.at == new.at && there.dst == new.dst && there.gw.is_none();
            !facts.planned_routes.iter().any(is_same)
        });
        facts.planned_routes.extend(of_kernel);
    }

    /// True only for `Ensure`. After an `Add`, later plugins may have moved the container's
    /// addresses.
    fn is_as_reference(&self, change: Change) -> bool {
        change == Change::Ensure
    }
}
