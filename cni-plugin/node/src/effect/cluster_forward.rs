//! Forwarding of pods by range: rules in base chains of other programs (Docker, ufw) that drop by
//! policy or by a rule for all packets.
//!
//! ```text
//! table ip filter {                                              as iptables on nf_tables has it
//!     chain FORWARD { type filter hook forward priority filter; policy drop
//!         ip saddr 10.244.0.0/16 counter accept                  -m comment "braid pods from 10.244.0.0/16"
//!         ip daddr 10.244.0.0/16 counter accept }                -m comment "braid pods to 10.244.0.0/16"
//! }
//! ```
//!
//! The rules of the chain's owner come first, so that they still apply. The comment of a rule has
//! its range and direction. In chains of iptables it is the match `comment`, and the rule has no
//! expression that `iptables -S` cannot print.

use super::firewall::forward_accept::{Chain, chains};
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family, RulePosition};
use crate::sys::nft::bytes;
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::read::{Rule, rules};
use crate::{Context, Error};
use ipnet::IpNet;
use nix::errno::Errno;

/// Start of the comment of each rule.
pub const COMMENT: &str = "braid pods ";
/// Prefixes of the names of tables that stay as they are: braid's own tables, and firewalld's, as its
/// zones decide about forwarding.
const LEFT_ALONE: [&str; 2] = ["braid", "firewalld"];
/// Base chain of iptables at the forward hook, and its tables with such a chain.
const IPTABLES_CHAIN: &str = "FORWARD";
const IPTABLES_TABLES: [&str; 3] = ["filter", "mangle", "security"];

/// A rule that accepts packets from or to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Accept {
    range: IpNet,
    is_source: bool,
}

/// Changes of a chain: deleted handles, and the position of the new rules.
#[derive(Debug, PartialEq, Eq)]
struct Edit {
    deleted: Vec<u64>,
    position: RulePosition,
}

/// Accepts packets from and to `ranges` in each chain of another program that drops all others, and
/// deletes other rules of the agent. Asks `may_change` before it changes a chain, by name. Returns
/// the changed chains. A table that only its owner may change stays.
pub fn ensure(
    ranges: &[IpNet],
    may_change: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<String>, Error> {
    let mut changed = Vec::new();
    let ranges = IpNet::aggregate(&ranges.to_vec());
    let doing = "accept pods in chains of other programs";
    let mut socket = Socket::netfilter().doing(doing)?;
    for chain in chains(&mut socket).doing(doing)? {
        let is_left_alone = LEFT_ALONE
            .iter()
            .any(|start| chain.table.starts_with(start));
        if chain.priority.is_none() || is_left_alone {
            continue;
        }
        let name = format!("{} {} {}", chain.family.name(), chain.table, chain.name);
        let mut may_change = || may_change(&name);
        let is_changed = ensure_in(&mut socket, (&chain, &ranges), &mut may_change)
            .doing(format_args!("change rules of chain {name}"))?;
        if is_changed {
            changed.push(name);
        }
    }
    Ok(changed)
}

/// Deletes the rules of the agent from all chains.
pub fn delete() -> Result<(), Error> {
    ensure(&[], &mut |_| true).map(drop)
}

fn ensure_in(
    socket: &mut Socket,
    (chain, ranges): (&Chain, &[IpNet]),
    may_change: &mut dyn FnMut() -> bool,
) -> Result<bool, KernelError> {
    let present = rules(socket, chain.family, &chain.table, &chain.name)?;
    let desired = if chain.is_dropping || drop_of_all(&present).is_some() {
        accepts(chain.family, ranges)
    } else {
        Vec::new()
    };
    let Some(edit) = edit(&present, &desired) else {
        return Ok(false);
    };
    if !may_change() {
        return Ok(false);
    }
    let mut batch = Batch::new(chain.family, chain.table.clone());
    for accept in &desired {
        add(&mut batch, chain, edit.position, *accept);
    }
    for handle in edit.deleted {
        batch.del_rule(&chain.name, handle);
    }
    match batch.send(socket) {
        // ENOENT: the owner deleted the chain or a rule meanwhile. EPERM: the owner alone may
        // change the table.
        Err(err) if matches!(err.errno, Errno::ENOENT | Errno::EPERM) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Lists the rules for the ranges of this family.
fn accepts(family: Family, ranges: &[IpNet]) -> Vec<Accept> {
    let mut accepts = Vec::new();
    for range in ranges {
        let passes = match family {
            Family::Inet => true,
            Family::Ip => range.addr().is_ipv4(),
            Family::Ip6 => range.addr().is_ipv6(),
            Family::Bridge | Family::Netdev => false,
        };
        if passes {
            accepts.extend([true, false].map(|is_source| Accept {
                range: *range,
                is_source,
            }));
        }
    }
    accepts
}

/// Returns the position of the first rule that drops or rejects all packets.
fn drop_of_all(rules: &[Rule]) -> Option<usize> {
    rules
        .iter()
        .position(|rule| rule.is_for_all && rule.is(Verdict::Drop))
}

/// Compares the rules of a chain with the desired ones; `None` if they are as desired. Rules after
/// one that drops everything have no effect, so the agent's are before it.
fn edit(present: &[Rule], desired: &[Accept]) -> Option<Edit> {
    let drop = drop_of_all(present);
    let mut own = Vec::new();
    let mut is_effective = true;
    for (number, rule) in present.iter().enumerate() {
        if rule.comment.starts_with(COMMENT) {
            own.push(rule);
            is_effective &= drop.is_none_or(|drop| number < drop);
        }
    }
    let is_desired = is_effective
        && own.len() == desired.len()
        && own
            .iter()
            .zip(desired)
            .all(|(rule, accept)| accept.is(rule));
    if is_desired {
        return None;
    }
    Some(Edit {
        deleted: own.iter().map(|rule| rule.handle).collect(),
        position: drop.map_or(RulePosition::Last, |drop| {
            RulePosition::Before(present[drop].handle)
        }),
    })
}

impl Accept {
    fn comment(&self) -> String {
        let direction = if self.is_source { "from" } else { "to" };
        format!("{COMMENT}{direction} {}", self.range)
    }

    /// True if the rule accepts these packets. iptables-restore may write a rule again, and compares
    /// then only the bytes of the prefix.
    fn is(&self, rule: &Rule) -> bool {
        let network = bytes(self.range.network());
        let prefix_len = usize::from(self.range.prefix_len());
        rule.comment == self.comment()
            && rule.is(Verdict::Accept)
            && rule.compares.last().is_some_and(|compared| {
                network.starts_with(compared) && compared.len() * 8 >= prefix_len
            })
    }
}

fn add(batch: &mut Batch, chain: &Chain, position: RulePosition, accept: Accept) {
    let ip = Ip::of(accept.range.addr());
    let is_inet = chain.family == Family::Inet;
    let is_iptables =
        !is_inet && chain.name == IPTABLES_CHAIN && IPTABLES_TABLES.contains(&chain.table.as_str());
    let comment = accept.comment();
    let rule = |rule: &mut Batch| {
        if is_inet {
            rule.only(ip);
        }
        if accept.is_source {
            rule.source(ip, REG_1);
        } else {
            rule.destination(ip, REG_1);
        }
        rule.within(&accept.range);
        if is_iptables {
            rule.match_comment(&comment);
        }
        rule.count().decide(Verdict::Accept);
    };
    if is_iptables {
        batch.rule_at(&chain.name, position, rule);
    } else {
        batch.commented_rule(&chain.name, position, &comment, rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    /// Returns a rule without conditions, or with the comparison that an `Accept` has.
    fn rule(handle: u64, verdict: Verdict<'_>, accept: Option<Accept>) -> Rule {
        let mut rule = Rule::with_verdict(handle, verdict);
        if let Some(accept) = accept {
            rule.comment = accept.comment();
            rule.compares = vec![bytes(accept.range.network())];
            rule.is_for_all = false;
        }
        rule
    }

    #[test]
    fn both_directions_of_the_familys_ranges_are_accepted() {
        let ranges = [range("10.244.0.0/16"), range("fd00::/48")];
        let comments = |family| -> Vec<String> {
            let accepts = accepts(family, &ranges);
            accepts.iter().map(Accept::comment).collect()
        };
        let v4 = [
            "braid pods from 10.244.0.0/16",
            "braid pods to 10.244.0.0/16",
        ];
        let v6 = ["braid pods from fd00::/48", "braid pods to fd00::/48"];
        assert_eq!(comments(Family::Ip), v4);
        assert_eq!(comments(Family::Ip6), v6);
        assert_eq!(comments(Family::Inet), [v4, v6].concat());
        assert!(comments(Family::Bridge).is_empty());
    }

    #[test]
    fn rules_are_changed_only_if_they_differ() {
        let desired = accepts(Family::Ip, &[range("10.244.0.0/16")]);
        let [from, to] = [0, 1].map(|at| Some(desired[at]));
        let others = rule(1, Verdict::Drop, None);
        let accept = Verdict::Accept;
        let last = RulePosition::Last;
        let edited = |deleted: &[u64], position| {
            Some(Edit {
                deleted: deleted.to_vec(),
                position,
            })
        };
        let own = [rule(2, accept, from), rule(3, accept, to)];
        assert_eq!(edit(&own, &desired), None);
        assert_eq!(edit(&[], &[]), None);
        assert_eq!(edit(&[], &desired), edited(&[], last));
        assert_eq!(edit(&own, &[]), edited(&[2, 3], last));
        assert_eq!(edit(&own[1..], &desired), edited(&[3], last));
        let mut shorter = own.clone();
        shorter[0].compares = vec![vec![10, 244]];
        assert_eq!(edit(&shorter, &desired), None, "iptables-restore's form");
        shorter[0].compares = vec![vec![10]];
        assert_eq!(edit(&shorter, &desired), edited(&[2, 3], last));
        let mut behind = vec![others.clone()];
        behind.extend(own.clone());
        let before = RulePosition::Before(1);
        assert_eq!(edit(&behind, &desired), edited(&[2, 3], before));
        let [first, second] = own;
        assert_eq!(edit(&[first, second, others], &desired), None);
    }
}
