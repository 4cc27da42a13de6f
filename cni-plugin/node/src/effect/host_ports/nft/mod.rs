//! Host ports in nf_tables: table `inet braid` with one map element for each port and one for each
//! container address.
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
//! The rules for martians are needed because the kernel routes `127.0.0.0/8` to containers' links
//! (`route_localnet`), and would accept such packets from outside as well (CVE-2020-8558).

mod conditional;
mod rules;

pub(crate) use conditional::CHAINS as CONDITIONAL_CHAINS;
pub(crate) use rules::{CHAINS, add_led, is_led};

use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Family, Means};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::read::{Element, element};
use crate::sys::nft::{
    ElementKey, address, batch, bytes, del_of, first_that_fits, owner_of, owners_in, those,
};
use braid_core::plan::thing::HostPorts;
use braid_core::plan::thing::host_ports::{HostEndpoint, HostPort, Rewrite, Target};
use rules::{add_base, add_subnet};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const EXACT: [&str; 2] = ["hostport4", "hostport6"];
const ANY: [&str; 2] = ["hostport4-any", "hostport6-any"];
const IF_EXACT: [&str; 2] = ["hostport4-if", "hostport6-if"];
const IF_ANY: [&str; 2] = ["hostport4-if-any", "hostport6-if-any"];
const TO_EXACT: [&str; 2] = ["hostport4-to", "hostport6-to"];
const TO_ANY: [&str; 2] = ["hostport4-to-any", "hostport6-to-any"];
const SOURCE: [&str; 2] = ["hostport4-source", "hostport6-source"];
const OWN: [&str; 2] = ["hostport4-own", "hostport6-own"];
const LED: [&str; 2] = ["hostport4-led", "hostport6-led"];

/// Returns the name of the map that holds the endpoint's target.
fn map_of(at: &HostEndpoint) -> &'static str {
    Ip::of(at.addr).one(match (at.conditional, at.addr.is_unspecified()) {
        (false, true) => ANY,
        (false, false) => EXACT,
        (true, true) => TO_ANY,
        (true, false) => TO_EXACT,
    })
}

/// A host port as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftPort {
    /// Target of the redirect; `None` if the element's value is not an address and a port.
    pub to: Option<SocketAddr>,
    /// Network, container id and interface.
    pub owner: String,
}

/// Returns target and owner of a host port; `None` if the port is free.
pub fn find(socket: &mut Socket, at: &HostEndpoint) -> Result<Option<NftPort>, KernelError> {
    let found = element(socket, Family::Inet, map_of(at), &key(at))?;
    if at.conditional
        && owner_of(
            socket,
            &ElementKey {
                set: conditional::map_of(at),
                key: key(at),
            },
        )?
        .is_none()
    {
        return Ok(None);
    }
    let Some(Element { data, comment, .. }) = found else {
        return Ok(None);
    };
    Ok(Some(NftPort {
        to: parse_target(&data),
        owner: comment,
    }))
}

/// Redirects the ports to the container. Returns `EEXIST` if one of the ports, or an address of the
/// container, has an owner already.
pub fn add(socket: &mut Socket, what: &HostPorts) -> Result<(), KernelError> {
    add_in_place_of(socket, &[], what)
}

/// Adds the same elements as [`add`], and deletes the elements in `gone`, in one transaction.
/// Returns `EEXIST` like [`add`], and `ENOENT` if an element in `gone` no longer exists.
pub(crate) fn add_in_place_of(
    socket: &mut Socket,
    gone: &[ElementKey],
    what: &HostPorts,
) -> Result<(), KernelError> {
    let is_conditional = what.ports.iter().any(|port| port.at.conditional);
    let transaction = |has_chains: bool, has_conditions: bool, has_base: bool| {
        batch(|b| {
            for ElementKey { set, key } in gone {
                b.del_element(set, key);
            }
            if has_base {
                add_base(b);
            }
            if has_conditions {
                conditional::add_base(b);
            }
            if has_chains {
                for target in &what.targets {
                    add_subnet(b, target.rewrite);
                }
                conditional::add_chains(b, what);
            }
            for (ElementKey { set, key }, means) in elements_of(what) {
                b.add_element(set, &key, &means, &what.owner);
            }
        })
    };
    let (least, chains) = (
        || transaction(false, false, false),
        || transaction(true, false, false),
    );
    let (conditions, whole) = (
        || transaction(true, true, false),
        || transaction(true, is_conditional, true),
    );
    if is_conditional {
        first_that_fits(socket, &[&least, &chains, &conditions, &whole])
    } else {
        first_that_fits(socket, &[&least, &chains, &whole])
    }
}

/// True if all elements for `what` exist and belong to its owner.
pub fn are_there(socket: &mut Socket, what: &HostPorts) -> Result<bool, KernelError> {
    Ok(owned(socket, what)?.len() == elements_of(what).len())
}

/// Lists the existing elements for `what`, regardless of their owners.
pub(crate) fn there(socket: &mut Socket, what: &HostPorts) -> Result<Vec<ElementKey>, KernelError> {
    those(socket, keys(what), |_| true)
}

/// Lists the elements for `what` that still belong to its owner.
pub(crate) fn owned(socket: &mut Socket, what: &HostPorts) -> Result<Vec<ElementKey>, KernelError> {
    those(socket, keys(what), |owner| owner == what.owner)
}

/// Deletes all elements of an owner.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    let all = [
        EXACT, ANY, TO_EXACT, TO_ANY, IF_EXACT, IF_ANY, SOURCE, OWN, LED,
    ];
    del_of(socket, all.as_flattened(), owner)
}

/// Lists the owners of all host ports in nf_tables.
pub fn owners(socket: &mut Socket) -> Result<Vec<String>, KernelError> {
    owners_in(
        socket,
        [EXACT, ANY, TO_EXACT, TO_ANY, IF_EXACT, IF_ANY, SOURCE].as_flattened(),
    )
}

fn keys(what: &HostPorts) -> impl Iterator<Item = ElementKey> {
    elements_of(what).into_iter().map(|(key, _)| key)
}

/// Returns each element for `what` with its value.
fn elements_of(what: &HostPorts) -> Vec<(ElementKey, Means)> {
    let most = 3 * what.ports.len() + 2 * what.targets.len();
    let mut elements = Vec::with_capacity(most);
    for HostPort { at, to } in &what.ports {
        let target = [bytes(to.ip()), padded(&to.port().to_be_bytes())].concat();
        let element = ElementKey {
            set: map_of(at),
            key: key(at),
        };
        elements.push((element, Means::Value(target)));
    }
    for HostPort { at, .. } in &what.ports {
        if !at.conditional {
            continue;
        }
        let element = ElementKey {
            set: conditional::map_of(at),
            key: key(at),
        };
        let chain = conditional::chain(at, &what.conditions);
        elements.push((element, Means::Jump(chain)));
    }
    for element in led(what) {
        elements.push((element, Means::Nothing));
    }
    for Target { addr, rewrite } in &what.targets {
        let (ip, key) = (Ip::of(*addr), bytes(*addr));
        if *rewrite == Rewrite::Own {
            let pair = ElementKey {
                set: ip.one(OWN),
                key: [key.clone(), key.clone()].concat(),
            };
            elements.push((pair, Means::Nothing));
        }
        let source = ElementKey {
            set: ip.one(SOURCE),
            key,
        };
        elements.push((source, Means::Goto(rewrite.chain())));
    }
    elements
}

/// Lists the set elements for the container ports that are targets. Several host ports may redirect
/// to the same container port, which has only one element.
fn led(what: &HostPorts) -> Vec<ElementKey> {
    let mut targets = BTreeSet::new();
    for HostPort { at, to } in &what.ports {
        targets.insert((*to, at.protocol));
    }
    let mut elements = Vec::with_capacity(targets.len());
    for (to, protocol) in targets {
        let at = HostEndpoint {
            addr: to.ip(),
            protocol,
            port: to.port(),
            conditional: false,
        };
        elements.push(ElementKey {
            set: Ip::of(to.ip()).one(LED),
            key: key(&at),
        });
    }
    elements
}

fn key(at: &HostEndpoint) -> Vec<u8> {
    let service = [
        padded(&[at.protocol.number()]),
        padded(&at.port.to_be_bytes()),
    ]
    .concat();
    if at.addr.is_unspecified() {
        service
    } else {
        [bytes(at.addr), service].concat()
    }
}

fn parse_target(data: &[u8]) -> Option<SocketAddr> {
    let (addr, port) = data.split_at_checked(data.len().checked_sub(4)?)?;
    Some(SocketAddr::new(
        address(addr)?,
        u16::from_be_bytes(*port.first_chunk()?),
    ))
}

/// Pads a part of a concatenation to 4 bytes.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(4, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::plan::thing::host_ports::Protocol;

    #[test]
    fn key_has_an_address_only_if_the_endpoint_has_one() {
        let endpoint = |addr: &str| HostEndpoint {
            addr: addr.parse().expect("an address"),
            protocol: Protocol::Udp,
            port: 0x1234,
            conditional: false,
        };
        assert_eq!(key(&endpoint("0.0.0.0")), [17, 0, 0, 0, 0x12, 0x34, 0, 0]);
        assert_eq!(
            key(&endpoint("192.0.2.1")),
            [192, 0, 2, 1, 17, 0, 0, 0, 0x12, 0x34, 0, 0]
        );
        assert_eq!(key(&endpoint("fd00::1")).len(), 24);
    }

    #[test]
    fn target_is_read_back() {
        for text in ["10.1.0.5:80", "[fd00::5]:8080"] {
            let to: SocketAddr = text.parse().expect("an address and a port");
            let data = [bytes(to.ip()), padded(&to.port().to_be_bytes())].concat();
            assert_eq!(parse_target(&data), Some(to));
        }
        assert_eq!(parse_target(&[1, 2]), None);
    }
}
