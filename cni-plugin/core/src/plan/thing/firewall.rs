//! Forwarding rules for a container.

use super::state::{State, Verb, lines};
use crate::name::Ns;
pub use crate::plan::fact::firewall::{Firewall, Gate, Isolation, LegacyTable, MARK};
use crate::plan::facts::{Facts, Need};
use std::fmt;
use std::net::IpAddr;

impl Firewall {
    /// True if packets between ports of the same bridge are dropped as well.
    pub fn is_within(&self) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(|isolation| isolation.within)
    }
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

/// Returns the commands that add or delete the forwarding rules, with one command for each
/// nf_tables element.
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
