//! The chains and rules that all host ports share, and those of a subnet.

use super::{Ip, V4, V6};
use crate::plan::thing::host_ports::Rewrite;
use crate::sys::nft::batch::{Batch, Key};
use crate::sys::nft::bytes;
use crate::sys::nft::expression::{Nfproto, REG_1, Verdict};
use ipnet::{IpNet, Ipv4Net};
use std::net::Ipv4Addr;

const DISPATCH: &str = "hostport";
const IN: &str = "hostport-in";
const OUT: &str = "hostport-out";
const BACK: &str = "hostport-back";
const MARTIAN_NEW: &str = "hostport-martian-new";
const MARTIAN: &str = "hostport-martian";
const UNASKED: &str = "hostport-unasked";
/// All that belong together.
pub(in crate::sys::nft) const CHAINS: &[&str] = &[DISPATCH, IN, OUT, BACK, MARTIAN_NEW, MARTIAN, UNASKED];
pub(super) const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
pub(super) const HOOK_OUTPUT: u32 = 3;
const HOOK_POSTROUTING: u32 = 4;
const PRIORITY_RAW: i32 = -300;
pub(super) const PRIORITY_DSTNAT: i32 = -100;
/// Before all that others translate.
const PRIORITY_MARTIAN_NEW: i32 = -110;
/// Before the chain that masquerades what containers send.
const PRIORITY_BACK: i32 = 99;
const META_IIF: u32 = 4;
const META_NFPROTO: u32 = 15;
const LOOPBACK: u32 = 1;
pub(super) const NETWORK_HEADER: u32 = 1;
pub(super) const TYPE_PROTO: u32 = 12;
pub(super) const TYPE_SERVICE: u32 = 13;

impl Ip {
    pub(super) fn only_this_family<'b>(&self, rule: &'b mut Batch) -> &'b mut Batch {
        rule.meta(META_NFPROTO, REG_1).equals(REG_1, &[self.nfproto as u8])
    }

    /// Loads what a port of one address is looked up by.
    pub(super) fn load_exact<'b>(&self, rule: &'b mut Batch) -> &'b mut Batch {
        let behind = self.behind();
        let rule = self.only_this_family(rule).payload(NETWORK_HEADER, self.daddr, self.len, REG_1);
        rule.l4proto(behind).destination_port(behind + 1)
    }

    /// Loads what a port of all addresses is looked up by.
    pub(super) fn load_any<'b>(&self, rule: &'b mut Batch) -> &'b mut Batch {
        self.only_this_family(rule).l4proto(REG_1).destination_port(REG_1 + 1)
    }
}

/// All but the chains of subnets.
pub(super) fn add_base(batch: &mut Batch) {
    batch.table();
    add_led(batch);
    for ip in [&V4, &V6] {
        let service = TYPE_PROTO << 6 | TYPE_SERVICE;
        let data = Key { kind: ip.kind << 6 | TYPE_SERVICE, len: ip.len + 4, host_order: false };
        batch.value_map(ip.exact, Key { kind: ip.kind << 12 | service, len: ip.len + 8, host_order: false }, data);
        batch.value_map(ip.any, Key { kind: service, len: 8, host_order: false }, data);
        batch.verdict_map(ip.source, Key { kind: ip.kind, len: ip.len, host_order: false });
        batch.set(ip.own, Key { kind: ip.kind << 6 | ip.kind, len: 2 * ip.len, host_order: false });
    }
    let (own, all) = (&Rewrite::Own.chain(), &Rewrite::All.chain());
    for name in [DISPATCH, own, all, UNASKED] {
        batch.chain(name);
    }
    for (name, hook) in [(IN, HOOK_PREROUTING), (OUT, HOOK_OUTPUT)] {
        batch.base_chain(name, "nat", hook, PRIORITY_DSTNAT);
        batch.rule(name, |rule| {
            rule.for_this_host(REG_1).decide(Verdict::Goto(DISPATCH));
        });
    }
    batch.base_chain(BACK, "nat", HOOK_POSTROUTING, PRIORITY_BACK);
    add_martian(batch);
    for ip in [&V4, &V6] {
        add_rules(batch, ip);
    }
    let loopback = |rule: &mut Batch| from(rule, &loopback());
    batch.rule(own, loopback);
    batch.rule(all, |rule| {
        rule.masquerade();
    });
}

/// What comes from elsewhere for `127.0.0.0/8`, and is no answer to a client of this host that was led elsewhere. A chain of
/// NAT sees what begins a connection alone, not all that is forwarded; it also holds what would begin one in the name of
/// `127.0.0.0/8`, whose answers would be taken for such ones. What no connection is known of, it does not see.
fn add_martian(batch: &mut Batch) {
    batch.base_chain(MARTIAN_NEW, "nat", HOOK_PREROUTING, PRIORITY_MARTIAN_NEW);
    for at in [V4.daddr, V4.saddr] {
        batch.rule(MARTIAN_NEW, |rule| {
            is_martian(rule, at).decide(Verdict::Drop);
        });
    }
    batch.rule(UNASKED, |rule| {
        rule.goes_back(REG_1).is_translated(REG_1).decide(Verdict::Return);
    });
    batch.rule(UNASKED, |rule| {
        rule.decide(Verdict::Drop);
    });
    batch.base_chain(MARTIAN, "filter", HOOK_INPUT, PRIORITY_RAW);
    batch.rule(MARTIAN, |rule| {
        is_martian(rule, V4.daddr).decide(Verdict::Goto(UNASKED));
    });
}

/// Goes on only if the address that is there in the header is of `127.0.0.0/8` and the packet came in from elsewhere. The
/// cheapest question that answers most packets is the first: of IPv6, it is about a part of the source.
fn is_martian(rule: &mut Batch, at: u32) -> &mut Batch {
    rule.payload(NETWORK_HEADER, at, V4.len, REG_1);
    V4.only_this_family(within(rule, &loopback())).meta(META_IIF, REG_1).differs(REG_1, &LOOPBACK.to_ne_bytes())
}

/// The sets of the containers' ports to which ports of the host lead, which `firewall` asks as well.
pub(in crate::sys::nft) fn add_led(batch: &mut Batch) {
    for ip in [&V4, &V6] {
        let kind = ip.kind << 12 | TYPE_PROTO << 6 | TYPE_SERVICE;
        batch.shared_set(ip.led, Key { kind, len: ip.len + 8, host_order: false });
    }
}

/// Goes on only if the packet is for one of them.
pub(in crate::sys::nft) fn is_led(rule: &mut Batch, family: Nfproto) -> &mut Batch {
    let ip = if matches!(family, Nfproto::V4) { &V4 } else { &V6 };
    ip.load_exact(rule).lookup(ip.led, REG_1, false)
}

fn add_rules(batch: &mut Batch, ip: &Ip) {
    let behind = ip.behind();
    batch.rule(DISPATCH, |rule| {
        ip.load_exact(rule).lookup_value(ip.exact, REG_1, REG_1).destination_nat(ip.nfproto, REG_1, behind);
    });
    batch.rule(DISPATCH, |rule| {
        ip.load_any(rule).lookup_value(ip.any, REG_1, REG_1).destination_nat(ip.nfproto, REG_1, behind);
    });
    batch.rule(BACK, |rule| {
        let rule = ip.only_this_family(rule).was_rewritten(REG_1);
        rule.payload(NETWORK_HEADER, ip.daddr, ip.len, REG_1).lookup_verdict(ip.source, REG_1);
    });
    batch.rule(&Rewrite::Own.chain(), |rule| {
        let rule = ip.only_this_family(rule).payload(NETWORK_HEADER, ip.saddr, ip.len, REG_1);
        rule.payload(NETWORK_HEADER, ip.daddr, ip.len, behind).lookup(ip.own, REG_1, false).masquerade();
    });
}

/// The chain of a subnet, where it is one's sources that are rewritten. Another family may be all that was missing, so one
/// that is there is filled again.
pub(super) fn add_subnet(batch: &mut Batch, rewrite: Rewrite) {
    let Rewrite::Subnet(net) = rewrite else { return };
    let name = rewrite.chain();
    batch.empty_chain(&name);
    batch.rule(&name, |rule| from(rule, &net));
    if net.addr().is_ipv4() {
        batch.rule(&name, |rule| from(rule, &loopback()));
    }
}

/// Masquerades what comes from there.
fn from(rule: &mut Batch, net: &IpNet) {
    let ip = Ip::of(net.addr());
    ip.only_this_family(rule).payload(NETWORK_HEADER, ip.saddr, ip.len, REG_1);
    within(rule, net).masquerade();
}

/// Goes on only if the address in the first register is of the subnet.
fn within<'b>(rule: &'b mut Batch, net: &IpNet) -> &'b mut Batch {
    rule.mask(REG_1, &bytes(net.netmask())).equals(REG_1, &bytes(net.network()))
}

fn loopback() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8))
}
