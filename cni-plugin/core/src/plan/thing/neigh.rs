//! Permanent neighbour entries.

use super::state::{State, Verb, refuse_if};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
pub use crate::plan::fact::neigh::Neigh;
use crate::plan::facts::{Facts, Need};
use std::fmt;

impl State for Neigh {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, addr, mac) = (&self.at.name, self.addr, self.mac);
        match verb {
            Verb::Add => write!(
                f,
                "ip neigh add {addr} lladdr {mac} dev {name} nud permanent"
            ),
            Verb::Del => write!(f, "ip neigh del {addr} dev {name}"),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Neighs(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let there = facts
            .neighs
            .get(&self.at)
            .is_some_and(|neighs| neighs.contains(self));
        refuse_if(!there, || {
            format!(
                "{} has no permanent neighbour {} with address {}",
                self.at, self.addr, self.mac
            )
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }
}
