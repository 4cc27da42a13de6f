//! Rate limit for packet sockets on a link of the container: a table for each link, in the
//! container's network namespace.
//!
//! ```text
//! table netdev braid-eth0 {
//!     chain held { limit rate over 1375000 bytes/second burst 1000000 bytes counter drop }
//!     chain out { type filter hook egress device "eth0" priority filter
//!         rtclassid >= 0 accept
//!         goto held }
//! }
//! ```
//!
//! A packet socket may bypass qdisc and filters of a link (`PACKET_QDISC_BYPASS`), but not this
//! hook (Linux 5.16, `net/packet/af_packet.c`, `packet_direct_xmit()`). Packets from the IP stack
//! have a route, so their realm can be read, and they pass the qdisc in any case. So the limit
//! applies only to packets from packet sockets, and from a bridge or a virtual machine in the
//! container. It is a tenth above the rate, so that the qdisc takes effect first.

use super::Effect;
use crate::kernel::Kernel;
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family};
use crate::sys::nft::expression::{LINK_HEADER, REG_1, Verdict};
use crate::sys::nft::ip::NETWORK_HEADER;
use crate::sys::nft::read::rules;
use crate::sys::nft::{bytes, gone_is_fine};
use crate::{Cause, Context, Error};
use braid_core::name::IfName;
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::packet_guard::{PacketGuardFact, PacketLimit};
use braid_core::plan::thing::{LinkRef, PacketGuard};
use ipnet::IpNet;
use nix::errno::Errno;

const FAMILY: Family = Family::Netdev;
/// Chain that drops packets over the limit.
const HELD: &str = "held";
const BASE_CHAIN: &str = "out";
/// `NF_NETDEV_EGRESS`.
const HOOK_EGRESS: u32 = 1;
/// `NF_IP_PRI_FILTER`.
const PRIORITY: i32 = 0;

impl Effect for PacketGuard {
    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(add(kernel.nft_of(self.at.ns)?, self)?)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(del(kernel.nft_of(self.at.ns)?, &self.at.name)?)
    }

    /// True if the error means that the table does not exist. A kernel without nf_tables returns
    /// such an error too.
    fn is_gone(&self, errno: Errno) -> bool {
        [
            Errno::EOPNOTSUPP,
            Errno::EPROTONOSUPPORT,
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::ENXIO,
        ]
        .contains(&errno)
    }
}

/// Limits packet sockets on a link that has no limit yet. If a killed call left a table, deletes it
/// first.
pub fn add(socket: &mut Socket, guard: &PacketGuard) -> Result<(), KernelError> {
    match batch(guard).send(socket) {
        Err(err) if err.errno == Errno::EEXIST => {
            del(socket, &guard.at.name)?;
            batch(guard).send(socket)
        }
        other => other,
    }
}

/// Deletes the limit. A missing table is a success.
pub fn del(socket: &mut Socket, link: &IfName) -> Result<(), KernelError> {
    let mut batch = Batch::new(FAMILY, table(link));
    batch.del_table();
    gone_is_fine(batch.send(socket))
}

/// Returns the limit on the link's packet sockets; `None` if there is none.
pub fn find(socket: &mut Socket, link: &IfName) -> Result<Option<PacketGuardFact>, KernelError> {
    let table = table(link);
    if !rules(socket, FAMILY, &table, BASE_CHAIN)?
        .iter()
        .any(|rule| rule.jumps_to.as_deref() == Some(HELD))
    {
        return Ok(None);
    }
    for rule in rules(socket, FAMILY, &table, HELD)? {
        if rule.is(Verdict::Drop)
            && let Some((rate, burst)) = rule.limit
        {
            return Ok(Some(PacketGuardFact {
                limit: PacketLimit { rate, burst },
                dropped: rule.counted,
            }));
        }
    }
    Ok(None)
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let found = kernel
        .nft_of(at.ns)
        .and_then(|socket| Ok(find(socket, &at.name)?));
    let found = found.doing(format_args!("read the limit of packet sockets on {at}"))?;
    if let Some(fact) = found {
        facts.packet_guards.insert(at.clone(), fact);
    }
    Ok(())
}

fn table(link: &IfName) -> String {
    format!("braid-{link}")
}

fn batch(guard: &PacketGuard) -> Batch {
    let mut batch = Batch::new(FAMILY, table(&guard.at.name));
    batch.table().chain(HELD).rule(HELD, |rule| {
        rule.limit(guard.limit.rate, guard.limit.burst)
            .count()
            .decide(Verdict::Drop);
    });
    batch.device_chain(BASE_CHAIN, HOOK_EGRESS, PRIORITY, &guard.at.name);
    batch.rule(BASE_CHAIN, |rule| {
        rule.has_route(REG_1).decide(Verdict::Accept);
    });
    let (only, nets) = match &guard.subnets {
        Some(subnets) => (subnets.only, &subnets.nets[..]),
        None => (false, &[][..]),
    };
    for net in nets {
        batch.rule(BASE_CHAIN, |rule| {
            if !only {
                // Other packets than IP may have bytes that look like an address. If a packet
                // socket bypasses the qdisc, Linux 6.18 does not know the offset of this header, so
                // the packet counts toward the limit. Linux 6.12 knows it.
                rule.ether_type(if net.addr().is_ipv4() {
                    ETH_P_IP
                } else {
                    ETH_P_IPV6
                });
            }
            rule.is_for(net).decide(if only {
                Verdict::Goto(HELD)
            } else {
                Verdict::Accept
            });
        });
    }
    if only {
        // A packet with a VLAN tag has its IP header elsewhere, and counts toward the limit.
        for version in VERSIONS {
            batch.rule(BASE_CHAIN, |rule| {
                rule.has_version(version).decide(Verdict::Accept);
            });
        }
    }
    batch.rule(BASE_CHAIN, |rule| {
        rule.decide(Verdict::Goto(HELD));
    });
    batch
}

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// First four bits of an IPv4 and of an IPv6 header.
const VERSIONS: [u8; 2] = [0x40, 0x60];

impl Batch {
    /// Continues the rule only if the packet has a route. Only such a packet has a realm, and any
    /// realm is at least 0.
    fn has_route(&mut self, register: u32) -> &mut Self {
        const META_RTCLASSID: u32 = 13;
        const CMP_GTE: u32 = 5;
        self.meta(META_RTCLASSID, register)
            .compare(register, CMP_GTE, &[0; 4])
    }

    fn ether_type(&mut self, kind: u16) -> &mut Self {
        const ETHER_TYPE: u32 = 12;
        self.payload(LINK_HEADER, ETHER_TYPE, 2, REG_1)
            .equals(REG_1, &kind.to_be_bytes())
    }

    /// Continues the rule only if the network header starts like an IP header of this version.
    fn has_version(&mut self, version: u8) -> &mut Self {
        self.payload(NETWORK_HEADER, 0, 1, REG_1)
            .mask(REG_1, &[0xf0])
            .equals(REG_1, &[version])
    }

    /// Continues the rule only if the network header starts like an IP packet to this subnet.
    /// The sender's `EtherType` is not considered.
    fn is_for(&mut self, net: &IpNet) -> &mut Self {
        let [v4, v6] = VERSIONS;
        let (version, offset) = if net.addr().is_ipv4() {
            (v4, 16)
        } else {
            (v6, 24)
        };
        self.has_version(version);
        // Compares only the bytes of the prefix, like `nft`.
        let len = net.prefix_len().div_ceil(8);
        if len == 0 {
            return self;
        }
        let (addr, mask) = (bytes(net.network()), bytes(net.netmask()));
        self.payload(NETWORK_HEADER, offset, u32::from(len), REG_1);
        if !net.prefix_len().is_multiple_of(8) {
            self.mask(REG_1, &mask[..usize::from(len)]);
        }
        self.equals(REG_1, &addr[..usize::from(len)])
    }
}
