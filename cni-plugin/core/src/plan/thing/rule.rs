//! Policy routing rules.

use super::state::{State, Verb, refuse_if};
use crate::name::Ns;
pub use crate::plan::fact::rule::{Packets, Rule};
use crate::plan::facts::{Facts, Need};
use std::fmt;

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
