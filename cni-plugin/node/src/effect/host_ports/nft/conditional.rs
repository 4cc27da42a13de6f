//! Host ports with conditions. Each port has two elements: a jump to the chain of its conditions,
//! and its target.
//!
//! ```text
//! table inet braid {
//!     map hostport4-if { type ipv4_addr . inet_proto . inet_service : verdict }
//!     map hostport4-if-any { type inet_proto . inet_service : verdict
//!         elements = { tcp . 8080 comment "net 4f1c eth0" : jump hostport4-if-any-8a5bd3bb9e3c1c5f } }
//!     map hostport4-to { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service }
//!     map hostport4-to-any { type inet_proto . inet_service : ipv4_addr . inet_service
//!         elements = { tcp . 8080 comment "net 4f1c eth0" : 10.1.0.5 . 80 } }
//!     chain hostport-if-in { type nat hook prerouting priority dstnat - 1
//!         fib daddr type local jump hostport-if }
//!     chain hostport-if-out { type nat hook output priority dstnat - 1
//!         fib daddr type local jump hostport-if }
//!     chain hostport-if {
//!         ip daddr . meta l4proto . th dport vmap @hostport4-if
//!         ip daddr . meta l4proto . th dport map @hostport4 return
//!         meta l4proto . th dport vmap @hostport4-if-any }
//!     chain hostport4-if-any-8a5bd3bb9e3c1c5f {
//!         ip saddr 10.0.0.0/8 dnat ip to meta l4proto . th dport map @hostport4-to-any }
//! }
//! ```
//!
//! Ports with the same conditions share a chain. Like the chain of a subnet, it is never deleted. A
//! packet that meets no condition continues to the ports without conditions. So another container
//! may have the same port for all other clients.

use super::rules::{PORT, PRIORITY_DSTNAT, port_of, target};
use super::{EXACT, IF_ANY, IF_EXACT, TO_ANY, TO_EXACT};
use crate::sys::nft::batch::{Batch, HOOK_OUTPUT, HOOK_PREROUTING};
use crate::sys::nft::expression::{META_IIFNAME, META_OIFNAME, REG_1, Verdict};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::{IFNAME_LEN, bytes};
use braid_core::plan::thing::HostPorts;
use braid_core::plan::thing::condition::{Condition, Conditions, Links, Test, digest, rules};
use braid_core::plan::thing::host_ports::{HostEndpoint, HostPort};
use ipnet::IpNet;
use std::collections::BTreeMap;

const DISPATCH: &str = "hostport-if";
const IN: &str = "hostport-if-in";
const OUT: &str = "hostport-if-out";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[DISPATCH, IN, OUT];
/// Priority just before the chains of ports without conditions.
const PRIORITY: i32 = PRIORITY_DSTNAT - 1;

/// Returns the name of the map from endpoints to condition chains.
pub(super) fn map_of(at: &HostEndpoint) -> &'static str {
    Ip::of(at.addr).one(if at.addr.is_unspecified() {
        IF_ANY
    } else {
        IF_EXACT
    })
}

/// Returns the name of the chain for the conditions of an endpoint.
pub(super) fn chain(at: &HostEndpoint, conditions: &Conditions) -> String {
    format!(
        "{}-{}",
        map_of(at),
        digest(conditions.of(at.addr.is_ipv4()))
    )
}

/// Adds the maps for ports with conditions, and the rules that use them.
pub(super) fn add_base(batch: &mut Batch) {
    for ip in Ip::BOTH {
        let (exact, target) = (port_of(ip), target(ip));
        batch
            .verdict_map(ip.one(IF_EXACT), &exact)
            .verdict_map(ip.one(IF_ANY), &PORT);
        batch
            .value_map(ip.one(TO_EXACT), &exact, &target)
            .value_map(ip.one(TO_ANY), &PORT, &target);
    }
    batch.chain(DISPATCH);
    for (name, hook) in [(IN, HOOK_PREROUTING), (OUT, HOOK_OUTPUT)] {
        batch.base_chain(name, "nat", hook, PRIORITY);
        batch.rule(name, |rule| {
            rule.for_this_host(REG_1).decide(Verdict::Jump(DISPATCH));
        });
    }
    for ip in Ip::BOTH {
        batch.rule(DISPATCH, |rule| {
            rule.load_exact(ip).lookup_verdict(ip.one(IF_EXACT), REG_1);
        });
        batch.rule(DISPATCH, |rule| {
            rule.load_exact(ip)
                .lookup_value(ip.one(EXACT), REG_1, REG_1)
                .decide(Verdict::Return);
        });
        batch.rule(DISPATCH, |rule| {
            rule.load_any(ip).lookup_verdict(ip.one(IF_ANY), REG_1);
        });
    }
}

/// Adds the chains of the conditions. Existing chains are emptied and filled again.
pub(super) fn add_chains(batch: &mut Batch, what: &HostPorts) {
    let mut chains = BTreeMap::new();
    for HostPort { at, .. } in &what.ports {
        if at.conditional {
            chains.insert(chain(at, &what.conditions), *at);
        }
    }
    for (name, at) in &chains {
        batch.empty_chain(name);
        add_rules(batch, name, at, what.conditions.of(at.addr.is_ipv4()));
    }
}

fn add_rules(batch: &mut Batch, chain: &str, at: &HostEndpoint, conditions: &[Condition]) {
    let ip = Ip::of(at.addr);
    for tests in rules(conditions) {
        batch.rule(chain, |rule| {
            rule.only(ip);
            for (is_not, test) in &tests {
                ask(rule, ip, *is_not, test);
            }
            let rule = if at.addr.is_unspecified() {
                rule.load_any(ip)
            } else {
                rule.load_exact(ip)
            };
            rule.lookup_value(super::map_of(at), REG_1, REG_1)
                .destination_nat(ip, REG_1, ip.behind());
        });
    }
}

/// Continues the rule only if the test is true. With `is_not`, continues only if the test is false.
fn ask(rule: &mut Batch, ip: Ip, is_not: bool, test: &Test) {
    let value = match test {
        Test::Source(net) => address(rule.source(ip, REG_1), net),
        Test::Destination(net) => address(rule.destination(ip, REG_1), net),
        Test::In(links) => name(rule, META_IIFNAME, links),
        Test::Out(links) => name(rule, META_OIFNAME, links),
    };
    if is_not {
        rule.differs(REG_1, &value)
    } else {
        rule.equals(REG_1, &value)
    };
}

/// Masks the loaded address with the subnet's netmask. Returns the value to compare it with.
fn address(rule: &mut Batch, net: &IpNet) -> Vec<u8> {
    rule.mask(REG_1, &bytes(net.netmask()));
    bytes(net.network())
}

/// Loads the name of the packet's link. Returns the name or prefix to compare it with.
fn name(rule: &mut Batch, key: u32, links: &Links) -> Vec<u8> {
    rule.meta(key, REG_1);
    let mut name = links.name.clone().into_bytes();
    if !links.is_prefix {
        name.resize(IFNAME_LEN, 0);
    }
    name
}
