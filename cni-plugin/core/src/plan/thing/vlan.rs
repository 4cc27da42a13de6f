//! VLANs of bridge ports.

use super::state::{Change, State, Verb, refuse_if};
use crate::name::Ns;
use crate::plan::fact::link_ref::LinkRef;
pub use crate::plan::fact::vlan::Vlan;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A VLAN on a bridge port; it is deleted with the port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortVlan {
    /// The bridge port.
    pub at: LinkRef,
    /// The VLAN and its flags.
    pub vlan: Vlan,
}

impl PortVlan {
    fn is_there(&self, facts: &Facts, is_it: impl Fn(&Vlan) -> bool) -> bool {
        facts
            .vlans
            .get(&self.at.name)
            .is_some_and(|vlans| vlans.iter().any(is_it))
    }
}

impl State for PortVlan {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (port, Vlan { id, pvid, untagged }) = (&self.at.name, self.vlan);
        match verb {
            Verb::Add => {
                let flags = [(pvid, " pvid"), (untagged, " untagged")]
                    .map(|(is_set, flag)| if is_set { flag } else { "" });
                write!(f, "bridge vlan add dev {port} vid {id}{}", flags.concat())
            }
            Verb::Del => write!(f, "bridge vlan del dev {port} vid {id}"),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Link(self.at.clone()), Need::Vlans]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let there = self.is_there(facts, |found| *found == self.vlan);
        refuse_if(!there, || {
            format!("VLAN {} is missing on {}", self.vlan.id, self.at)
        })
    }

    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        let there = self.is_there(facts, |found| found.id == self.vlan.id);
        refuse_if(there, || {
            format!("VLAN {} is still on {}", self.vlan.id, self.at)
        })
    }

    fn goes_with(&self) -> Vec<&LinkRef> {
        vec![&self.at]
    }

    fn is_as_reference(&self, change: Change) -> bool {
        change != Change::Add
    }
}
