//! Masquerading of a container's packets to destinations outside its network.

use super::state::{State, Verb, refuse_if};
use crate::plan::facts::{Facts, Need};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Masquerading of packets from a container's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// The container's address.
    pub source: IpAddr,
    /// Subnet of the address. Packets to this subnet are not masqueraded.
    pub network: IpNet,
    /// Owner: network, container id and interface.
    pub owner: String,
}

impl State for Masquerade {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map = if self.source.is_ipv4() {
            "masquerade4"
        } else {
            "masquerade6"
        };
        write!(
            f,
            "nft {} element inet braid {map} {{ {}",
            verb.word("add", "delete"),
            self.source
        )?;
        if verb == Verb::Add {
            let chain = format!("outside-{}", self.network.trunc()).replace(':', "_");
            write!(f, " comment {:?} : goto {chain}", self.owner)?;
        }
        f.write_str(" }")
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Masquerades]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let there = facts.masquerades.contains_key(&self.source);
        refuse_if(!there, || format!("{} is not masqueraded", self.source))
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}
