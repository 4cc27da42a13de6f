//! The chains of others that would drop what the host forwards, and the rule in each that lets through what
//! [`super::firewall`] marked.
//!
//! ```text
//! table ip filter {                                               as iptables on nf_tables has it
//!     chain FORWARD { type filter hook forward priority filter
//!         jump CNI-FORWARD comment "CNI firewall plugin rules" }
//!     chain CNI-FORWARD {
//!         jump CNI-ADMIN comment "CNI firewall plugin admin overrides"
//!         meta mark & 0x2000 == 0x2000 accept comment "braid firewall" }
//!     chain CNI-ADMIN { }
//! }
//! ```
//!
//! Chains and jumps are those of the reference plugin, where it puts two rules for each address. In any other chain of the
//! hook whose policy is to drop, the last rule stands at its end, so that what its owner decides goes before.

use super::batch::{Batch, Family, SUBSYS};
use super::expression::{REG_1, Verdict};
use super::firewall::{BIT, HOOK_FORWARD};
use super::read::{Rule, rules};
use crate::sys::netlink::{KernelError, Message, Socket, find};
use nix::errno::Errno;
use std::net::IpAddr;

/// The table and the base chain of iptables.
const FILTER: &str = "filter";
const FORWARD: &str = "FORWARD";
/// The chain of the reference plugin.
const CNI: &str = "CNI-FORWARD";
const CNI_COMMENT: &str = "CNI firewall plugin rules";
const ADMIN_COMMENT: &str = "CNI firewall plugin admin overrides";
const COMMENT: &str = "braid firewall";
const GETCHAIN: u16 = 4;
const NF_DROP: u32 = 0;
const GENMSG_LEN: usize = 4;

/// What of the gates for the addresses is missing, each as a sentence.
pub fn shut(socket: &mut Socket, addrs: &[IpAddr], admin: &str) -> Result<Vec<String>, KernelError> {
    let mut shut = Vec::new();
    for family in families(addrs) {
        let of = |socket: &mut Socket, chain| rules(socket, family, FILTER, chain);
        if position(&of(socket, FORWARD)?, CNI).is_none() {
            shut.push(format!("{} {FILTER} {FORWARD} does not jump to {CNI}", family.name()));
        }
        let cni = of(socket, CNI)?;
        if position(&cni, admin).is_none() {
            shut.push(format!("{} {FILTER} {CNI} does not jump to {}", family.name(), admin));
        }
        if !cni.iter().any(is_gate) {
            shut.push(format!("{} {FILTER} {CNI} does not let through what braid marks", family.name()));
        }
    }
    for chain in shut_chains(socket, addrs)? {
        shut.push(format!("{} {} {} drops what braid marks", chain.family.name(), chain.table, chain.name));
    }
    Ok(shut)
}

/// Opens all of them. Nobody else may do the same meanwhile, or a rule may be there twice.
pub fn open(socket: &mut Socket, addrs: &[IpAddr], admin: &str) -> Result<(), KernelError> {
    for family in families(addrs) {
        let batch = open_iptables(socket, family, admin)?;
        batch.send(socket)?;
    }
    for Chain { family, table, name } in shut_chains(socket, addrs)? {
        let mut batch = Batch::new(family, table);
        batch.commented_rule(&name, COMMENT, pass);
        match batch.send(socket) {
            // Somebody took it away meanwhile.
            Err(err) if err.errno == Errno::ENOENT => {}
            other => other?,
        }
    }
    Ok(())
}

fn open_iptables(socket: &mut Socket, family: Family, admin: &str) -> Result<Batch, KernelError> {
    let (forward, cni) = (rules(socket, family, FILTER, FORWARD)?, rules(socket, family, FILTER, CNI)?);
    let mut batch = Batch::new(family, FILTER);
    batch.table().shared_base_chain(FORWARD, "filter", HOOK_FORWARD, 0);
    batch.shared_chain(CNI).shared_chain(admin);
    if position(&forward, CNI).is_none() {
        batch.first_rule(FORWARD, CNI_COMMENT, |rule| {
            rule.count().decide(Verdict::Jump(CNI));
        });
    }
    if position(&cni, admin).is_none() {
        batch.first_rule(CNI, ADMIN_COMMENT, |rule| {
            rule.count().decide(Verdict::Jump(admin));
        });
    }
    if !cni.iter().any(is_gate) {
        batch.commented_rule(CNI, COMMENT, pass);
    }
    Ok(batch)
}

fn pass(rule: &mut Batch) {
    rule.is_marked(REG_1, BIT).count().decide(Verdict::Accept);
}

fn position(rules: &[Rule], chain: &str) -> Option<usize> {
    rules.iter().position(|rule| rule.jumps_to.as_deref() == Some(chain))
}

fn is_gate(rule: &Rule) -> bool {
    rule.comment == COMMENT
}

fn families(addrs: &[IpAddr]) -> impl Iterator<Item = Family> {
    let has = |is_v4: bool| addrs.iter().any(|addr| addr.is_ipv4() == is_v4);
    [(Family::Ip, has(true)), (Family::Ip6, has(false))].into_iter().filter_map(|(family, has)| has.then_some(family))
}

/// A chain of somebody's.
#[derive(Debug, PartialEq, Eq)]
struct Chain {
    family: Family,
    table: String,
    name: String,
}

/// Chains of the hook whose policy drops the addresses' packets; not those of iptables.
fn shut_chains(socket: &mut Socket, addrs: &[IpAddr]) -> Result<Vec<Chain>, KernelError> {
    let messages = socket.dump(SUBSYS | GETCHAIN, |out| out.extend([0; GENMSG_LEN]))?;
    let mut shut = Vec::new();
    for chain in messages.iter().filter_map(parse_dropping) {
        let concerns = chain.family == Family::Inet || families(addrs).any(|family| family == chain.family);
        if concerns && !rules(socket, chain.family, &chain.table, &chain.name)?.iter().any(is_gate) {
            shut.push(chain);
        }
    }
    Ok(shut)
}

fn parse_dropping(message: &Message) -> Option<Chain> {
    let (head, body) = message.body.split_at_checked(GENMSG_LEN)?;
    let family = [Family::Inet, Family::Ip, Family::Ip6].into_iter().find(|family| *family as u8 == head[0])?;
    let number = |bytes: Option<&[u8]>| Some(u32::from_be_bytes(*bytes?.first_chunk()?));
    let text = |bytes: Option<&[u8]>| Some(String::from_utf8_lossy(bytes?).trim_end_matches('\0').to_owned());
    let is_filter = text(find(7, body))? == "filter";
    let is_dropping = number(find(1, find(4, body)?))? == HOOK_FORWARD && number(find(5, body))? == NF_DROP;
    let (table, name) = (text(find(1, body))?, text(find(3, body))?);
    let is_iptables = family != Family::Inet && table == FILTER && name == FORWARD;
    (is_filter && is_dropping && !is_iptables).then_some(Chain { family, table, name })
}
