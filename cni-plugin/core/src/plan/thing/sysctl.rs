//! Sysctls of a namespace.

use super::state::{Change, State, Verb};
use crate::name::Ns;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Not;

/// A sysctl, by its path below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Namespace in which the sysctl is written.
    pub ns: Ns,
    /// Path, for example `net/ipv4/ip_forward`.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// True if a failure is ignored: the kernel may lack the sysctl, or the node may mount
    /// `/proc/sys` read-only.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub optional: bool,
}

impl Sysctl {
    /// The sysctl that enables IPv4 forwarding of the node.
    pub const IPV4_FORWARD: &str = "net/ipv4/ip_forward";
    /// The sysctl that enables IPv6 forwarding of the node.
    pub const IPV6_FORWARD: &str = "net/ipv6/conf/all/forwarding";

    /// Returns the sysctl that decides if a link accepts router advertisements. 0 means never, 1
    /// only while the link does not forward, 2 always.
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
            Verb::Del => write!(f, "# keep sysctl {} as it is", self.key),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Sysctl(self.ns, self.key.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        match facts.sysctls.get(&(self.ns, self.key.clone())) {
            // ADD succeeds without it, so CHECK must not fail for it.
            _ if self.optional => Ok(()),
            None => Err(format!("sysctl {} does not exist", self.key)),
            // The kernel separates several values with tabs.
            Some(value) if value.split_whitespace().eq(self.value.split_whitespace()) => Ok(()),
            Some(value) => Err(format!(
                "sysctl {} is {value:?}, not {:?}",
                self.key, self.value
            )),
        }
    }

    fn is_setting(&self) -> bool {
        true
    }

    fn is_as_reference(&self, change: Change) -> bool {
        change != Change::Del
    }
}
