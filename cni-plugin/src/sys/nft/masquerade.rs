//! Masquerading: table `inet braid`, one map element for each source address, one chain for each pod network.
//!
//! ```text
//! table inet braid {
//!     map masquerade4 { type ipv4_addr : verdict
//!         elements = { 10.1.0.5 comment "net 4f1c eth0" : goto outside-10.1.0.0/16 } }
//!     map masquerade6 { type ipv6_addr : verdict }
//!     chain postrouting { type nat hook postrouting priority srcnat
//!         ip saddr vmap @masquerade4
//!         ip6 saddr vmap @masquerade6 }
//!     chain outside-10.1.0.0/16 {
//!         ip daddr 10.1.0.0/16 return
//!         ip daddr 224.0.0.0/4 return
//!         masquerade }
//! }
//! ```

use super::batch::{Batch, Family, Key, Means};
use super::expression::{REG_1, Verdict};
use super::read::{Element, element, elements};
use super::{Spot, bytes, del_element, first_that_fits};
use crate::plan::thing::Masquerade;
use crate::sys::netlink::{KernelError, Socket};
use ipnet::IpNet;
use std::net::IpAddr;

/// The table's name.
pub const TABLE: &str = "braid";
const FAMILY: Family = Family::Inet;
const BASE_CHAIN: &str = "postrouting";
/// All that belong together.
pub(super) const CHAINS: &[&str] = &[BASE_CHAIN];
const HOOK_POSTROUTING: u32 = 4;
const PRIORITY_SRCNAT: i32 = 100;
const META_NFPROTO: u32 = 15;
const NETWORK_HEADER: u32 = 1;

/// What differs between IPv4 and IPv6.
struct Ip {
    map: &'static str,
    key: Key,
    nfproto: u8,
    source: u32,
    destination: u32,
    len: u32,
    multicast: &'static str,
}

const V4: Ip = Ip {
    map: "masquerade4",
    key: Key { kind: 7, len: 4, host_order: false },
    nfproto: 2,
    source: 12,
    destination: 16,
    len: 4,
    multicast: "224.0.0.0/4",
};
const V6: Ip = Ip {
    map: "masquerade6",
    key: Key { kind: 8, len: 16, host_order: false },
    nfproto: 10,
    source: 8,
    destination: 24,
    len: 16,
    multicast: "ff00::/8",
};

impl Ip {
    fn of(addr: IpAddr) -> &'static Self {
        if addr.is_ipv4() { &V4 } else { &V6 }
    }

    fn only_this_family(&self, rule: &mut Batch) {
        rule.meta(META_NFPROTO, REG_1).equals(REG_1, &[self.nfproto]);
    }
}

/// The map an address belongs to.
pub fn map(source: IpAddr) -> &'static str {
    Ip::of(source).map
}

/// The chain of a pod network. `nft` takes no colon in a name.
pub fn chain(network: &IpNet) -> String {
    format!("outside-{}", network.trunc()).replace(':', "_")
}

/// Makes the source masqueraded; `EEXIST` where it is, for a dead owner and perhaps by another network's chain.
pub fn add(socket: &mut Socket, what: &Masquerade) -> Result<(), KernelError> {
    first_that_fits(
        socket,
        &[
            &|| batch(|b| add_element(b, what)),
            &|| {
                batch(|b| {
                    add_network(b, &what.network);
                    add_element(b, what);
                })
            },
            &|| {
                batch(|b| {
                    add_base(b);
                    add_network(b, &what.network);
                    add_element(b, what);
                })
            },
        ],
    )
}

/// For whom the source is masqueraded; none where it is not.
pub fn owner(socket: &mut Socket, source: IpAddr) -> Result<Option<String>, KernelError> {
    let found = element(socket, FAMILY, TABLE, map(source), &bytes(source))?;
    Ok(found.map(|found| found.comment))
}

/// Whether the source is masqueraded for this owner.
pub fn is_there(socket: &mut Socket, what: &Masquerade) -> Result<bool, KernelError> {
    Ok(owner(socket, what.source)?.is_some_and(|owner| owner == what.owner))
}

/// The element of the source, where it is still this owner's.
pub fn owned(socket: &mut Socket, what: &Masquerade) -> Result<Option<Spot>, KernelError> {
    let spot = || Spot { set: map(what.source), key: bytes(what.source) };
    Ok(is_there(socket, what)?.then(spot))
}

/// Ends masquerading of all of an owner's sources.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    for (source, _) in list(socket)?.into_iter().filter(|(_, found)| **found == *owner) {
        del_source(socket, source)?;
    }
    Ok(())
}

/// Ends masquerading of a source, whoever has it.
pub fn del_source(socket: &mut Socket, source: IpAddr) -> Result<(), KernelError> {
    del_element(socket, map(source), &bytes(source))
}

/// All masqueraded sources and whose they are.
pub fn list(socket: &mut Socket) -> Result<Vec<(IpAddr, String)>, KernelError> {
    let mut found = Vec::new();
    for ip in [&V4, &V6] {
        let of = |Element { key, comment, .. }: Element| {
            let addr = match key.len() {
                4 => <[u8; 4]>::try_from(key).ok().map(IpAddr::from),
                _ => <[u8; 16]>::try_from(key).ok().map(IpAddr::from),
            };
            addr.map(|addr| (addr, comment))
        };
        found.extend(elements(socket, FAMILY, TABLE, ip.map)?.into_iter().filter_map(of));
    }
    Ok(found)
}

fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(FAMILY, TABLE, fill)
}

fn add_element(batch: &mut Batch, what: &Masquerade) {
    let goto = chain(&what.network);
    batch.add_element(map(what.source), &bytes(what.source), Means::Goto(&goto), &what.owner);
}

fn add_network(batch: &mut Batch, network: &IpNet) {
    let name = chain(network);
    let ip = Ip::of(network.addr());
    batch.chain(&name);
    for stays in [Some(network.trunc()), ip.multicast.parse().ok()].into_iter().flatten() {
        batch.rule(&name, |rule| {
            ip.only_this_family(rule);
            rule.payload(NETWORK_HEADER, ip.destination, ip.len, REG_1);
            rule.mask(REG_1, &bytes(stays.netmask())).equals(REG_1, &bytes(stays.network()));
            rule.decide(Verdict::Return);
        });
    }
    batch.rule(&name, |rule| {
        rule.masquerade();
    });
}

fn add_base(batch: &mut Batch) {
    batch.table();
    for ip in [&V4, &V6] {
        batch.verdict_map(ip.map, ip.key);
    }
    batch.base_chain(BASE_CHAIN, "nat", HOOK_POSTROUTING, PRIORITY_SRCNAT);
    for ip in [&V4, &V6] {
        batch.rule(BASE_CHAIN, |rule| {
            ip.only_this_family(rule);
            rule.payload(NETWORK_HEADER, ip.source, ip.len, REG_1).lookup_verdict(ip.map, REG_1);
        });
    }
}
