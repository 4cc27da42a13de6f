//! Rules to the table of probes.

use super::{Kernel, family_of};
use crate::error::Error;
use crate::network::routes::{PROBE_PRIORITY, PROBE_TABLE, PROTOCOL, Rule};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Kernel {
    /// Lists the agent's own rules.
    pub(super) async fn rules(&self, families: &[AddressFamily]) -> Result<BTreeSet<Rule>, Error> {
        let mut rules = BTreeSet::new();
        for family in families {
            let mut request = RuleMessage::default();
            request.header.family = *family;
            let request = RouteNetlinkMessage::GetRule(request);
            for found in self.list("rules", request).await? {
                if let RouteNetlinkMessage::NewRule(message) = found {
                    rules.extend(parse(&message));
                }
            }
        }
        Ok(rules)
    }
}

/// Returns a rule of the agent's form.
fn parse(message: &RuleMessage) -> Option<Rule> {
    let protocol = RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL));
    let priority = RuleAttribute::Priority(PROBE_PRIORITY);
    let is_ours = message.header.table == PROBE_TABLE
        && message.attributes.contains(&protocol)
        && message.attributes.contains(&priority);
    let mut from = None;
    for attribute in &message.attributes {
        if let RuleAttribute::Source(address) = attribute {
            from = Some(*address);
        }
    }
    let from = from.filter(|from| message.header.src_len == full_length(*from))?;
    is_ours.then_some(Rule { from })
}

pub(super) fn message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family_of(rule.from);
    message.header.src_len = full_length(rule.from);
    message.header.table = PROBE_TABLE;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Source(rule.from),
        RuleAttribute::Priority(PROBE_PRIORITY),
        RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
    ];
    message
}

fn full_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_survives_the_way_to_the_kernels_message_and_back() {
        for from in ["10.244.1.0", "fd00:1::"] {
            let rule = Rule {
                from: from.parse().expect("an address"),
            };
            let ours = message(&rule);
            assert_eq!(parse(&ours), Some(rule));
            let mut other = ours.clone();
            other.attributes.pop();
            assert_eq!(parse(&other), None, "a rule of another program");
            let mut wider = ours;
            wider.header.src_len = 24;
            assert_eq!(parse(&wider), None, "a rule of another program");
        }
    }
}
