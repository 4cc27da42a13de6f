//! Membership of a container's link in a VRF, which exists as long as it has a member.

use super::state::{Change, State, Verb, found, lines, refuse_if};
use crate::kernel_numbers::RT_TABLE_MAIN;
use crate::name::{IfName, Ns};
use crate::plan::fact::link::LinkFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Membership of a link in a VRF: the VRF's table routes the link's packets. Adding a member
/// creates a missing VRF, and deleting the last member deletes the VRF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfMember {
    /// The link that is a member.
    pub at: LinkRef,
    /// Name of the VRF.
    pub vrf: IfName,
    /// Routing table of the VRF.
    pub table: u32,
}

impl VrfMember {
    /// Returns the VRF as a link in the same namespace.
    pub fn vrf(&self) -> LinkRef {
        LinkRef {
            ns: self.at.ns,
            name: self.vrf.clone(),
        }
    }
}

impl State for VrfMember {
    fn ns(&self) -> Ns {
        self.at.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ns, name, vrf, table) = (self.at.ns, &self.at.name, &self.vrf, self.table);
        let commands = match verb {
            Verb::Add => [
                format!("ip link add name {vrf} up type vrf table {table} # if missing"),
                format!("ip link set {name} master {vrf}"),
            ],
            Verb::Del => [
                format!("ip link set {name} nomaster"),
                format!("ip link del {vrf} # if it has no other member"),
            ],
        };
        lines(f, commands.map(|command| (ns, command)))
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Link(self.at.clone()), Need::Link(self.vrf())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let (
            Self {
                at,
                vrf: name,
                table,
            },
            vrf,
        ) = (self, found(&self.vrf(), facts)?);
        refuse_if(vrf.kind != "vrf", || {
            format!("link {name} is of kind {:?}, not vrf", vrf.kind)
        })?;
        let other = vrf.vrf_table.filter(|other| other != table);
        refuse_if(other.is_some(), || {
            format!("VRF {name} has table {}, not {table}", other.unwrap_or(0))
        })?;
        refuse_if(found(at, facts)?.master != Some(vrf.index), || {
            format!("link {at} is not in VRF {name}")
        })
    }

    fn predict(&self, facts: &mut Facts) {
        let new = || LinkFact {
            vrf_table: Some(self.table),
            ..LinkFact::planned("vrf", None, 65_575, true)
        };
        let index = facts.links.entry(self.vrf()).or_insert_with(new).index;
        facts.vrfs.insert(self.vrf.clone(), self.table);
        for route in facts
            .planned_routes
            .iter_mut()
            .filter(|route| route.at == self.at && route.table == RT_TABLE_MAIN)
        {
            route.table = self.table;
        }
        if let Some(link) = facts.links.get_mut(&self.at) {
            link.master = Some(index);
        }
    }

    /// Returns the member link. If that link is up, the kernel sets it down and up again (v6.12
    /// `drivers/net/vrf.c`, `cycle_netdev()`), waits for an RCU grace period, and drops the routes.
    fn before_up(&self) -> Option<&LinkRef> {
        Some(&self.at)
    }

    fn is_as_reference(&self, change: Change) -> bool {
        change == Change::Add
    }
}
