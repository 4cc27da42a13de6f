//! Isolation of the containers on a bridge (`ingressPolicy`). The rules look up one element for
//! each bridge. Two further sets record the containers that require the isolation, with one element
//! for each container. No rule uses these two sets.
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
//! With `br_netfilter`, bridged packets pass this hook. Without `br_netfilter`, they do not, so the
//! bridge's ports are isolated instead.

use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family, HOOK_FORWARD, IFNAME, Means};
use crate::sys::nft::expression::{META_IIFNAME, META_OIFNAME, REG_1, REG_2, Verdict};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::read::elements;
use crate::sys::nft::{
    ElementKey, batch, del_all, first_that_fits, ifname, name, owner_of, owners_in, those,
};
use braid_core::name::IfName;
use braid_core::plan::thing::Firewall;
use braid_core::plan::thing::firewall::Isolation;
use nix::errno::Errno;
use std::net::IpAddr;

const CHAIN: &str = "isolation";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[CHAIN];
const ISOLATED: &str = "isolated";
const SAME: &str = "isolated-same";
const WITHIN: &str = "isolated-within";
const BY: &str = "isolated-by";
const WITHIN_BY: &str = "isolated-within-by";
/// Priority before filter chains, which have priority 0.
const PRIORITY: i32 = -10;

/// Isolates the containers on the bridge, since this container requires it. If an address of the
/// container has an element of an earlier owner, replaces that element. The caller holds a lock
/// against concurrent changes.
pub fn add(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let Some(isolation) = &what.isolation else {
        return Ok(());
    };
    for key in books(isolation, &what.addrs) {
        del_all(socket, std::slice::from_ref(&key))?;
        add_if_new(socket, &key, &what.owner)?;
    }
    for key in parts(&isolation.bridge, true, isolation.within) {
        add_if_new(socket, &key, "")?;
    }
    Ok(())
}

/// Deletes this container's requirement of isolation, and ends the isolation if no other container
/// requires it. Missing elements are a success. The caller holds a lock against concurrent changes.
pub fn del(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let Some(isolation) = &what.isolation else {
        return Ok(());
    };
    let own = those(socket, books(isolation, &what.addrs), |owner| {
        owner == what.owner
    })?;
    del_all(socket, &own)?;
    end_unwanted(socket, &isolation.bridge)
}

/// Deletes an owner's requirements of isolation, and ends isolation that no other owner requires.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    for set in [BY, WITHIN_BY] {
        for element in elements(socket, Family::Inet, set)? {
            if element.comment != owner {
                continue;
            }
            let bridge = ifname(&element.key);
            let key = ElementKey {
                set,
                key: element.key,
            };
            del_all(socket, &[key])?;
            if let Some(bridge) = bridge {
                end_unwanted(socket, &bridge)?;
            }
        }
    }
    Ok(())
}

/// Lists the missing elements, each as a sentence.
pub fn missing(socket: &mut Socket, what: &Firewall) -> Result<Vec<String>, KernelError> {
    let Some(isolation) = &what.isolation else {
        return Ok(Vec::new());
    };
    let mut wanted = Vec::new();
    for key in parts(&isolation.bridge, true, isolation.within) {
        wanted.push((key, ""));
    }
    for key in books(isolation, &what.addrs) {
        wanted.push((key, &*what.owner));
    }
    let mut missing = Vec::new();
    for (key, owner) in wanted {
        if owner_of(socket, &key)?.is_none_or(|found| found != owner) {
            missing.push(format!("{} is missing in {}", isolation.bridge, key.set));
        }
    }
    Ok(missing)
}

/// Lists the owners that require isolation.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &[BY, WITHIN_BY])
}

/// Returns the keys of the elements that record the container's requirement.
fn books(isolation: &Isolation, addrs: &[IpAddr]) -> Vec<ElementKey> {
    let bridge = name(&isolation.bridge);
    let mapped = |addr: &IpAddr| match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    };
    let sets: &[_] = if isolation.within {
        &[BY, WITHIN_BY]
    } else {
        &[BY]
    };
    let mut books = Vec::with_capacity(sets.len() * addrs.len());
    for set in sets {
        for addr in addrs {
            books.push(ElementKey {
                set,
                key: [bridge, mapped(addr)].concat(),
            });
        }
    }
    books
}

/// Returns the keys that the rules look up for a bridge. With `all`, includes the keys that isolate
/// the bridge from other isolated bridges. With `within`, includes the key that isolates the
/// bridge's containers from each other.
fn parts(bridge: &IfName, all: bool, within: bool) -> Vec<ElementKey> {
    let bridge = name(bridge);
    let pair = [bridge, bridge].concat();
    let mut parts = Vec::new();
    if all {
        parts.extend([
            ElementKey {
                set: ISOLATED,
                key: bridge.to_vec(),
            },
            ElementKey {
                set: SAME,
                key: pair.clone(),
            },
        ]);
    }
    if within {
        parts.push(ElementKey {
            set: WITHIN,
            key: pair,
        });
    }
    parts
}

fn end_unwanted(socket: &mut Socket, bridge: &IfName) -> Result<(), KernelError> {
    let mut is_wanted = |set| -> Result<bool, KernelError> {
        Ok(elements(socket, Family::Inet, set)?
            .iter()
            .any(|element| element.key.starts_with(&name(bridge))))
    };
    let (wanted, within) = (is_wanted(BY)?, is_wanted(WITHIN_BY)?);
    del_all(socket, &parts(bridge, !wanted, !within))
}

fn add_if_new(socket: &mut Socket, key: &ElementKey, owner: &str) -> Result<(), KernelError> {
    let transaction = |has_base: bool| {
        batch(|b| {
            if has_base {
                add_base(b);
            }
            b.add_element(key.set, &key.key, &Means::Nothing, owner);
        })
    };
    match first_that_fits(socket, &[&|| transaction(false), &|| transaction(true)]) {
        Err(err) if err.errno == Errno::EEXIST => Ok(()),
        other => other,
    }
}

fn add_base(batch: &mut Batch) {
    batch.table();
    batch.set(ISOLATED, &[IFNAME]);
    for set in [SAME, WITHIN] {
        batch.set(set, &[IFNAME, IFNAME]);
    }
    for set in [BY, WITHIN_BY] {
        batch.set(set, &[IFNAME, Ip::V6.addr()]);
    }
    batch.base_chain(CHAIN, "filter", HOOK_FORWARD, PRIORITY);
    batch.rule(CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1)
            .meta(META_OIFNAME, REG_2)
            .lookup(WITHIN, REG_1, false);
        rule.decide(Verdict::Drop);
    });
    batch.rule(CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1)
            .lookup(ISOLATED, REG_1, false);
        rule.meta(META_OIFNAME, REG_1)
            .lookup(ISOLATED, REG_1, false);
        rule.meta(META_IIFNAME, REG_1)
            .meta(META_OIFNAME, REG_2)
            .lookup(SAME, REG_1, true);
        rule.decide(Verdict::Drop);
    });
}
