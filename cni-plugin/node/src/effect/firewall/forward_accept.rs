//! Chains of other programs that would drop forwarded packets, and the rule in each that accepts
//! packets marked by [`super::addrs`].
//!
//! ```text
//! table ip filter {                                               as iptables on nf_tables has it
//!     chain FORWARD { type filter hook forward priority filter
//!         jump CNI-FORWARD comment "CNI firewall plugin rules" }
//!     chain CNI-FORWARD {
//!         jump CNI-ADMIN comment "CNI firewall plugin admin overrides"
//!         meta mark & 0x1000 == 0x1000 accept comment "braid firewall" }
//!     chain CNI-ADMIN { }
//! }
//! ```
//!
//! The chains and jumps are the same as in the reference plugin. But that plugin adds two rules for
//! each address, and braid adds one rule for all addresses. Other chains of the hook may drop
//! undecided packets by policy or by their last rule. In these chains, braid's rule is just before
//! the drop, so that the earlier rules of the chain still apply.

use crate::sys::netlink::{KernelError, Message, Socket, find};
use crate::sys::nft::TABLE;
use crate::sys::nft::batch::{Batch, Family, HOOK_FORWARD, RulePosition, SUBSYS};
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::read::{Rule, rules};
use crate::{Cause, Context};
use braid_core::plan::thing::firewall::MARK as BIT;
use nix::errno::Errno;
use std::net::IpAddr;

/// Table and base chain of iptables.
const FILTER: &str = "filter";
const FORWARD: &str = "FORWARD";
const PRIORITY: i32 = 0;
/// Chain of the reference plugin.
const CNI: &str = "CNI-FORWARD";
const CNI_COMMENT: &str = "CNI firewall plugin rules";
const ADMIN_COMMENT: &str = "CNI firewall plugin admin overrides";
const COMMENT: &str = "braid firewall";
const GETCHAIN: u16 = 4;
const NF_DROP: u32 = 0;
const GENMSG_LEN: usize = 4;

/// Lists the missing rules and jumps, each as a sentence. Without them, packets of the addresses
/// are dropped.
pub fn shut(
    socket: &mut Socket,
    addrs: &[IpAddr],
    admin: &str,
) -> Result<Vec<String>, KernelError> {
    let chains = chains(socket)?;
    let mut shut = Vec::new();
    for family in [Family::Ip, Family::Ip6] {
        if !has_addrs(family, addrs) || !is_iptables(family, &chains) {
            continue;
        }
        let name = family.name();
        if !jumps_to(&rules(socket, family, FILTER, FORWARD)?, CNI) {
            shut.push(format!("{name} {FILTER} {FORWARD} does not jump to {CNI}"));
        }
        let cni = rules(socket, family, FILTER, CNI)?;
        if !jumps_to(&cni, admin) {
            shut.push(format!("{name} {FILTER} {CNI} does not jump to {admin}"));
        }
        if !cni.iter().any(is_gate) {
            shut.push(format!(
                "{name} {FILTER} {CNI} does not accept packets with braid's mark"
            ));
        }
    }
    for (chain, _) in droppers(socket, addrs, &chains)? {
        shut.push(format!(
            "{} {} {} drops packets with braid's mark",
            chain.family.name(),
            chain.table,
            chain.name
        ));
    }
    Ok(shut)
}

/// Adds the missing rules and jumps. Concurrent calls could add a rule twice, so the caller holds a
/// lock.
pub fn open(socket: &mut Socket, addrs: &[IpAddr], admin: &str) -> Result<(), Cause> {
    let chains = chains(socket)?;
    for family in [Family::Ip, Family::Ip6] {
        if !has_addrs(family, addrs) || !is_iptables(family, &chains) {
            continue;
        }
        let batch = open_iptables(socket, family, admin, has(family, &chains))?;
        batch.send(socket).doing(format_args!(
            "add rules to chain {} {FILTER} {FORWARD}",
            family.name()
        ))?;
    }
    for (chain, last) in droppers(socket, addrs, &chains)? {
        let Chain {
            family,
            table,
            name,
            ..
        } = chain;
        let position = match last {
            Some(handle) => RulePosition::Before(handle),
            None => RulePosition::Last,
        };
        let mut batch = Batch::new(*family, table.clone());
        batch.commented_rule(name, position, COMMENT, pass);
        match batch.send(socket) {
            // The rule was deleted meanwhile.
            Err(err) if err.errno == Errno::ENOENT => {}
            // Only its owner may change the table. CHECK reports the missing rule.
            Err(err) if err.errno == Errno::EPERM => {}
            other => other.doing(format_args!(
                "add a rule to chain {} {table} {name}",
                family.name()
            ))?,
        }
    }
    Ok(())
}

fn open_iptables(
    socket: &mut Socket,
    family: Family,
    admin: &str,
    has_forward: bool,
) -> Result<Batch, KernelError> {
    let (forward, cni) = (
        rules(socket, family, FILTER, FORWARD)?,
        rules(socket, family, FILTER, CNI)?,
    );
    let mut batch = Batch::new(family, FILTER);
    batch.table();
    if !has_forward {
        batch.shared_base_chain(FORWARD, "filter", HOOK_FORWARD, PRIORITY);
    }
    batch.shared_chain(CNI).shared_chain(admin);
    if !jumps_to(&forward, CNI) {
        batch.commented_rule(FORWARD, RulePosition::First, CNI_COMMENT, |rule| {
            rule.count().decide(Verdict::Jump(CNI));
        });
    }
    if !jumps_to(&cni, admin) {
        batch.commented_rule(CNI, RulePosition::First, ADMIN_COMMENT, |rule| {
            rule.count().decide(Verdict::Jump(admin));
        });
    }
    if !cni.iter().any(is_gate) {
        batch.commented_rule(CNI, RulePosition::Last, COMMENT, pass);
    }
    Ok(batch)
}

fn pass(rule: &mut Batch) {
    rule.is_marked(REG_1, BIT).count().decide(Verdict::Accept);
}

fn jumps_to(rules: &[Rule], chain: &str) -> bool {
    rules
        .iter()
        .any(|rule| rule.jumps_to.as_deref() == Some(chain))
}

/// True if the rule accepts packets with braid's mark. Its comment is not compared, since
/// iptables-restore writes comments in another form.
fn is_gate(rule: &Rule) -> bool {
    rule.is(Verdict::Accept) && rule.only_compares(&BIT.to_ne_bytes())
}

/// True if packets of at least one of the addresses pass the chains of this family.
fn has_addrs(family: Family, addrs: &[IpAddr]) -> bool {
    match family {
        Family::Inet => true,
        Family::Ip => addrs.iter().any(IpAddr::is_ipv4),
        Family::Ip6 => addrs.iter().any(IpAddr::is_ipv6),
        Family::Bridge | Family::Netdev => false,
    }
}

/// A chain of another program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) family: Family,
    pub(crate) table: String,
    pub(crate) name: String,
    /// Priority, if the chain filters at the forward hook.
    pub(crate) priority: Option<i32>,
    /// True if packets without a verdict are dropped.
    pub(crate) is_dropping: bool,
}

/// Lists the chains of the families `inet`, `ip` and `ip6`.
pub(crate) fn chains(socket: &mut Socket) -> Result<Vec<Chain>, KernelError> {
    let messages = socket.dump(SUBSYS | GETCHAIN, |out| out.extend([0; GENMSG_LEN]))?;
    Ok(messages.iter().filter_map(parse).collect())
}

fn parse(message: &Message) -> Option<Chain> {
    let (head, body) = message.body.split_at_checked(GENMSG_LEN)?;
    let family = [Family::Inet, Family::Ip, Family::Ip6]
        .into_iter()
        .find(|family| *family as u8 == head[0])?;
    let number = |bytes: Option<&[u8]>| Some(u32::from_be_bytes(*bytes?.first_chunk()?));
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .trim_end_matches('\0')
            .to_owned()
    };
    let is_filter = find(7, body).is_some_and(|kind| text(kind) == "filter");
    let mut priority = None;
    if let Some(hook) = find(4, body)
        && is_filter
        && number(find(1, hook)) == Some(HOOK_FORWARD)
    {
        priority = number(find(2, hook)).map(u32::cast_signed);
    }
    let is_dropping = priority.is_some() && number(find(5, body)) == Some(NF_DROP);
    Some(Chain {
        family,
        table: text(find(1, body)?),
        name: text(find(3, body)?),
        priority,
        is_dropping,
    })
}

impl Chain {
    fn is_forward(&self, family: Family) -> bool {
        self.family == family && self.table == FILTER && self.name == FORWARD
    }
}

fn has(family: Family, chains: &[Chain]) -> bool {
    chains.iter().any(|chain| chain.is_forward(family))
}

/// True if the family's chain `filter FORWARD` belongs to iptables. Also true if there is no such
/// chain.
fn is_iptables(family: Family, chains: &[Chain]) -> bool {
    let forward = chains.iter().find(|chain| chain.is_forward(family));
    forward.is_none_or(|forward| forward.priority == Some(PRIORITY))
}

/// Finds the chains at the forward hook that drop packets of the addresses, except the chains of
/// iptables. Returns each chain with the handle of the rule that drops. The handle is `None` if the
/// chain's policy drops.
fn droppers<'c>(
    socket: &mut Socket,
    addrs: &[IpAddr],
    chains: &'c [Chain],
) -> Result<Vec<(&'c Chain, Option<u64>)>, KernelError> {
    let mut droppers = Vec::new();
    for chain in chains {
        if chain.priority.is_none() || chain.table == TABLE || !has_addrs(chain.family, addrs) {
            continue;
        }
        let is_iptables = chain.is_forward(chain.family) && chain.priority == Some(PRIORITY);
        if is_iptables && chain.family != Family::Inet {
            continue;
        }
        let rules = rules(socket, chain.family, &chain.table, &chain.name)?;
        let last = match rules.last() {
            Some(last) if last.is_for_all && last.is(Verdict::Drop) => Some(last.handle),
            _ => None,
        };
        if (chain.is_dropping || last.is_some()) && !rules.iter().any(is_gate) {
            droppers.push((chain, last));
        }
    }
    Ok(droppers)
}
