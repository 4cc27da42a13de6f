//! Check that a bridge port accepts frames from a single hardware address only.

use super::state::{State, Verb, refuse_if};
use crate::name::{IfName, Mac};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The only hardware address from which a bridge port accepts frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacCheck {
    /// Name of the bridge port: the host end of the container's veth.
    pub port: IfName,
    /// The container's hardware address.
    pub mac: Mac,
    /// Owner: network, container id and interface.
    pub owner: String,
}

impl State for MacCheck {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, port) = (verb.word("add", "delete"), self.port.as_str());
        write!(
            f,
            "nft {verb} element bridge braid allowed {{ {port:?} . {} }}",
            self.mac
        )
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::MacChecks]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let there = facts.mac_checks.get(&self.port) == Some(&self.mac);
        refuse_if(!there, || {
            format!("port {} is not restricted to {}", self.port, self.mac)
        })
    }

    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        let there = facts.mac_checks.contains_key(&self.port);
        refuse_if(there, || format!("port {} is still restricted", self.port))
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}
