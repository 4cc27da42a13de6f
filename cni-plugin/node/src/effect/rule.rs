//! Policy routing rules: requests, and parsing of the kernel's messages.

use super::{Effect, Head, Transport};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, EXCL};
use crate::sys::rtnl::emit;
use crate::{Context, Error};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::Verb;
use braid_core::plan::thing::rule::{Packets, Rule};
use ipnet::IpNet;
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NEWRULE: u16 = libc::RTM_NEWRULE;
const DELRULE: u16 = libc::RTM_DELRULE;
const GETRULE: u16 = libc::RTM_GETRULE;

impl Effect for Rule {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Request
    }

    fn request(&self, verb: Verb, _index: u32, body: &mut Vec<u8>) -> Option<Head> {
        let mut message = RuleMessage::default();
        let (Packets::From(net) | Packets::To(net)) = self.of;
        message.header.family = if net.addr().is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        message.header.action = RuleAction::ToTable;
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Table(self.table));
        if let Some(priority) = self.priority {
            attributes.push(RuleAttribute::Priority(priority));
        }
        if let Some(iif) = &self.iif {
            attributes.push(RuleAttribute::Iifname(iif.to_string()));
        }
        if let Some(len) = self.suppress {
            attributes.push(RuleAttribute::SuppressPrefixLen(len));
        }
        match self.of {
            Packets::From(net) => {
                attributes.push(RuleAttribute::Source(net.network()));
                message.header.src_len = net.prefix_len();
            }
            Packets::To(net) => {
                attributes.push(RuleAttribute::Destination(net.network()));
                message.header.dst_len = net.prefix_len();
            }
        }
        emit(&message, body);
        Some(verb.word((NEWRULE, CREATE | EXCL), (DELRULE, 0)))
    }
}

/// Reads the rules of a namespace. Unknown kinds are skipped.
pub(crate) fn read(kernel: &mut Kernel, ns: Ns, facts: &mut Facts) -> Result<(), Error> {
    let messages = kernel.dump(ns, GETRULE, |out| emit(&RuleMessage::default(), out));
    let mut rules = Vec::new();
    for message in messages.doing(format_args!("list rules of {ns}"))? {
        rules.extend(parse(ns, &message.body));
    }
    facts.rules.insert(ns, rules);
    Ok(())
}

fn parse(ns: Ns, body: &[u8]) -> Option<Rule> {
    let message = RuleMessage::parse(body).ok()?;
    let any: IpAddr = if message.header.family == AddressFamily::Inet {
        Ipv4Addr::UNSPECIFIED.into()
    } else if message.header.family == AddressFamily::Inet6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        return None;
    };
    let everywhere = Packets::From(IpNet::new(any, 0).ok()?);
    let (mut of, mut table) = (everywhere, u32::from(message.header.table));
    let (mut priority, mut iif, mut suppress) = (None, None, None);
    for attribute in message.attributes {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the kernel adds more of them"
        )]
        match attribute {
            RuleAttribute::Source(ip) => {
                of = Packets::From(IpNet::new(ip, message.header.src_len).ok()?);
            }
            RuleAttribute::Destination(ip) => {
                of = Packets::To(IpNet::new(ip, message.header.dst_len).ok()?);
            }
            RuleAttribute::Table(number) => table = number,
            RuleAttribute::Priority(number) => priority = Some(number),
            RuleAttribute::Iifname(name) => iif = IfName::parse(&name).ok(),
            // All bits set is the kernel's value for no suppression.
            RuleAttribute::SuppressPrefixLen(len) => {
                suppress = (len != u32::MAX).then_some(len);
            }
            _ => {}
        }
    }
    Some(Rule {
        ns,
        of,
        table,
        iif,
        suppress,
        priority,
    })
}
