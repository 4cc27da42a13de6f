//! A route through a link.

use super::state::{Change, State, Verb, found, refuse_if};
use crate::kernel_numbers::{RT_SCOPE_HOST, RT_SCOPE_LINK, RT_TABLE_MAIN};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
pub use crate::plan::fact::route::{Route, RouteFact};
use crate::plan::facts::{Facts, Need};
use std::fmt;

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
    /// the container's routes. A default route may have another gateway in that table.
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

    /// True only for `Add` on the host, because later plugins may have moved the container's
    /// routes.
    fn is_as_reference(&self, change: Change) -> bool {
        change == Change::Add && self.at.ns == Ns::Host
    }
}
