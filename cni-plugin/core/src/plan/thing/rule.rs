//! A rule of policy routing.

use super::{State, Verb, refuse_if};
use crate::name::{IfName, Ns};
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Has packets from or to a net routed by a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The namespace that it is in.
    pub ns: Ns,
    /// The packets that it routes.
    pub of: Packets,
    /// The table.
    pub table: u32,
    /// The link by which they came in; any where unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iif: Option<IfName>,
    /// Routes of the table with a prefix of this length or a shorter one don't count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress: Option<u32>,
    /// Its place among the rules; the kernel's choice where unset: before the first one but that
    /// of table local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// Packets, by one of their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Packets {
    /// Their source is of this net.
    From(IpNet),
    /// Their destination is.
    To(IpNet),
}

impl State for Rule {
    fn ns(&self) -> Ns {
        self.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (which, net) = match self.of {
            Packets::From(net) => ("from", net),
            Packets::To(net) => ("to", net),
        };
        let family = if net.addr().is_ipv4() { "" } else { " -6" };
        write!(
            f,
            "ip{family} rule {} {which} {net}",
            verb.word("add", "del")
        )?;
        self.iif
            .as_ref()
            .map_or(Ok(()), |iif| write!(f, " iif {iif}"))?;
        write!(f, " table {}", self.table)?;
        self.suppress
            .map_or(Ok(()), |len| write!(f, " suppress_prefixlength {len}"))?;
        self.priority
            .map_or(Ok(()), |priority| write!(f, " priority {priority}"))
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Rules(self.ns)]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let is_it = |fact: &Self| {
            fact.of == self.of
                && fact.table == self.table
                && fact.iif == self.iif
                && fact.suppress == self.suppress
                && (self.priority.is_none() || fact.priority == self.priority)
        };
        let there = facts
            .rules
            .get(&self.ns)
            .is_some_and(|rules| rules.iter().any(is_it));
        refuse_if(!there, || {
            format!(
                "rule {:?} for table {} is missing in {}",
                self.of, self.table, self.ns
            )
        })
    }

    fn predict(&self, facts: &mut Facts) {
        facts.rules.entry(self.ns).or_default().push(self.clone());
    }
}
