//! What the host forwards for containers: table `inet braid`, one element for each address of a container.
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
//! No chain can let through what another one drops, so this one marks, and the chains that would drop let what is marked
//! through ([`super::gate`]). It marks twice, since what filters may stand before what gives packets other marks. The bit
//! is braid's own while a packet is forwarded, and gone when it leaves the hook.

use super::batch::{Batch, Family, Key, Means};
use super::expression::{Nfproto, REG_1, Verdict};
use super::hostport;
use super::masquerade::TABLE;
use super::read::{element, elements};
use super::{Spot, bytes, del_element, first_that_fits, owners_in};
use crate::plan::thing::Firewall;
use crate::plan::thing::firewall::MARK as BIT;
use crate::sys::netlink::{KernelError, Socket};
use std::net::IpAddr;

const FAMILY: Family = Family::Inet;
const CHAIN: &str = "firewall";
const EARLY: &str = "firewall-early";
const MARK: &str = "firewall-mark";
const END: &str = "firewall-end";
/// All that belong together.
pub(super) const CHAINS: &[&str] = &[CHAIN, EARLY, MARK, END];
pub(super) const HOOK_FORWARD: u32 = 2;
/// Before everybody's chains for filters, whose priority is 0, and behind those that give marks (`mangle`, -150).
const PRIORITY: i32 = -10;
/// Before those as well.
const PRIORITY_EARLY: i32 = -399;
/// Behind all that decide.
const PRIORITY_END: i32 = i32::MAX;
const NETWORK_HEADER: u32 = 1;

/// What differs between IPv4 and IPv6.
struct Ip {
    set: &'static str,
    key: Key,
    nfproto: Nfproto,
    saddr: u32,
    daddr: u32,
}

const V4: Ip = Ip {
    set: "firewall4",
    key: Key { kind: 7, len: 4, host_order: false },
    nfproto: Nfproto::V4,
    saddr: 12,
    daddr: 16,
};
const V6: Ip = Ip {
    set: "firewall6",
    key: Key { kind: 8, len: 16, host_order: false },
    nfproto: Nfproto::V6,
    saddr: 8,
    daddr: 24,
};

fn set(addr: IpAddr) -> &'static str {
    if addr.is_ipv4() { V4.set } else { V6.set }
}

/// Lets the addresses' packets through; `EEXIST` where those of one of them are.
pub fn add(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let elements = |b: &mut Batch| {
        for addr in &what.addrs {
            b.add_element(set(*addr), &bytes(*addr), Means::Nothing, &what.owner);
        }
    };
    first_that_fits(
        socket,
        &[&|| batch(elements), &|| {
            batch(|b| {
                add_base(b);
                elements(b);
            })
        }],
    )
}

/// The elements of the addresses that are still this owner's.
pub fn owned(socket: &mut Socket, what: &Firewall) -> Result<Vec<Spot>, KernelError> {
    let mut own = Vec::new();
    for addr in &what.addrs {
        if is_of(socket, *addr, &what.owner)? {
            own.push(Spot { set: set(*addr), key: bytes(*addr) });
        }
    }
    Ok(own)
}

/// Ends it for all of an owner's addresses.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    for set in [V4.set, V6.set] {
        for element in elements(socket, FAMILY, TABLE, set)?.iter().filter(|element| element.comment == owner) {
            del_element(socket, set, &element.key)?;
        }
    }
    Ok(())
}

/// Whose the address is; `None` where nothing is let through for it.
pub fn owner(socket: &mut Socket, addr: IpAddr) -> Result<Option<String>, KernelError> {
    let found = element(socket, FAMILY, TABLE, set(addr), &bytes(addr))?;
    Ok(found.map(|element| element.comment))
}

/// Whether the address is this owner's.
pub fn is_of(socket: &mut Socket, addr: IpAddr, of: &str) -> Result<bool, KernelError> {
    Ok(owner(socket, addr)?.is_some_and(|owner| owner == of))
}

/// All owners of an address.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &[V4.set, V6.set])
}

/// Ends it for an address, whoever has it.
pub fn del_addr(socket: &mut Socket, addr: IpAddr) -> Result<(), KernelError> {
    del_element(socket, set(addr), &bytes(addr))
}

fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(FAMILY, TABLE, fill)
}

/// Marks what is on its way to an address that is let through.
fn mark(rule: &mut Batch, ip: &Ip) {
    rule.payload(NETWORK_HEADER, ip.daddr, ip.key.len, REG_1).lookup(ip.set, REG_1, false).set_mark(REG_1, !BIT, BIT);
}

fn add_base(batch: &mut Batch) {
    batch.table();
    hostport::add_led(batch);
    for ip in [&V4, &V6] {
        batch.set(ip.set, ip.key);
    }
    batch.chain(MARK);
    for (chain, priority) in [(EARLY, PRIORITY_EARLY), (CHAIN, PRIORITY)] {
        batch.base_chain(chain, "filter", HOOK_FORWARD, priority);
        batch.rule(chain, |rule| {
            rule.decide(Verdict::Jump(MARK));
        });
    }
    batch.base_chain(END, "filter", HOOK_FORWARD, PRIORITY_END);
    // Nobody else's mark opens a gate.
    for chain in [MARK, END] {
        batch.rule(chain, |rule| {
            rule.is_marked(REG_1, BIT).set_mark(REG_1, !BIT, 0);
        });
    }
    for ip in [&V4, &V6] {
        add_rules(batch, ip);
    }
}

fn add_rules(batch: &mut Batch, ip: &Ip) {
    batch.rule(MARK, |rule| {
        rule.only_family(ip.nfproto, REG_1).payload(NETWORK_HEADER, ip.saddr, ip.key.len, REG_1);
        rule.lookup(ip.set, REG_1, false).set_mark(REG_1, !BIT, BIT);
    });
    batch.rule(MARK, |rule| {
        rule.only_family(ip.nfproto, REG_1).is_answer(REG_1);
        mark(rule, ip);
    });
    batch.rule(MARK, |rule| mark(hostport::is_led(rule, ip.nfproto), ip));
}
