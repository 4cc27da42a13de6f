//! Rules that the reference plugins made, so that braid can delete an attachment of theirs. Two
//! layouts of each:
//!
//! - `ipMasq`: a rule in `inet cni_plugins_masquerade masq_checks` whose comment starts with two
//!   hashes, or a chain `CNI-…` in the `nat` table of either family with a jump to it from
//!   `POSTROUTING` (iptables on nf_tables);
//! - `portmap`: rules in the chains of `cni_hostport` of either family whose comment is the
//!   container's id, or a chain `CNI-DN-…` with a jump to it from `CNI-HOSTPORT-DNAT`, and in older
//!   versions `CNI-SN-…` from `CNI-HOSTPORT-SNAT`.
//!
//! Of `macspoofchk` a chain `cni-br-iface-…` in `bridge nat` with a jump to it from `PREROUTING`,
//! and another that it jumps to, both named after the attachment. And `firewall`'s rules for an
//! address in `CNI-FORWARD` of the `filter` table, which name nobody.

use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family};
use crate::sys::nft::read::{Rule, rules};
use crate::sys::nft::{bytes, gone_is_fine};
use base16ct::lower::encode_string;
use braid_core::name::IfName;
use sha2::{Digest, Sha512};
use std::net::IpAddr;

const TABLE: &str = "cni_plugins_masquerade";
const CHAIN: &str = "masq_checks";
const NAT: &str = "nat";
const POSTROUTING: &str = "POSTROUTING";
const PREROUTING: &str = "PREROUTING";

const PORTS: &str = "cni_hostport";
const PORT_CHAINS: [&str; 3] = ["hostports", "hostip_hostports", "masquerading"];
/// Chains of `portmap` on iptables: what the jump comes from, and what a container's starts with.
const PORT_JUMPS: [(&str, &str); 2] = [
    ("CNI-HOSTPORT-DNAT", "CNI-DN-"),
    ("CNI-HOSTPORT-SNAT", "CNI-SN-"),
];

/// Table in which `firewall` puts two rules for each address.
const FILTER: &str = "filter";
const FORWARD: &str = "CNI-FORWARD";

/// Attachment that the rules belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    /// The network's name.
    pub(super) network: &'a str,
    /// `CNI_CONTAINERID`.
    pub(super) container_id: &'a str,
    /// `CNI_IFNAME`.
    pub(super) ifname: &'a str,
}

impl Of<'_> {
    /// Start of a rule's comment in the nf_tables layout.
    fn comment(&self) -> String {
        let owner = format!("{}:{}", self.ifname, self.container_id);
        format!("{}-{}", hash(&[self.network], 16), hash(&[&owner], 16))
    }

    /// The chain in the iptables layout.
    fn chain(&self) -> String {
        format!("CNI-{}", hash(&[self.network, self.container_id], 24))
    }

    /// A chain of `portmap`, which together with what it starts with is as long as iptables lets it
    /// be.
    fn port_chain(&self, start: &str) -> String {
        format!("{start}{}", hash(&[self.network, self.container_id], 21))
    }
}

/// The first `len` hexadecimal digits of the SHA-512 of `parts`, one behind the other.
fn hash(parts: &[&str], len: usize) -> String {
    let mut sha = Sha512::new();
    for part in parts {
        sha.update(part.as_bytes());
    }
    let mut hex = encode_string(&sha.finalize());
    hex.truncate(len);
    hex
}

/// Deletes both layouts of an attachment's masquerading; success where neither is there.
pub(super) fn del_masquerade(socket: &mut Socket, of: Of<'_>) -> Result<(), KernelError> {
    let comment = of.comment();
    del_rules(socket, Family::Inet, TABLE, CHAIN, |rule| {
        rule.comment.starts_with(&comment)
    })?;
    [Family::Ip, Family::Ip6]
        .into_iter()
        .try_for_each(|family| del_chain(socket, family, POSTROUTING, &of.chain()))
}

/// Deletes the hardware address check of an attachment; success where there is none.
pub(super) fn del_mac_check(
    socket: &mut Socket,
    container_id: &str,
    ifname: &IfName,
) -> Result<(), KernelError> {
    let of_port = format!("cni-br-iface-{container_id}-{ifname}");
    let of_mac = format!("{of_port}-mac");
    del_chain(socket, Family::Bridge, PREROUTING, &of_port)?;
    del_chain(socket, Family::Bridge, &of_port, &of_mac)
}

/// Deletes both layouts of an attachment's host ports; success where neither is there.
pub(super) fn del_ports(socket: &mut Socket, of: Of<'_>) -> Result<(), KernelError> {
    for family in [Family::Ip, Family::Ip6] {
        for chain in PORT_CHAINS {
            del_rules(socket, family, PORTS, chain, |rule| {
                rule.comment == of.container_id
            })?;
        }
        for (from, start) in PORT_JUMPS {
            del_chain(socket, family, from, &of.port_chain(start))?;
        }
    }
    Ok(())
}

/// Deletes the rules that let the addresses through, in the chain of iptables where `firewall` puts
/// them.
pub(super) fn del_forwarding(socket: &mut Socket, addrs: &[IpAddr]) -> Result<(), KernelError> {
    for addr in addrs {
        let family = if addr.is_ipv4() {
            Family::Ip
        } else {
            Family::Ip6
        };
        del_rules(socket, family, FILTER, FORWARD, |rule| {
            rule.compares.contains(&bytes(*addr))
        })?;
    }
    Ok(())
}

fn del_rules(
    socket: &mut Socket,
    family: Family,
    table: &'static str,
    chain: &str,
    is_own: impl Fn(&Rule) -> bool,
) -> Result<(), KernelError> {
    let own: Vec<Rule> = rules(socket, family, table, chain)?
        .into_iter()
        .filter(is_own)
        .collect();
    if own.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(family, table);
    for rule in &own {
        batch.del_rule(chain, rule.handle);
    }
    gone_is_fine(batch.send(socket))
}

/// Deletes a chain, and the jumps to it from another.
fn del_chain(
    socket: &mut Socket,
    family: Family,
    from: &str,
    chain: &str,
) -> Result<(), KernelError> {
    let jumps = rules(socket, family, NAT, from)?;
    let jumps: Vec<Rule> = jumps
        .into_iter()
        .filter(|rule| rule.jumps_to.as_deref() == Some(chain))
        .collect();
    if jumps.is_empty() && rules(socket, family, NAT, chain)?.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(family, NAT);
    for rule in &jumps {
        batch.del_rule(from, rule.handle);
    }
    batch.flush_chain(chain).del_chain(chain);
    gone_is_fine(batch.send(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_reference_plugins() {
        let of = Of {
            network: "test",
            container_id: "1234",
            ifname: "eth0",
        };
        assert_eq!(of.chain(), "CNI-2bbe0c48b91a7d1b8a6753a8");
        let of = Of {
            network: "unit-test",
            container_id: "one",
            ifname: "eth0",
        };
        assert_eq!(of.comment(), "6fd94d501e58f0aa-287fc69eff0574a2");
        let of = Of {
            network: "dbnet",
            container_id: "c1",
            ifname: "eth0",
        };
        assert_eq!(of.port_chain("CNI-DN-"), "CNI-DN-1383eeb27000e215038bb");
    }
}
