//! Ports of the host that lead to containers: table `inet braid`, one map element for each port, one for each container.
//!
//! ```text
//! table inet braid {
//!     map hostport4 { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
//!         elements = { 192.0.2.1 . tcp . 8080 comment "net 4f1c eth0" : 10.1.0.5 . 80 } }
//!     map hostport4-any { type inet_proto . inet_service : ipv4_addr . inet_service }
//!     map hostport4-source { type ipv4_addr : verdict
//!         elements = { 10.1.0.5 comment "net 4f1c eth0" : goto hostport-own } }
//!     set hostport4-own { type ipv4_addr . ipv4_addr }
//!     chain hostport-in { type nat hook prerouting priority dstnat
//!         fib daddr type local goto hostport }
//!     chain hostport-out { type nat hook output priority dstnat
//!         fib daddr type local goto hostport }
//!     chain hostport {
//!         dnat ip to ip daddr . meta l4proto . th dport map @hostport4
//!         dnat ip to meta l4proto . th dport map @hostport4-any }
//!     chain hostport-back { type nat hook postrouting priority srcnat - 1
//!         ct status dnat ip daddr vmap @hostport4-source }
//!     chain hostport-own {
//!         ip saddr . ip daddr @hostport4-own masquerade
//!         ip saddr 127.0.0.0/8 masquerade }
//!     chain hostport-all { masquerade }
//!     chain hostport-of-10.1.0.0/16 {
//!         ip saddr 10.1.0.0/16 masquerade
//!         ip saddr 127.0.0.0/8 masquerade }
//!     chain hostport-martian-new { type nat hook prerouting priority dstnat - 10
//!         iif != "lo" ip daddr 127.0.0.0/8 drop
//!         iif != "lo" ip saddr 127.0.0.0/8 drop }
//!     chain hostport-martian { type filter hook input priority raw
//!         iif != "lo" ip daddr 127.0.0.0/8 goto hostport-unasked }
//!     chain hostport-unasked {
//!         ct direction reply ct status snat,dnat return
//!         drop }
//!     set hostport4-led { type ipv4_addr . inet_proto . inet_service; elements = { 10.1.0.5 . tcp . 80 … } }
//! }
//! ```
//!
//! The rules for martians are there because the kernel routes `127.0.0.0/8` to containers' links (`route_localnet`), and would
//! take it from outside as well (CVE-2020-8558).

mod conditional;
mod rules;

pub(super) use conditional::CHAINS as CONDITIONAL_CHAINS;
pub(super) use rules::{CHAINS, add_led, is_led};

use super::batch::{Batch, Family, Means};
use super::expression::{Nfproto, REG_1};
use super::masquerade::TABLE;
use super::read::{Element, element, elements};
use super::{Spot, bytes, del_all, first_that_fits, owners_in};
use crate::plan::thing::HostPorts;
use crate::plan::thing::host_ports::{Entrance, HostPort, Protocol, Rewrite, Target};
use crate::sys::netlink::{KernelError, Socket};
use rules::{add_base, add_subnet};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const FAMILY: Family = Family::Inet;

/// What differs between IPv4 and IPv6.
struct Ip {
    exact: &'static str,
    any: &'static str,
    if_exact: &'static str,
    if_any: &'static str,
    to_exact: &'static str,
    to_any: &'static str,
    source: &'static str,
    own: &'static str,
    led: &'static str,
    nfproto: Nfproto,
    /// Number of the address's type.
    kind: u32,
    /// Length of an address.
    len: u32,
    /// Where the addresses are in the header.
    saddr: u32,
    daddr: u32,
}

const V4: Ip = Ip {
    exact: "hostport4",
    any: "hostport4-any",
    if_exact: "hostport4-if",
    if_any: "hostport4-if-any",
    to_exact: "hostport4-to",
    to_any: "hostport4-to-any",
    source: "hostport4-source",
    own: "hostport4-own",
    led: "hostport4-led",
    nfproto: Nfproto::V4,
    kind: 7,
    len: 4,
    saddr: 12,
    daddr: 16,
};
const V6: Ip = Ip {
    exact: "hostport6",
    any: "hostport6-any",
    if_exact: "hostport6-if",
    if_any: "hostport6-if-any",
    to_exact: "hostport6-to",
    to_any: "hostport6-to-any",
    source: "hostport6-source",
    own: "hostport6-own",
    led: "hostport6-led",
    nfproto: Nfproto::V6,
    kind: 8,
    len: 16,
    saddr: 8,
    daddr: 24,
};

impl Ip {
    fn of(addr: IpAddr) -> &'static Self {
        if addr.is_ipv4() { &V4 } else { &V6 }
    }

    /// The register behind an address in [`REG_1`].
    fn behind(&self) -> u32 {
        REG_1 + self.len / 4
    }

    fn map_of(&self, at: &Entrance) -> &'static str {
        match (at.conditional, at.addr.is_unspecified()) {
            (false, true) => self.any,
            (false, false) => self.exact,
            (true, true) => self.to_any,
            (true, false) => self.to_exact,
        }
    }

    /// The maps of ports.
    fn maps(&self) -> [&'static str; 6] {
        [self.exact, self.any, self.to_exact, self.to_any, self.if_exact, self.if_any]
    }
}

/// An entrance as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Where it leads.
    pub to: Option<SocketAddr>,
    /// Network, container id and interface.
    pub owner: String,
}

/// Who has an entrance; `None` where nobody has.
pub fn find(socket: &mut Socket, at: &Entrance) -> Result<Option<Shown>, KernelError> {
    let found = element(socket, FAMILY, TABLE, Ip::of(at.addr).map_of(at), &key(at))?;
    if at.conditional && element(socket, FAMILY, TABLE, conditional::map_of(at), &key(at))?.is_none() {
        return Ok(None);
    }
    Ok(found.map(|Element { data, comment, .. }| Shown { to: parse_target(&data), owner: comment }))
}

/// Makes the ports lead to the container; `EEXIST` where somebody has one of them, or an address of the container.
pub fn add(socket: &mut Socket, what: &HostPorts) -> Result<(), KernelError> {
    add_in_place_of(socket, &[], what)
}

/// The same, in one transaction with the end of elements; `ENOENT` where one of those is not there any more.
pub fn add_in_place_of(socket: &mut Socket, gone: &[Spot], what: &HostPorts) -> Result<(), KernelError> {
    let is_conditional = what.ports.iter().any(|port| port.at.conditional);
    let all = |has_chains: bool, has_conditions: bool, has_base: bool| {
        batch(|b| {
            for Spot { set, key } in gone {
                b.del_element(set, key);
            }
            if has_base {
                add_base(b);
            }
            if has_conditions {
                conditional::add_base(b);
            }
            if has_chains {
                what.targets.iter().for_each(|target| add_subnet(b, target.rewrite));
                conditional::add_chains(b, what);
            }
            for one in elements_of(what) {
                one.add(b, &what.owner);
            }
        })
    };
    let (least, chains) = (|| all(false, false, false), || all(true, false, false));
    let (conditions, whole) = (|| all(true, true, false), || all(true, is_conditional, true));
    if is_conditional {
        first_that_fits(socket, &[&least, &chains, &conditions, &whole])
    } else {
        first_that_fits(socket, &[&least, &chains, &whole])
    }
}

/// Whether all of them are there, and this owner's.
pub fn are_there(socket: &mut Socket, what: &HostPorts) -> Result<bool, KernelError> {
    Ok(owned(socket, what)?.len() == elements_of(what).len())
}

/// The elements that are there, whoever has them.
pub fn there(socket: &mut Socket, what: &HostPorts) -> Result<Vec<Spot>, KernelError> {
    those(socket, what, |_| true)
}

/// The elements that are still this owner's.
pub fn owned(socket: &mut Socket, what: &HostPorts) -> Result<Vec<Spot>, KernelError> {
    those(socket, what, |element| element.comment == what.owner)
}

/// Ends all of an owner's.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    let mut own = Vec::new();
    let sets = |ip: &Ip| ip.maps().into_iter().chain([ip.source, ip.own, ip.led]);
    for set in [&V4, &V6].into_iter().flat_map(sets) {
        let found = elements(socket, FAMILY, TABLE, set)?.into_iter().filter(|element| element.comment == *owner);
        own.extend(found.map(|element| Spot { set, key: element.key }));
    }
    del_all(socket, &own)
}

/// All owners of a port.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(socket, &[&V4.maps()[..], &[V4.source], &V6.maps(), &[V6.source]].concat())
}

/// An element of one of the sets.
struct One {
    set: &'static str,
    key: Vec<u8>,
    data: Data,
}

enum Data {
    None,
    Goto(String),
    Jump(String),
    Value(Vec<u8>),
}

impl One {
    fn add(&self, batch: &mut Batch, comment: &str) {
        let means = match &self.data {
            Data::None => Means::Nothing,
            Data::Goto(chain) => Means::Goto(chain),
            Data::Jump(chain) => Means::Jump(chain),
            Data::Value(value) => Means::Value(value),
        };
        batch.add_element(self.set, &self.key, means, comment);
    }
}

fn elements_of(what: &HostPorts) -> Vec<One> {
    let port = |HostPort { at, to }: &HostPort| One {
        set: Ip::of(at.addr).map_of(at),
        key: key(at),
        data: Data::Value([bytes(to.ip()), padded(&to.port().to_be_bytes())].concat()),
    };
    let mut all: Vec<One> = what.ports.iter().map(port).collect();
    let conditional = what.ports.iter().map(|port| port.at).filter(|at| at.conditional);
    all.extend(conditional.map(|at| One {
        set: conditional::map_of(&at),
        key: key(&at),
        data: Data::Jump(conditional::chain(&at, &what.conditions)),
    }));
    // Two ports of the host may lead to one.
    let led: BTreeSet<(SocketAddr, Protocol)> = what.ports.iter().map(|port| (port.to, port.at.protocol)).collect();
    all.extend(led.into_iter().map(|(to, protocol)| One {
        set: Ip::of(to.ip()).led,
        key: key(&Entrance { addr: to.ip(), protocol, port: to.port(), conditional: false }),
        data: Data::None,
    }));
    for Target { addr, rewrite } in &what.targets {
        let (ip, key) = (Ip::of(*addr), bytes(*addr));
        if *rewrite == Rewrite::Own {
            all.push(One { set: ip.own, key: [key.clone(), key.clone()].concat(), data: Data::None });
        }
        all.push(One { set: ip.source, key, data: Data::Goto(rewrite.chain()) });
    }
    all
}

/// Those of the elements that the kernel has and that `is_wanted` picks.
fn those(
    socket: &mut Socket,
    what: &HostPorts,
    is_wanted: impl Fn(&Element) -> bool,
) -> Result<Vec<Spot>, KernelError> {
    let mut found = Vec::new();
    for One { set, key, .. } in elements_of(what) {
        if element(socket, FAMILY, TABLE, set, &key)?.is_some_and(|element| is_wanted(&element)) {
            found.push(Spot { set, key });
        }
    }
    Ok(found)
}

fn key(at: &Entrance) -> Vec<u8> {
    let service = [padded(&[at.protocol.number()]), padded(&at.port.to_be_bytes())].concat();
    if at.addr.is_unspecified() { service } else { [bytes(at.addr), service].concat() }
}

fn parse_target(data: &[u8]) -> Option<SocketAddr> {
    let (addr, port) = data.split_at_checked(data.len().checked_sub(4)?)?;
    let addr = match addr.len() {
        4 => IpAddr::V4(Ipv4Addr::from(*addr.first_chunk::<4>()?)),
        _ => IpAddr::V6(Ipv6Addr::from(*addr.first_chunk::<16>()?)),
    };
    Some(SocketAddr::new(addr, u16::from_be_bytes(*port.first_chunk()?)))
}

/// A part of a concatenation.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(4, 0);
    bytes
}

fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(FAMILY, TABLE, fill)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::thing::host_ports::Protocol;

    #[test]
    fn a_key_has_an_address_only_where_one_is_given() {
        let at = |addr: &str| Entrance {
            addr: addr.parse().expect("an address"),
            protocol: Protocol::Udp,
            port: 0x1234,
            conditional: false,
        };
        assert_eq!(key(&at("0.0.0.0")), [17, 0, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(key(&at("192.0.2.1")), [192, 0, 2, 1, 17, 0, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(key(&at("fd00::1")).len(), 24);
    }

    #[test]
    fn a_target_is_read_back() {
        for text in ["10.1.0.5:80", "[fd00::5]:8080"] {
            let to: SocketAddr = text.parse().expect("an address and a port");
            let data = [bytes(to.ip()), padded(&to.port().to_be_bytes())].concat();
            assert_eq!(parse_target(&data), Some(to));
        }
        assert_eq!(parse_target(&[1, 2]), None);
    }
}
