//! A route through a link.

use super::{LinkRef, State, Verb, found, refuse_if};
use crate::kernel_numbers::{RT_SCOPE_HOST, RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::ops::Not;

/// A route through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The link.
    pub at: LinkRef,
    /// Destination, host bits cleared.
    pub dst: IpNet,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Source address to prefer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Table; 254 is main.
    pub table: u32,
    /// Scope as the kernel numbers it: 0 universe, 253 link, 254 host; IPv6 has only universe.
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
    /// Treats the next hop as on the link, regardless of its address (`onlink`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub onlink: bool,
}

impl State for Route {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip route {} {}", verb.word("prepend", "del"), self.dst)?;
        if let Some(gw) = self.gw {
            write!(f, " via {gw}")?;
        }
        write!(f, " dev {}", self.at.name)?;
        if let Some(src) = self.src {
            write!(f, " src {src}")?;
        }
        match self.scope {
            0 => {}
            RT_SCOPE_LINK => f.write_str(" scope link")?,
            RT_SCOPE_HOST => f.write_str(" scope host")?,
            scope => write!(f, " scope {scope}")?,
        }
        if self.table != RT_TABLE_MAIN {
            write!(f, " table {}", self.table)?;
        }
        for (word, value) in [
            ("metric", self.priority),
            ("mtu", self.mtu),
            ("advmss", self.advmss),
        ] {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        f.write_str(if self.onlink { " onlink" } else { "" })
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Link(self.at.clone()), Need::Routes(self.at.ns)]
    }

    /// Accepts the route in another table too, because a later plugin (`sbr`, `vrf`) may have moved
    /// the container's routes. A default route may have another gateway there.
    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let index = found(&self.at, facts)?.index;
        let may_move = self.at.ns == Ns::Pod && self.table == RT_TABLE_MAIN;
        let moved = Self {
            gw: self.gw.filter(|_| self.dst.prefix_len() > 0),
            ..self.clone()
        };
        let is_moved =
            |fact: &RouteFact| fact.table != RT_TABLE_MAIN && moved.is_but_for_table(fact, index);
        let same = |fact: &RouteFact| self.is(fact, index) || (may_move && is_moved(fact));
        let there = facts
            .routes
            .get(&self.at.ns)
            .is_some_and(|routes| routes.iter().any(same));
        refuse_if(!there, || {
            format!(
                "route {} through {} is missing in table {}",
                self.dst, self.at, self.table
            )
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }

    fn predict(&self, facts: &mut Facts) {
        facts.planned_routes.push(self.clone());
    }
}

impl Route {
    /// Converts a reported route at the link `at`.
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

    /// True if `fact` is this route through the link of this index.
    pub(super) fn is(&self, fact: &RouteFact, index: u32) -> bool {
        fact.table == self.table && self.is_but_for_table(fact, index)
    }

    fn is_but_for_table(&self, fact: &RouteFact, index: u32) -> bool {
        fact.dst.trunc() == self.dst.trunc()
            && fact.link == Some(index)
            && (self.gw.is_none() || fact.gw == self.gw)
            && (self.priority.is_none() || fact.priority == self.priority)
            && (self.mtu.is_none() || fact.mtu == self.mtu)
            && (self.advmss.is_none() || fact.advmss == self.advmss)
    }
}

/// A route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteFact {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    pub gw: Option<IpAddr>,
    /// Source address to prefer.
    pub src: Option<IpAddr>,
    /// Index of the link.
    pub link: Option<u32>,
    /// Table.
    pub table: u32,
    /// Scope as the kernel numbers it.
    pub scope: u8,
    /// True if the route comes from a router advertisement.
    pub from_router: bool,
    /// Metric; `None` if the kernel reports none.
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    pub mtu: Option<u32>,
    /// Maximal segment size in bytes.
    pub advmss: Option<u32>,
    /// True if the next hop is treated as on the link.
    pub onlink: bool,
    /// Body of the request that adds the same route again; only for routes of the container.
    pub request: Vec<u8>,
}
