//! Chains and rules that all host ports share, and the chains of subnets.

use super::{ANY, EXACT, LED, OWN, SOURCE};
use crate::sys::nft::batch::{
    Batch, HOOK_INPUT, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_PREROUTING, PROTO, Part, SERVICE,
};
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::ip::Ip;
use braid_core::kernel_numbers::LOOPBACK_IFINDEX;
use braid_core::plan::thing::host_ports::Rewrite;
use ipnet::{IpNet, Ipv4Net};
use std::net::Ipv4Addr;

const DISPATCH: &str = "hostport";
const IN: &str = "hostport-in";
const OUT: &str = "hostport-out";
const BACK: &str = "hostport-back";
const MARTIAN_NEW: &str = "hostport-martian-new";
const MARTIAN: &str = "hostport-martian";
const UNASKED: &str = "hostport-unasked";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[DISPATCH, IN, OUT, BACK, MARTIAN_NEW, MARTIAN, UNASKED];
const PRIORITY_RAW: i32 = -300;
pub(super) const PRIORITY_DSTNAT: i32 = -100;
/// Priority before all DNAT rules of other programs.
const PRIORITY_MARTIAN_NEW: i32 = -110;
/// Priority before the chain that masquerades traffic of containers.
const PRIORITY_BACK: i32 = 99;
const META_IIF: u32 = 4;
/// Key type of the maps for ports at all addresses.
pub(super) const PORT: [Part; 2] = [PROTO, SERVICE];

/// Returns the key type of the maps for ports at one address.
pub(super) fn port_of(ip: Ip) -> [Part; 3] {
    [ip.addr(), PROTO, SERVICE]
}

/// Returns the value type of the maps: the address and port of the target.
pub(super) fn target(ip: Ip) -> [Part; 2] {
    [ip.addr(), SERVICE]
}

impl Batch {
    /// Loads the packet's destination into registers, as a key of ports at one address.
    pub(super) fn load_exact(&mut self, ip: Ip) -> &mut Self {
        let behind = ip.behind();
        self.only(ip)
            .destination(ip, REG_1)
            .l4proto(behind)
            .destination_port(behind + 1)
    }

    /// Loads the packet's protocol and port into registers, as a key of ports at all addresses.
    pub(super) fn load_any(&mut self, ip: Ip) -> &mut Self {
        self.only(ip).l4proto(REG_1).destination_port(REG_1 + 1)
    }
}

/// Adds the table, and all sets, maps, chains and rules except the chains of subnets.
pub(super) fn add_base(batch: &mut Batch) {
    batch.table();
    add_led(batch);
    for ip in Ip::BOTH {
        batch
            .value_map(ip.one(EXACT), &port_of(ip), &target(ip))
            .value_map(ip.one(ANY), &PORT, &target(ip));
        batch
            .verdict_map(ip.one(SOURCE), &[ip.addr()])
            .set(ip.one(OWN), &[ip.addr(), ip.addr()]);
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
    for ip in Ip::BOTH {
        add_rules(batch, ip);
    }
    let loopback = |rule: &mut Batch| from(rule, &loopback());
    batch.rule(own, loopback);
    batch.rule(all, |rule| {
        rule.masquerade();
    });
}

/// Adds the rules that drop packets from other hosts to `127.0.0.0/8`, except replies to a
/// redirected client of this host.
///
/// The NAT chain drops new connections to `127.0.0.0/8`. It costs little, since it sees only the
/// first packet of a connection. It also drops new connections from `127.0.0.0/8`, since their
/// replies would pass as replies to a client of this host. Packets that belong to no connection do
/// not pass the NAT chain, so the filter chain drops them.
fn add_martian(batch: &mut Batch) {
    batch.base_chain(MARTIAN_NEW, "nat", HOOK_PREROUTING, PRIORITY_MARTIAN_NEW);
    batch.rule(MARTIAN_NEW, |rule| {
        is_martian(rule.destination(Ip::V4, REG_1)).decide(Verdict::Drop);
    });
    batch.rule(MARTIAN_NEW, |rule| {
        is_martian(rule.source(Ip::V4, REG_1)).decide(Verdict::Drop);
    });
    batch.rule(UNASKED, |rule| {
        rule.goes_back(REG_1)
            .is_translated(REG_1)
            .decide(Verdict::Return);
    });
    batch.rule(UNASKED, |rule| {
        rule.decide(Verdict::Drop);
    });
    batch.base_chain(MARTIAN, "filter", HOOK_INPUT, PRIORITY_RAW);
    batch.rule(MARTIAN, |rule| {
        is_martian(rule.destination(Ip::V4, REG_1)).decide(Verdict::Goto(UNASKED));
    });
}

/// Continues the rule only if the address in the first register is in `127.0.0.0/8` and the packet
/// did not come in through `lo`. The address is tested first: this test is cheap and excludes most
/// packets. In an IPv6 packet, these bytes are part of the source address, so the next test
/// requires IPv4.
fn is_martian(rule: &mut Batch) -> &mut Batch {
    rule.within(&loopback())
        .only(Ip::V4)
        .meta(META_IIF, REG_1)
        .differs(REG_1, &LOOPBACK_IFINDEX.to_ne_bytes())
}

/// Adds the sets of container ports that are targets of host ports. `firewall` uses them as well.
pub(crate) fn add_led(batch: &mut Batch) {
    for ip in Ip::BOTH {
        batch.shared_set(ip.one(LED), &port_of(ip));
    }
}

/// Continues the rule only if the packet's destination is a target of a host port.
pub(crate) fn is_led(rule: &mut Batch, ip: Ip) -> &mut Batch {
    rule.load_exact(ip).lookup(ip.one(LED), REG_1, false)
}

fn add_rules(batch: &mut Batch, ip: Ip) {
    let behind = ip.behind();
    batch.rule(DISPATCH, |rule| {
        rule.load_exact(ip)
            .lookup_value(ip.one(EXACT), REG_1, REG_1)
            .destination_nat(ip, REG_1, behind);
    });
    batch.rule(DISPATCH, |rule| {
        rule.load_any(ip)
            .lookup_value(ip.one(ANY), REG_1, REG_1)
            .destination_nat(ip, REG_1, behind);
    });
    batch.rule(BACK, |rule| {
        rule.only(ip)
            .was_rewritten(REG_1)
            .destination(ip, REG_1)
            .lookup_verdict(ip.one(SOURCE), REG_1);
    });
    batch.rule(&Rewrite::Own.chain(), |rule| {
        rule.only(ip)
            .source(ip, REG_1)
            .destination(ip, behind)
            .lookup(ip.one(OWN), REG_1, false)
            .masquerade();
    });
}

/// Adds the chain of a subnet if `rewrite` is for a subnet. If the chain of one address family is
/// missing, the caller adds the chains of both families. So an existing chain is emptied and filled
/// again.
pub(super) fn add_subnet(batch: &mut Batch, rewrite: Rewrite) {
    let Rewrite::Subnet(net) = rewrite else {
        return;
    };
    let name = rewrite.chain();
    batch.empty_chain(&name);
    batch.rule(&name, |rule| from(rule, &net));
    if net.addr().is_ipv4() {
        batch.rule(&name, |rule| from(rule, &loopback()));
    }
}

/// Masquerades packets from the subnet.
fn from(rule: &mut Batch, net: &IpNet) {
    let ip = Ip::of(net.addr());
    rule.only(ip).source(ip, REG_1).within(net).masquerade();
}

fn loopback() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8))
}
