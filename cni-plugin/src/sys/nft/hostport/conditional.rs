//! Ports that lead only who meets conditions: for each an element that names the chain of its conditions, and one that says
//! where it leads.
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
//! All who ask for the same conditions share their chain, which stays, as that of a subnet does. Who meets none goes on to
//! the ports without conditions, so another container may have the same port for all others.

use super::rules::{HOOK_OUTPUT, HOOK_PREROUTING, NETWORK_HEADER, PRIORITY_DSTNAT, TYPE_PROTO, TYPE_SERVICE};
use super::{Ip, V4, V6};
use crate::plan::thing::HostPorts;
use crate::plan::thing::condition::{Condition, Conditions, Links, Test, digest, rules};
use crate::plan::thing::host_ports::Entrance;
use crate::sys::nft::batch::{Batch, Key};
use crate::sys::nft::bytes;
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::mac_check::{IFNAME_LEN, META_IIFNAME};
use ipnet::IpNet;
use std::collections::BTreeMap;

const DISPATCH: &str = "hostport-if";
const IN: &str = "hostport-if-in";
const OUT: &str = "hostport-if-out";
/// All that belong together.
pub(in crate::sys::nft) const CHAINS: &[&str] = &[DISPATCH, IN, OUT];
/// Before the ports without conditions.
const PRIORITY: i32 = PRIORITY_DSTNAT - 1;
const META_OIFNAME: u32 = 7;

/// Map of the chains, for the entrance.
pub(super) fn map_of(at: &Entrance) -> &'static str {
    let ip = Ip::of(at.addr);
    if at.addr.is_unspecified() { ip.if_any } else { ip.if_exact }
}

/// Chain of the conditions that the entrance asks for.
pub(super) fn chain(at: &Entrance, conditions: &Conditions) -> String {
    format!("{}-{}", map_of(at), digest(conditions.of(at.addr.is_ipv4())))
}

/// The maps, and the rules that ask them.
pub(super) fn add_base(batch: &mut Batch) {
    for ip in [&V4, &V6] {
        let service = TYPE_PROTO << 6 | TYPE_SERVICE;
        let exact = Key { kind: ip.kind << 12 | service, len: ip.len + 8, host_order: false };
        let any = Key { kind: service, len: 8, host_order: false };
        let data = Key { kind: ip.kind << 6 | TYPE_SERVICE, len: ip.len + 4, host_order: false };
        batch.verdict_map(ip.if_exact, exact).verdict_map(ip.if_any, any);
        batch.value_map(ip.to_exact, exact, data).value_map(ip.to_any, any, data);
    }
    batch.chain(DISPATCH);
    for (name, hook) in [(IN, HOOK_PREROUTING), (OUT, HOOK_OUTPUT)] {
        batch.base_chain(name, "nat", hook, PRIORITY);
        batch.rule(name, |rule| {
            rule.for_this_host(REG_1).decide(Verdict::Jump(DISPATCH));
        });
    }
    for ip in [&V4, &V6] {
        batch.rule(DISPATCH, |rule| {
            ip.load_exact(rule).lookup_verdict(ip.if_exact, REG_1);
        });
        batch.rule(DISPATCH, |rule| {
            ip.load_exact(rule).lookup_value(ip.exact, REG_1, REG_1).decide(Verdict::Return);
        });
        batch.rule(DISPATCH, |rule| {
            ip.load_any(rule).lookup_verdict(ip.if_any, REG_1);
        });
    }
}

/// The chains of the conditions, filled again where they are there.
pub(super) fn add_chains(batch: &mut Batch, what: &HostPorts) {
    let conditional = what.ports.iter().map(|port| port.at).filter(|at| at.conditional);
    let chains: BTreeMap<String, Entrance> = conditional.map(|at| (chain(&at, &what.conditions), at)).collect();
    for (name, at) in &chains {
        batch.empty_chain(name);
        add_rules(batch, name, at, what.conditions.of(at.addr.is_ipv4()));
    }
}

fn add_rules(batch: &mut Batch, chain: &str, at: &Entrance, conditions: &[Condition]) {
    let ip = Ip::of(at.addr);
    for tests in rules(conditions) {
        batch.rule(chain, |rule| {
            ip.only_this_family(rule);
            for (is_not, test) in &tests {
                ask(rule, ip, *is_not, test);
            }
            let rule = if at.addr.is_unspecified() { ip.load_any(rule) } else { ip.load_exact(rule) };
            rule.lookup_value(ip.map_of(at), REG_1, REG_1).destination_nat(ip.nfproto, REG_1, ip.behind());
        });
    }
}

/// Goes on only if the test is true, or with `is_not` false.
fn ask(rule: &mut Batch, ip: &Ip, is_not: bool, test: &Test) {
    let value = match test {
        Test::Source(net) | Test::Destination(net) => {
            let at = if matches!(test, Test::Source(_)) { ip.saddr } else { ip.daddr };
            rule.payload(NETWORK_HEADER, at, ip.len, REG_1).mask(REG_1, &bytes(IpNet::netmask(net)));
            bytes(net.network())
        }
        Test::In(links) => name(rule, META_IIFNAME, links),
        Test::Out(links) => name(rule, META_OIFNAME, links),
    };
    if is_not {
        rule.differs(REG_1, &value)
    } else {
        rule.equals(REG_1, &value)
    };
}

/// Loads the name of a packet's link; says how it is to begin.
fn name(rule: &mut Batch, key: u32, links: &Links) -> Vec<u8> {
    rule.meta(key, REG_1);
    let mut name = links.name.clone().into_bytes();
    if !links.is_prefix {
        name.resize(IFNAME_LEN, 0);
    }
    name
}
