//! Rules of the reference plugins, so that braid can delete their attachments.
//!
//! Two plugins have two layouts each. The first layout is nf_tables, and the second is iptables on
//! nf_tables:
//!
//! - `ipMasq`, first layout: a rule in `inet cni_plugins_masquerade masq_checks`. Its comment
//!   starts with two hashes. Second layout: a chain `CNI-…` in the `nat` table of either family,
//!   and a jump to this chain from `POSTROUTING`.
//! - `portmap`, first layout: rules in the chains of `cni_hostport` of either family. Their comment
//!   is the container's id. Second layout: a chain `CNI-DN-…`, and a jump to this chain from
//!   `CNI-HOSTPORT-DNAT`. Older versions also have a chain `CNI-SN-…`, and a jump to it from
//!   `CNI-HOSTPORT-SNAT`.
//!
//! `macspoofchk` has a chain `cni-br-iface-…` in `bridge nat` with a jump to it from `PREROUTING`,
//! and a second chain that the first one jumps to. Both are named after the attachment. `firewall`
//! has rules for an address in `CNI-FORWARD` of the `filter` table, which name no attachment.

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
/// Chains of `portmap` on iptables: the chain with the jump, and the prefix of a container's chain.
const PORT_JUMPS: [(&str, &str); 2] = [
    ("CNI-HOSTPORT-DNAT", "CNI-DN-"),
    ("CNI-HOSTPORT-SNAT", "CNI-SN-"),
];

/// Table in which `firewall` adds two rules for each address.
const FILTER: &str = "filter";
const FORWARD: &str = "CNI-FORWARD";

/// Attachment made by a reference plugin.
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
    /// Returns the start of a rule's comment in the nf_tables layout.
    fn comment(&self) -> String {
        let owner = format!("{}:{}", self.ifname, self.container_id);
        format!("{}-{}", hash(&[self.network], 16), hash(&[&owner], 16))
    }

    /// Returns the name of the chain in the iptables layout.
    fn chain(&self) -> String {
        format!("CNI-{}", hash(&[self.network, self.container_id], 24))
    }

    /// Returns the name of a chain of `portmap`: `start` and a hash. The name has the maximal
    /// length that iptables allows.
    fn port_chain(&self, start: &str) -> String {
        format!("{start}{}", hash(&[self.network, self.container_id], 21))
    }
}

/// Returns the first `len` hexadecimal digits of the SHA-512 of the concatenated `parts`.
fn hash(parts: &[&str], len: usize) -> String {
    let mut sha = Sha512::new();
    for part in parts {
        sha.update(part.as_bytes());
    }
    let mut hex = encode_string(&sha.finalize());
    hex.truncate(len);
    hex
}

/// Deletes both layouts of an attachment's masquerading. Missing rules are a success.
pub(super) fn del_masquerade(socket: &mut Socket, of: Of<'_>) -> Result<(), KernelError> {
    let comment = of.comment();
    del_rules(socket, Family::Inet, TABLE, CHAIN, |rule| {
        rule.comment.starts_with(&comment)
    })?;
    for family in [Family::Ip, Family::Ip6] {
        del_chain(socket, family, POSTROUTING, &of.chain())?;
    }
    Ok(())
}

/// Deletes the hardware address check of an attachment. Missing chains are a success.
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

/// Deletes both layouts of an attachment's host ports. Missing rules are a success.
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

/// Deletes the rules that accept packets of the addresses, in the iptables chain of `firewall`.
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
    let mut own = rules(socket, family, table, chain)?;
    own.retain(is_own);
    if own.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(family, table);
    for rule in &own {
        batch.del_rule(chain, rule.handle);
    }
    gone_is_fine(batch.send(socket))
}

/// Deletes a chain and the jumps to it from the chain `from`.
fn del_chain(
    socket: &mut Socket,
    family: Family,
    from: &str,
    chain: &str,
) -> Result<(), KernelError> {
    let mut jumps = rules(socket, family, NAT, from)?;
    jumps.retain(|rule| rule.jumps_to.as_deref() == Some(chain));
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
    fn names_match_the_reference_plugins() {
        let attachment = Of {
            network: "test",
            container_id: "1234",
            ifname: "eth0",
        };
        assert_eq!(attachment.chain(), "CNI-2bbe0c48b91a7d1b8a6753a8");
        let attachment = Of {
            network: "unit-test",
            container_id: "one",
            ifname: "eth0",
        };
        assert_eq!(attachment.comment(), "6fd94d501e58f0aa-287fc69eff0574a2");
        let attachment = Of {
            network: "dbnet",
            container_id: "c1",
            ifname: "eth0",
        };
        assert_eq!(
            attachment.port_chain("CNI-DN-"),
            "CNI-DN-1383eeb27000e215038bb"
        );
    }
}
