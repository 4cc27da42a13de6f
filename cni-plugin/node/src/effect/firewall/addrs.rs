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
//! No chain can let through what another one drops, so this one marks, and the chains that would
//! drop let what is marked through ([`super::gate`]). It marks twice, since what filters may stand
//! before what gives packets other marks. The bit is braid's own while a packet is forwarded, and
//! gone when it leaves the hook.

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
/// All that belong together.
pub(crate) const CHAINS: &[&str] = &[CHAIN, EARLY, MARK, END];
/// Before everybody's chains for filters, whose priority is 0, and behind those that give marks
/// (`mangle`, -150).
const PRIORITY: i32 = -10;
/// Before those as well.
const PRIORITY_EARLY: i32 = -399;
/// Behind all that decide.
const PRIORITY_END: i32 = i32::MAX;

fn key(addr: IpAddr) -> ElementKey {
    ElementKey {
        set: Ip::of(addr).one(SETS),
        key: bytes(addr),
    }
}

/// Lets the addresses' packets through; `EEXIST` where those of one of them are.
pub fn add(socket: &mut Socket, what: &Firewall) -> Result<(), KernelError> {
    let all = |has_base: bool| {
        batch(|b| {
            if has_base {
                add_base(b);
            }
            for ElementKey { set, key } in what.addrs.iter().copied().map(key) {
                b.add_element(set, &key, &Means::Nothing, &what.owner);
            }
        })
    };
    first_that_fits(socket, &[&|| all(false), &|| all(true)])
}

/// The elements of the addresses that are still this owner's.
pub(crate) fn owned(socket: &mut Socket, what: &Firewall) -> Result<Vec<ElementKey>, KernelError> {
    those(socket, what.addrs.iter().copied().map(key), |owner| {
        owner == what.owner
    })
}

/// Ends it for all of an owner's addresses.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    del_of(socket, &SETS, owner)
}

/// Owner of the address; `None` where nothing is let through for it.
pub fn owner(socket: &mut Socket, addr: IpAddr) -> Result<Option<String>, KernelError> {
    owner_of(socket, &key(addr))
}

/// True if the address is this owner's.
pub fn is_of(socket: &mut Socket, addr: IpAddr, of: &str) -> Result<bool, KernelError> {
    Ok(owner(socket, addr)?.is_some_and(|owner| owner == of))
}

/// All owners of an address.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &SETS)
}

/// Ends it for an address, whoever has it.
pub fn del_addr(socket: &mut Socket, addr: IpAddr) -> Result<(), KernelError> {
    del_all(socket, &[key(addr)])
}

/// Marks what is on its way to an address that is let through.
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
    // Nobody else's mark opens a gate.
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
