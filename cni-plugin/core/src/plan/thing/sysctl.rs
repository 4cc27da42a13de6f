//! A sysctl of a namespace.

use super::{State, Verb};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Not;

/// A sysctl, by its path below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// The namespace that it is written in.
    pub ns: Ns,
    /// For example `net/ipv4/ip_forward`.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Better with it, but no failure without: the kernel may lack it, the node may have
    /// `/proc/sys` read-only.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub optional: bool,
}

impl Sysctl {
    /// Switches IPv4 forwarding of the node.
    pub const IPV4_FORWARD: &str = "net/ipv4/ip_forward";
    /// Switches IPv6 forwarding of the node.
    pub const IPV6_FORWARD: &str = "net/ipv6/conf/all/forwarding";

    /// Says when a link accepts router advertisements: 0 never, 1 while it does not forward, 2
    /// always.
    pub fn accept_ra(link: &str) -> String {
        format!("net/ipv6/conf/{link}/accept_ra")
    }
}

impl State for Sysctl {
    fn ns(&self) -> Ns {
        self.ns
    }

    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => write!(f, "sysctl -w {}={}", self.key, self.value),
            Verb::Del => write!(f, "# leave sysctl {} as it is", self.key),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Sysctl(self.ns, self.key.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        match facts.sysctls.get(&(self.ns, self.key.clone())) {
            // ADD was content without it, so it can't be what makes CHECK fail.
            _ if self.optional => Ok(()),
            None => Err(format!("sysctl {} does not exist", self.key)),
            // Several values are shown with tabs between them.
            Some(value) if value.split_whitespace().eq(self.value.split_whitespace()) => Ok(()),
            Some(value) => Err(format!(
                "sysctl {} is {value:?}, not {:?}",
                self.key, self.value
            )),
        }
    }
}
