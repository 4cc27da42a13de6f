//! Bridges whose containers are kept from each other (`ingressPolicy`): one element for each bridge, and in a set that no
//! rule asks, one for each container that wants it.
//!
//! ```text
//! table inet braid {
//!     set isolated { type ifname; elements = { "br0" } }
//!     set isolated-same { type ifname . ifname; elements = { "br0" . "br0" } }
//!     set isolated-within { type ifname . ifname }
//!     set isolated-by { type ifname . ipv6_addr; elements = { "br0" . ::ffff:10.1.0.5 comment "net 4f1c eth0" } }
//!     set isolated-within-by { type ifname . ipv6_addr }
//!     chain isolation { type filter hook forward priority filter - 10
//!         iifname . oifname @isolated-within drop
//!         iifname @isolated oifname @isolated iifname . oifname != @isolated-same drop }
//! }
//! ```
//!
//! What a bridge carries comes here where `br_netfilter` is on; elsewhere its ports are isolated themselves.

use super::batch::{Batch, Family, Key, Means};
use super::expression::{REG_1, REG_2, Verdict};
use super::firewall::HOOK_FORWARD;
use super::mac_check::{IFNAME_LEN, META_IIFNAME, TYPE_IFNAME, name};
use super::masquerade::TABLE;
use super::read::{Element, element, elements};
use super::{del_element, first_that_fits, owners_in};
use crate::plan::IfName;
use crate::plan::thing::Firewall;
use crate::plan::thing::firewall::Isolation;
use crate::sys::netlink::{KernelError, Socket};
use nix::errno::Errno;
use std::net::IpAddr;

const FAMILY: Family = Family::Inet;
const CHAIN: &str = "isolation";
/// All that belong together.
pub(super) const CHAINS: &[&str] = &[CHAIN];
const ISOLATED: &str = "isolated";
const SAME: &str = "isolated-same";
const WITHIN: &str = "isolated-within";
const BY: &str = "isolated-by";
const WITHIN_BY: &str = "isolated-within-by";
/// Before everybody's chains for filters, whose priority is 0.
const PRIORITY: i32 = -10;
const META_OIFNAME: u32 = 7;
const TYPE_IPV6_ADDR: u32 = 8;

/// Keeps the bridge's containers apart for the container, whoever had its addresses before. Nobody else may add or end the
/// same meanwhile.
pub fn add(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let Some(isolation) = &what.isolation else { return Ok(()) };
    for (set, key) in books(isolation, &what.addrs) {
        del_element(socket, set, &key)?;
        add_if_new(socket, set, &key, &what.owner)?;
    }
    for (set, key) in parts(&isolation.bridge, true, isolation.within) {
        add_if_new(socket, set, &key, "")?;
    }
    Ok(())
}

/// Ends it where no other container wants it; success where it is not there. Nobody else may add or end the same meanwhile.
pub fn del(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let Some(isolation) = &what.isolation else { return Ok(()) };
    for (set, key) in books(isolation, &what.addrs) {
        if is_of(socket, set, &key, &what.owner)? {
            del_element(socket, set, &key)?;
        }
    }
    end_unwanted(socket, &isolation.bridge)
}

fn is_of(socket: &mut Socket, set: &str, key: &[u8], owner: &str) -> Result<bool, KernelError> {
    Ok(element(socket, FAMILY, TABLE, set, key)?.is_some_and(|element| element.comment == owner))
}

/// Ends it for all that an owner wants.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    for set in [BY, WITHIN_BY] {
        let found = elements(socket, FAMILY, TABLE, set)?;
        for element in found.iter().filter(|element| element.comment == owner) {
            del_element(socket, set, &element.key)?;
            if let Some(bridge) = bridge_of(element) {
                end_unwanted(socket, &bridge)?;
            }
        }
    }
    Ok(())
}

/// What of it is not there, each as a sentence.
pub fn missing(socket: &mut Socket, what: &Firewall) -> Result<Vec<String>, KernelError> {
    let Some(isolation) = &what.isolation else { return Ok(Vec::new()) };
    let mut missing = Vec::new();
    let sentence = |set: &str| format!("{} is missing in {set}", isolation.bridge);
    for (set, key) in parts(&isolation.bridge, true, isolation.within) {
        if element(socket, FAMILY, TABLE, set, &key)?.is_none() {
            missing.push(sentence(set));
        }
    }
    for (set, key) in books(isolation, &what.addrs) {
        if !is_of(socket, set, &key, &what.owner)? {
            missing.push(sentence(set));
        }
    }
    Ok(missing)
}

/// All that want a bridge's containers kept apart.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &[BY, WITHIN_BY])
}

/// The notes that the container wants it.
fn books(isolation: &Isolation, addrs: &[IpAddr]) -> Vec<(&'static str, Vec<u8>)> {
    let bridge = name(&isolation.bridge);
    let mapped = |addr: &IpAddr| match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    };
    let sets = [Some(BY), isolation.within.then_some(WITHIN_BY)];
    let of = |set| addrs.iter().map(move |addr| (set, [bridge, mapped(addr)].concat()));
    sets.into_iter().flatten().flat_map(of).collect()
}

/// What rules ask for: `all` of the bridge's, or only what is dropped `within`.
fn parts(bridge: &IfName, all: bool, within: bool) -> Vec<(&'static str, Vec<u8>)> {
    let bridge = name(bridge);
    let pair = [bridge, bridge].concat();
    let mut parts = Vec::new();
    if all {
        parts.extend([(ISOLATED, bridge.to_vec()), (SAME, pair.clone())]);
    }
    if within {
        parts.push((WITHIN, pair));
    }
    parts
}

fn bridge_of(element: &Element) -> Option<IfName> {
    let bridge = element.key.get(..IFNAME_LEN)?;
    IfName::parse(std::str::from_utf8(bridge).ok()?.trim_end_matches('\0')).ok()
}

fn end_unwanted(socket: &mut Socket, bridge: &IfName) -> Result<(), KernelError> {
    let is_of = |element: &Element| element.key.starts_with(&name(bridge));
    let mut is_wanted =
        |set| -> Result<bool, KernelError> { Ok(elements(socket, FAMILY, TABLE, set)?.iter().any(is_of)) };
    let (wanted, within) = (is_wanted(BY)?, is_wanted(WITHIN_BY)?);
    for (set, key) in parts(bridge, !wanted, !within) {
        del_element(socket, set, &key)?;
    }
    Ok(())
}

fn add_if_new(socket: &mut Socket, set: &str, key: &[u8], owner: &str) -> Result<(), KernelError> {
    let element = |b: &mut Batch| {
        b.add_element(set, key, Means::Nothing, owner);
    };
    let added = first_that_fits(
        socket,
        &[&|| batch(element), &|| {
            batch(|b| {
                add_base(b);
                element(b);
            })
        }],
    );
    match added {
        Err(err) if err.errno == Errno::EEXIST => Ok(()),
        other => other,
    }
}

fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(FAMILY, TABLE, fill)
}

fn add_base(batch: &mut Batch) {
    batch.table();
    batch.set(ISOLATED, Key { kind: TYPE_IFNAME, len: 16, host_order: true });
    for set in [SAME, WITHIN] {
        batch.set(set, Key { kind: TYPE_IFNAME << 6 | TYPE_IFNAME, len: 32, host_order: false });
    }
    for set in [BY, WITHIN_BY] {
        batch.set(set, Key { kind: TYPE_IFNAME << 6 | TYPE_IPV6_ADDR, len: 32, host_order: false });
    }
    batch.base_chain(CHAIN, "filter", HOOK_FORWARD, PRIORITY);
    batch.rule(CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1).meta(META_OIFNAME, REG_2).lookup(WITHIN, REG_1, false);
        rule.decide(Verdict::Drop);
    });
    batch.rule(CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1).lookup(ISOLATED, REG_1, false);
        rule.meta(META_OIFNAME, REG_1).lookup(ISOLATED, REG_1, false);
        rule.meta(META_IIFNAME, REG_1).meta(META_OIFNAME, REG_2).lookup(SAME, REG_1, true);
        rule.decide(Verdict::Drop);
    });
}
