//! Kernel notifications: decides whether one may be about the agent's objects.
//!
//! Each pod on the node causes several. Only a few bytes of each are read.

use netlink_packet_core::{NetlinkBuffer, NlasIterator};
use std::collections::BTreeSet;

/// Types of `rtnetlink` messages.
mod rtm {
    pub(super) const NEWLINK: u16 = 16;
    pub(super) const DELLINK: u16 = 17;
    pub(super) const NEWADDR: u16 = 20;
    pub(super) const DELADDR: u16 = 21;
    pub(super) const NEWROUTE: u16 = 24;
    pub(super) const DELROUTE: u16 = 25;
    pub(super) const NEWNEIGH: u16 = 28;
    pub(super) const DELNEIGH: u16 = 29;
    pub(super) const NEWRULE: u16 = 32;
    pub(super) const DELRULE: u16 = 33;
    pub(super) const NEWNETCONF: u16 = 80;
}

/// Types of nf_tables messages. The upper byte is the subsystem.
mod nft {
    const SUBSYSTEM: u16 = 10 << 8;
    pub(super) const DELTABLE: u16 = SUBSYSTEM + 2;
    pub(super) const NEWCHAIN: u16 = SUBSYSTEM + 3;
    pub(super) const DELCHAIN: u16 = SUBSYSTEM + 5;
    pub(super) const DELRULE: u16 = SUBSYSTEM + 8;
    pub(super) const DELSET: u16 = SUBSYSTEM + 11;
}

const IFLA_IFNAME: u16 = 3;
const IFF_UP: u32 = 1;
/// Mask of changed flags in a message about a new link.
const ALL_FLAGS: u32 = u32::MAX;
const RTA_OIF: u16 = 4;
const NFTA_TABLE_NAME: u16 = 1;
/// Tables of calls: `inet braid` and `bridge braid`.
const CALLS: &[u8] = b"braid\0";
const NETCONFA_IFINDEX: u16 = 1;
/// Index of a `netconf` message about all links.
const ALL_LINKS: u32 = u32::MAX;
const NFTA_CHAIN_HOOK: u16 = 4;
/// Flag of a message about a route that replaces another one.
const NLM_F_REPLACE: u16 = 0x100;

/// The agent's objects in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interest {
    /// Number of its routes' protocol.
    pub protocol: u8,
    /// Names of its links, with their indices.
    pub links: Vec<(String, Option<u32>)>,
    /// Index of the link of the node's own address; `None` if no link has it.
    pub uplink: Option<u32>,
    /// Name of its nf_tables table.
    pub table: &'static str,
    /// Start of the comments of its rules in tables of other programs.
    pub comment: &'static str,
}

/// Messages that may be about the agent's objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// True for any of them.
    pub is_any: bool,
    /// True if the uplink has changed. A link that goes down takes routes with it.
    pub is_uplink: bool,
}

impl Interest {
    /// Judges the messages of a datagram. A datagram that cannot be read counts.
    pub fn judge(&self, datagram: &[u8]) -> Found {
        let mut found = Found::default();
        for message in messages(datagram) {
            let Some(message) = message else {
                found.is_any = true;
                continue;
            };
            let is_uplink = self.is_uplink(&message);
            found.is_uplink |= is_uplink;
            found.is_any |= is_uplink || self.is_own(&message);
        }
        found
    }

    fn is_uplink(&self, message: &NetlinkBuffer<&[u8]>) -> bool {
        let is_link = matches!(message.message_type(), rtm::NEWLINK | rtm::DELLINK);
        is_link && self.uplink.is_some() && number(message.payload(), 4) == self.uplink
    }

    fn is_own(&self, message: &NetlinkBuffer<&[u8]>) -> bool {
        let payload = message.payload();
        match message.message_type() {
            rtm::NEWLINK | rtm::DELLINK => {
                self.is_link(number(payload, 4)) || self.is_named(payload)
            }
            rtm::NEWADDR | rtm::DELADDR => {
                let index = number(payload, 4);
                self.uplink.is_none() || self.uplink == index || self.is_link(index)
            }
            // Another program may have replaced a route of the agent.
            rtm::NEWROUTE => self.is_protocol(payload) || message.flags() & NLM_F_REPLACE != 0,
            rtm::DELROUTE => self.is_protocol(payload),
            rtm::NEWNEIGH | rtm::DELNEIGH => self.is_link(number(payload, 4)),
            // There are few.
            rtm::NEWRULE | rtm::DELRULE => true,
            rtm::NEWNETCONF => {
                let index = attribute(payload, 4, NETCONFA_IFINDEX).and_then(|it| number(it, 0));
                index == Some(ALL_LINKS)
            }
            // The name of the table, or the comment of a rule in another program's table.
            nft::DELTABLE | nft::DELCHAIN | nft::DELRULE | nft::DELSET => {
                contains(payload, self.table) || contains(payload, self.comment)
            }
            // Another program's chain may drop forwarded packets.
            nft::NEWCHAIN => attribute(payload, 4, NFTA_CHAIN_HOOK).is_some(),
            _ => false,
        }
    }

    fn is_link(&self, index: Option<u32>) -> bool {
        index.is_some() && self.links.iter().any(|(_, its)| *its == index)
    }

    fn is_named(&self, payload: &[u8]) -> bool {
        let name = attribute(payload, 16, IFLA_IFNAME);
        let name = name.and_then(|name| name.strip_suffix(b"\0"));
        let mut names = self.links.iter().map(|(name, _)| name.as_bytes());
        name.is_some_and(|name| names.any(|its| its == name))
    }

    fn is_protocol(&self, payload: &[u8]) -> bool {
        payload.get(5) == Some(&self.protocol)
    }
}

/// Links of the node that pods use, as of the last comparison.
#[derive(Debug, Clone, Copy)]
pub struct PodLinks<'l>(pub &'l BTreeSet<u32>);

impl PodLinks<'_> {
    /// True if a message of the datagram may be about a loss: a link is gone, down or new, one of the
    /// links has lost an address or a route, or the table of calls is gone or has lost a rule. A new
    /// link may be a lost one that another program has made again.
    pub fn judge(self, datagram: &[u8]) -> bool {
        messages(datagram).any(|message| message.is_none_or(|message| self.is_loss(&message)))
    }

    fn is_loss(self, message: &NetlinkBuffer<&[u8]>) -> bool {
        let payload = message.payload();
        match message.message_type() {
            rtm::DELLINK => true,
            rtm::NEWLINK => is_new(payload) || self.has(number(payload, 4)) && is_set_down(payload),
            rtm::DELADDR => self.has(number(payload, 4)),
            rtm::DELROUTE => {
                let link = attribute(payload, 12, RTA_OIF).and_then(|it| number(it, 0));
                self.has(link)
            }
            nft::DELTABLE | nft::DELRULE => attribute(payload, 4, NFTA_TABLE_NAME) == Some(CALLS),
            _ => false,
        }
    }

    fn has(self, index: Option<u32>) -> bool {
        index.is_some_and(|index| self.0.contains(&index))
    }
}

/// True for a link that was just created, or moved from another namespace.
fn is_new(payload: &[u8]) -> bool {
    number(payload, 12) == Some(ALL_FLAGS)
}

/// True if the administrator has set the link down.
fn is_set_down(payload: &[u8]) -> bool {
    let [flags, changed] = [8, 12].map(|at| number(payload, at).unwrap_or_default());
    changed & IFF_UP != 0 && flags & IFF_UP == 0
}

/// Returns the messages of a datagram; `None` for bytes that are none, which end it.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Option<NetlinkBuffer<&[u8]>>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(datagram) else {
            datagram = &[];
            return Some(None);
        };
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        let aligned = length.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        datagram = datagram.get(aligned..).unwrap_or_default();
        Some(Some(message))
    })
}

fn contains(bytes: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    bytes.windows(text.len()).any(|part| part == text)
}

/// Reads a number in the byte order of the machine.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Returns the value of an attribute after a header of `header` bytes.
fn attribute(payload: &[u8], header: usize, kind: u16) -> Option<&[u8]> {
    for found in NlasIterator::new(payload.get(header..)?) {
        let found = found.ok()?;
        if found.kind() == kind {
            let end = usize::from(found.length());
            return found.into_inner().get(4..end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interest() -> Interest {
        Interest {
            protocol: 98,
            links: vec![
                ("braid-vxlan".to_owned(), Some(9)),
                ("flannel.1".to_owned(), None),
            ],
            uplink: Some(2),
            table: "braid-cluster",
            comment: "braid pods ",
        }
    }

    /// Returns the bytes of a message with this type and flags.
    fn message(kind: u16, flags: u16, parts: &[&[u8]]) -> Vec<u8> {
        let payload = parts.concat();
        let length = u32::try_from(16 + payload.len()).expect("a short message");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("a short value");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Returns the header of a message about a link, with a name.
    fn link(index: u32, name: &str) -> Vec<u8> {
        let mut payload = vec![0; 4];
        payload.extend(index.to_ne_bytes());
        payload.extend([0; 8]);
        payload.extend(attr(IFLA_IFNAME, format!("{name}\0").as_bytes()));
        payload
    }

    /// Returns the header of a message with an index at byte 4.
    fn at(index: u32) -> Vec<u8> {
        let mut payload = vec![0; 4];
        payload.extend(index.to_ne_bytes());
        payload.extend([0; 4]);
        payload
    }

    fn route(protocol: u8) -> Vec<u8> {
        let mut payload = vec![0; 12];
        payload[5] = protocol;
        payload
    }

    fn netconf(index: u32) -> Vec<u8> {
        let mut payload = vec![0; 4];
        payload.extend(attr(NETCONFA_IFINDEX, &index.to_ne_bytes()));
        payload
    }

    fn table(name: &str, more: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; 4];
        payload.extend(attr(1, format!("{name}\0").as_bytes()));
        payload.extend(more);
        payload
    }

    fn is_any(kind: u16, payload: &[u8]) -> bool {
        interest().judge(&message(kind, 0, &[payload])).is_any
    }

    #[test]
    fn messages_about_the_agents_objects_count_and_those_of_pods_do_not() {
        let hook = attr(NFTA_CHAIN_HOOK, &[0; 4]);
        let comment = attr(7, b"braid pods from 10.244.0.0/16");
        let table_of: [(u16, Vec<u8>, bool); 20] = [
            (rtm::NEWLINK, link(14, "flannel.1"), true),
            (rtm::DELLINK, link(9, "braid-vxlan"), true),
            (rtm::NEWLINK, link(12, "braid-vxlan"), true),
            (rtm::NEWLINK, link(13, "veth1"), false),
            (rtm::DELADDR, at(9), true),
            (rtm::DELADDR, at(13), false),
            (rtm::DELROUTE, route(98), true),
            (rtm::DELROUTE, route(2), false),
            (rtm::DELNEIGH, at(9), true),
            (rtm::NEWNEIGH, at(13), false),
            (rtm::DELRULE, at(0), true),
            (rtm::NEWNETCONF, netconf(ALL_LINKS), true),
            (rtm::NEWNETCONF, netconf(13), false),
            (nft::DELTABLE, table("braid-cluster", &[]), true),
            (nft::DELTABLE, table("kube-proxy", &[]), false),
            (nft::DELRULE, table("filter", &comment), true),
            (nft::DELRULE, table("filter", &[]), false),
            (nft::NEWCHAIN, table("filter", &hook), true),
            (nft::NEWCHAIN, table("filter", &[]), false),
            ((10 << 8) + 14, table("braid-cluster", &[]), false),
        ];
        for (kind, payload, expected) in table_of {
            assert_eq!(is_any(kind, &payload), expected, "{kind} {payload:?}");
        }
    }

    #[test]
    fn a_route_that_replaces_another_one_counts() {
        let found = |flags| {
            let message = message(rtm::NEWROUTE, flags, &[&route(4)]);
            interest().judge(&message).is_any
        };
        assert!(found(NLM_F_REPLACE) && !found(0));
    }

    #[test]
    fn a_change_of_the_uplink_is_found_behind_other_messages() {
        let mut datagram = message(rtm::NEWLINK, 0, &[&link(13, "veth1")]);
        assert_eq!(interest().judge(&datagram), Found::default());
        datagram.extend(message(rtm::NEWLINK, 0, &[&link(2, "eth0")]));
        let both = Found {
            is_any: true,
            is_uplink: true,
        };
        assert_eq!(interest().judge(&datagram), both);
    }

    #[test]
    fn without_an_uplink_each_address_counts() {
        let interest = Interest {
            uplink: None,
            ..interest()
        };
        let found = interest.judge(&message(rtm::NEWADDR, 0, &[&at(13)]));
        assert!(found.is_any && !found.is_uplink);
    }

    #[test]
    fn pods_may_have_lost_something_with_a_link_an_address_a_route_a_table_or_a_rule() {
        let own = BTreeSet::from([9]);
        let of_link = |index: u32, flags: u32, changed: u32| {
            let mut payload = link(index, "veth1");
            payload[8..12].copy_from_slice(&flags.to_ne_bytes());
            payload[12..16].copy_from_slice(&changed.to_ne_bytes());
            payload
        };
        let of_route = |index: u32| [route(2), attr(RTA_OIF, &index.to_ne_bytes())].concat();
        for (kind, payload, expected) in [
            (rtm::DELLINK, of_link(13, 0, 0), true),
            (rtm::NEWLINK, of_link(13, 0, ALL_FLAGS), true),
            (rtm::NEWLINK, of_link(9, 0, IFF_UP), true),
            (rtm::NEWLINK, of_link(9, IFF_UP, IFF_UP), false),
            (rtm::NEWLINK, of_link(13, 0, IFF_UP), false),
            (rtm::DELADDR, at(9), true),
            (rtm::DELADDR, at(13), false),
            (rtm::DELROUTE, of_route(9), true),
            (rtm::DELROUTE, of_route(13), false),
            (nft::DELTABLE, table("braid", &[]), true),
            (nft::DELTABLE, table("braid-cluster", &[]), false),
            (nft::DELRULE, table("braid", &[]), true),
            (nft::DELRULE, table("filter", &[]), false),
            (rtm::NEWADDR, at(9), false),
        ] {
            let found = PodLinks(&own).judge(&message(kind, 0, &[&payload]));
            assert_eq!(found, expected, "{kind} {payload:?}");
        }
    }

    #[test]
    fn broken_messages_count() {
        let whole = message(rtm::NEWLINK, 0, &[&link(13, "veth1")]);
        assert!(interest().judge(&whole[..20]).is_any);
        assert!(!is_any(rtm::NEWLINK, &[0; 2]));
    }
}
