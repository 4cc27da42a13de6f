//! Forwarding for a container: what the host lets through, and what not.

use super::{State, Verb, lines};
use crate::name::{IfName, Ns};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Forwarding for a container: the packets that the host lets through, and those it drops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Firewall {
    /// Of the container: what these send is let through, and what answers them or was led to them.
    pub addrs: Vec<IpAddr>,
    /// The isolation, which drops packets before.
    pub isolation: Option<Isolation>,
    /// The other firewall, which has to let them through.
    pub gate: Gate,
    /// Tables of the older iptables, which may drop as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legacy: Vec<LegacyTable>,
    /// Network, container id and interface.
    pub owner: String,
}

/// A table of the older iptables, which nf_tables does not show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LegacyTable {
    /// For IPv4; otherwise for IPv6.
    pub is_ipv4: bool,
    /// Its name, for example `filter`.
    pub name: String,
}

impl LegacyTable {
    /// The program that changes it.
    pub fn program(&self) -> &'static str {
        if self.is_ipv4 {
            "iptables-legacy"
        } else {
            "ip6tables-legacy"
        }
    }

    /// The command that lets through what braid marks, as rule number `place` of FORWARD. It waits
    /// 5 s for the tables' lock.
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

/// The bit of a packet's mark that says that a container's packet is let through.
pub const MARK: u32 = 0x1000;

impl Firewall {
    /// True if packets from one port of the bridge for another are dropped as well.
    pub fn is_within(&self) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(|isolation| isolation.within)
    }
}

/// The other firewall that drops what the host forwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Chains of nf_tables, those of iptables among them.
    Chains {
        /// The chain of iptables that decides before.
        admin: String,
    },
    /// firewalld.
    Firewalld {
        /// The zone of all that the addresses send.
        zone: String,
    },
}

/// Drops what comes from one such bridge for another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Isolation {
    /// The bridge.
    pub bridge: IfName,
    /// Also what comes from one port of the bridge for another.
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

/// One command for each element.
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
                format!("# unless somebody else wants it: nft delete element inet braid isolated '{{ {bridge} }}'")
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
                "# chains that drop what is forwarded let braid's mark through, behind {admin}"
            ));
            let tables = all
                .legacy
                .iter()
                .map(|table| format!("# where {table} drops that: {}", table.insert(1)));
            lines.extend(tables);
        }
        Gate::Chains { .. } => {}
    }
    lines
}
