//! Forwarding for containers: table `inet braid`, one element for each address of a container.
//!
//! ```text
//! table inet braid {
//!     set firewall4 { type ipv4_addr; elements = { 10.1.0.5 comment "net 4f1c eth0" } }
//!     set firewall6 { type ipv6_addr }
//!     chain firewall { type filter hook forward priority filter - 10
//!         jump firewall-mark }
//!     chain firewall-early { type filter hook forward priority raw - 99
//!         jump firewall-mark }
//!     chain firewall-mark {
//!         meta mark & 0x1000 == 0x1000 meta mark set meta mark & ~0x1000
//!         ip saddr @firewall4 meta mark set meta mark | 0x1000
//!         ip daddr @firewall4 ct state established,related meta mark set meta mark | 0x1000
//!         ip daddr . meta l4proto . th dport @hostport4-led ip daddr @firewall4 meta mark set meta mark | 0x1000 }
//!     chain firewall-end { type filter hook forward priority 2147483647
//!         meta mark & 0x1000 == 0x1000 meta mark set meta mark & ~0x1000 }
//! }
//! ```
//!
//! A chain cannot accept packets that another chain drops. So the chain `firewall-mark` marks
//! packets. The chains that would drop these packets accept marked packets
//! ([`super::forward_accept`]). Packets are marked twice: programs may set marks after the chain
//! `firewall-early`, and filter chains may run before the chain `firewall`. braid owns the bit of
//! the mark while a packet is forwarded, and clears the bit at the end of the hook.

use crate::effect::host_ports::nft as host_ports;
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, HOOK_FORWARD, Means};
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::{
    ElementKey, batch, bytes, del_all, del_of, first_that_fits, owner_of, owners_in, those,
};
use braid_core::plan::thing::Firewall;
use braid_core::plan::thing::firewall::MARK as BIT;
use std::net::IpAddr;

const SETS: [&str; 2] = ["firewall4", "firewall6"];
const CHAIN: &str = "firewall";
const EARLY: &str = "firewall-early";
const MARK: &str = "firewall-mark";
const END: &str = "firewall-end";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[CHAIN, EARLY, MARK, END];
/// Priority of the chain `firewall`. It runs before the filter chains of all programs (0), and
/// after the chains that set marks (`mangle`, -150).
const PRIORITY: i32 = -10;
/// Priority of the chain `firewall-early`. It runs before filter chains with an early priority
/// (`raw`, -300), which run before the chains that set marks.
const PRIORITY_EARLY: i32 = -399;
/// Priority after all chains that accept or drop packets.
const PRIORITY_END: i32 = i32::MAX;

fn key(addr: IpAddr) -> ElementKey {
    ElementKey {
        set: Ip::of(addr).one(SETS),
        key: bytes(addr),
    }
}

/// Adds the elements that accept packets of the addresses in `what`. Returns `EEXIST` if one of the
/// addresses has an owner already.
pub fn add(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let transaction = |has_base: bool| {
        batch(|b| {
            if has_base {
                add_base(b);
            }
            for addr in &what.addrs {
                let ElementKey { set, key } = key(*addr);
                b.add_element(set, &key, &Means::Nothing, &what.owner);
            }
        })
    };
    first_that_fits(socket, &[&|| transaction(false), &|| transaction(true)])
}

/// Lists the elements for the addresses in `what` that still belong to its owner.
pub(crate) fn owned(socket: &mut Socket, what: &Firewall) -> Result<Vec<ElementKey>, KernelError> {
    those(socket, what.addrs.iter().copied().map(key), |owner| {
        owner == what.owner
    })
}

/// Deletes the elements of an owner for all of its addresses.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    del_of(socket, &SETS, owner)
}

/// Returns the owner of an address; `None` if the address has no element.
pub fn owner(socket: &mut Socket, addr: IpAddr) -> Result<Option<String>, KernelError> {
    owner_of(socket, &key(addr))
}

/// True if the address belongs to this owner.
pub fn is_of(socket: &mut Socket, addr: IpAddr, of: &str) -> Result<bool, KernelError> {
    Ok(owner(socket, addr)?.is_some_and(|owner| owner == of))
}

/// Lists the owners of all accepted addresses.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &SETS)
}

/// Deletes the element of an address, regardless of its owner.
pub fn del_addr(socket: &mut Socket, addr: IpAddr) -> Result<(), KernelError> {
    del_all(socket, &[key(addr)])
}

/// Marks packets to an accepted address.
fn mark(rule: &mut Batch, ip: Ip) {
    rule.destination(ip, REG_1)
        .lookup(ip.one(SETS), REG_1, false)
        .set_mark(REG_1, !BIT, BIT);
}

fn add_base(batch: &mut Batch) {
    batch.table();
    host_ports::add_led(batch);
    for ip in Ip::BOTH {
        batch.set(ip.one(SETS), &[ip.addr()]);
    }
    batch.chain(MARK);
    for (chain, priority) in [(EARLY, PRIORITY_EARLY), (CHAIN, PRIORITY)] {
        batch.base_chain(chain, "filter", HOOK_FORWARD, priority);
        batch.rule(chain, |rule| {
            rule.decide(Verdict::Jump(MARK));
        });
    }
    batch.base_chain(END, "filter", HOOK_FORWARD, PRIORITY_END);
    // Clears marks of other programs, which must not count as braid's.
    for chain in [MARK, END] {
        batch.rule(chain, |rule| {
            rule.is_marked(REG_1, BIT).set_mark(REG_1, !BIT, 0);
        });
    }
    for ip in Ip::BOTH {
        batch.rule(MARK, |rule| {
            rule.only(ip)
                .source(ip, REG_1)
                .lookup(ip.one(SETS), REG_1, false)
                .set_mark(REG_1, !BIT, BIT);
        });
        batch.rule(MARK, |rule| mark(rule.only(ip).is_answer(REG_1), ip));
        batch.rule(MARK, |rule| mark(host_ports::is_led(rule, ip), ip));
    }
}
