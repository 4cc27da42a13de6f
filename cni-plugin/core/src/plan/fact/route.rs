//! A route, planned or as the kernel reports it.

use super::link_ref::LinkRef;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::Not;

/// A route through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Outgoing link.
    pub at: LinkRef,
    /// Destination; host bits are cleared.
    pub dst: IpNet,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Routing table; 254 is main.
    pub table: u32,
    /// Kernel number of the scope: 0 universe, 253 link, 254 host. IPv6 has only universe.
    pub scope: u8,
    /// Metric; unset means the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Maximal segment size to advertise in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// True to treat the next hop as directly reachable on the link, regardless of its address
    /// (`onlink`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub onlink: bool,
}

/// A route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFact {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    pub gw: Option<IpAddr>,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// Interface index of the outgoing link.
    pub link: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// Kernel number of the scope: 0 universe, 253 link, 254 host.
    pub scope: u8,
    /// True if the route comes from a router advertisement.
    pub from_router: bool,
    /// Metric; `None` if the kernel reports none.
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    pub mtu: Option<u32>,
    /// Maximal segment size to advertise in bytes.
    pub advmss: Option<u32>,
    /// True if the kernel treats the next hop as directly reachable on the link (`onlink`).
    pub onlink: bool,
    /// Body of the netlink request that adds the same route again. Empty for routes of the host,
    /// and for an IPv4 route with next hops through several links.
    pub request: Vec<u8>,
}

impl Route {
    /// Converts a route that the kernel reported into a [`Route`] through the link `at`.
    pub fn of_fact(at: &LinkRef, fact: &RouteFact) -> Self {
        let RouteFact {
            dst,
            gw,
            src,
            table,
            scope,
            priority,
            mtu,
            advmss,
            onlink,
            ..
        } = *fact;
        Self {
            at: at.clone(),
            dst: dst.trunc(),
            gw,
            src,
            table,
            scope,
            priority,
            mtu,
            advmss,
            onlink,
        }
    }

    /// True if `fact` is this route, through the link with the interface index `index`. Next hop,
    /// metric, MTU and segment size match any value if they are unset in `self`.
    pub(in crate::plan) fn is(&self, fact: &RouteFact, index: u32) -> bool {
        fact.table == self.table && self.is_but_for_table(fact, index)
    }

    pub(in crate::plan) fn is_but_for_table(&self, fact: &RouteFact, index: u32) -> bool {
        fact.dst.trunc() == self.dst.trunc()
            && fact.link == Some(index)
            && (self.gw.is_none() || fact.gw == self.gw)
            && (self.priority.is_none() || fact.priority == self.priority)
            && (self.mtu.is_none() || fact.mtu == self.mtu)
            && (self.advmss.is_none() || fact.advmss == self.advmss)
    }
}
