//! Forwarding rules for a container.

use super::{State, Verb, lines};
use crate::name::{IfName, Ns};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Forwarding for a container: packets that the host accepts, and packets that it drops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Firewall {
    /// Addresses of the container. Packets from them are accepted, and so are replies and
    /// redirected connections to them.
    pub addrs: Vec<IpAddr>,
    /// Isolation, which drops packets first.
    pub isolation: Option<Isolation>,
    /// The host's other firewall, which must accept the packets too.
    pub gate: Gate,
    /// Legacy iptables tables, which may drop as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legacy: Vec<LegacyTable>,
    /// Network, container id and interface.
    pub owner: String,
}

/// A legacy iptables table, which nf_tables does not show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LegacyTable {
    /// True for IPv4, false for IPv6.
    pub is_ipv4: bool,
    /// Name, for example `filter`.
    pub name: String,
}

impl LegacyTable {
    /// Returns the program that changes the table.
    pub fn program(&self) -> &'static str {
        if self.is_ipv4 {
            "iptables-legacy"
        } else {
            "ip6tables-legacy"
        }
    }

    /// Returns the command that inserts a rule at position `place` of FORWARD that accepts packets
    /// with braid's mark. It waits 5 s for the tables' lock.
    pub fn insert(&self, place: usize) -> String {
        let (program, table) = (self.program(), &self.name);
        format!(
            "{program} -w 5 -t {table} -I FORWARD {place} -m mark --mark {MARK:#x}/{MARK:#x} -j ACCEPT"
        )
    }
}

impl fmt::Display for LegacyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -t {}", self.program(), self.name)
    }
}

/// Packet mark bit of an accepted packet of a container.
pub const MARK: u32 = 0x1000;

impl Firewall {
    /// True if packets between ports of the bridge are dropped as well.
    pub fn is_within(&self) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(|isolation| isolation.within)
    }
}

/// The host's other firewall, which drops forwarded packets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Chains of nf_tables, including the iptables ones.
    Chains {
        /// The iptables chain of the administrator, which decides first.
        admin: String,
    },
    /// firewalld.
    Firewalld {
        /// The zone of packets from the addresses.
        zone: String,
    },
}

/// Drops packets between isolated bridges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isolation {
    /// The bridge.
    pub bridge: IfName,
    /// True to drop also packets between ports of the bridge.
    pub within: bool,
}

impl State for Firewall {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines(
            f,
            commands(self, verb)
                .into_iter()
                .map(|line| (Ns::Host, line)),
        )
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Firewall(self.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let missing = facts.firewalls.get(self).map(|missing| missing.join("; "));
        missing
            .filter(|missing| !missing.is_empty())
            .map_or(Ok(()), Err)
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}

/// Returns a command for each element.
fn commands(all: &Firewall, verb: Verb) -> Vec<String> {
    let (mut lines, word) = (Vec::new(), verb.word("add", "delete"));
    let comment = if verb == Verb::Add {
        format!(" comment {:?}", all.owner)
    } else {
        String::new()
    };
    for addr in &all.addrs {
        let family = if addr.is_ipv4() { '4' } else { '6' };
        lines.push(format!(
            "nft {word} element inet braid firewall{family} '{{ {addr}{comment} }}'"
        ));
    }
    if let Some(Isolation { bridge, within }) = &all.isolation {
        let sets = ["isolated-by", "isolated-within-by"]
            .into_iter()
            .take(1 + usize::from(*within));
        for (set, addr) in sets.flat_map(|set| all.addrs.iter().map(move |addr| (set, addr))) {
            let addr = match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped(),
                IpAddr::V6(addr) => *addr,
            };
            lines.push(format!(
                "nft {word} element inet braid {set} '{{ {bridge} . {addr}{comment} }}'"
            ));
        }
        lines.push(match verb {
            Verb::Add => format!("nft add element inet braid isolated '{{ {bridge} }}'  # and the pairs"),
            Verb::Del => {
                format!("# unless another container needs it: nft delete element inet braid isolated '{{ {bridge} }}'")
            }
        });
    }
    match &all.gate {
        Gate::Firewalld { zone } => {
            let verb = verb.word("add", "remove");
            let sources = all
                .addrs
                .iter()
                .map(|addr| format!("firewall-cmd --zone={zone} --{verb}-source={addr}"));
            lines.extend(sources);
        }
        Gate::Chains { admin } if verb == Verb::Add => {
            lines.push(format!(
                "# chains that drop forwarded packets accept braid's mark, after {admin}"
            ));
            let tables = all
                .legacy
                .iter()
                .map(|table| format!("# if {table} drops forwarded packets: {}", table.insert(1)));
            lines.extend(tables);
        }
        Gate::Chains { .. } => {}
    }
    lines
}
