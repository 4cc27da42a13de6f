//! What the reference plugins made for `ipMasq`, so that braid can delete an attachment of theirs.
//!
//! Two layouts: a rule in `inet cni_plugins_masquerade masq_checks` whose comment starts with two hashes, or a chain
//! `CNI-…` in the `nat` table of either family with a jump to it from `POSTROUTING` (iptables on nf_tables).

use super::batch::{Batch, Family};
use super::read::{Rule, rules};
use crate::sys::netlink::{KernelError, Socket};
use nix::errno::Errno;
use sha2::{Digest, Sha512};

const TABLE: &str = "cni_plugins_masquerade";
const CHAIN: &str = "masq_checks";
const NAT: &str = "nat";
const POSTROUTING: &str = "POSTROUTING";

/// Whose rules they are.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    /// The network's name.
    pub network: &'a str,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a str,
}

impl Of<'_> {
    /// What a rule's comment starts with in the nf_tables layout.
    fn comment(&self) -> String {
        let owner = format!("{}:{}", self.ifname, self.container_id);
        format!("{}-{}", hash(&[self.network], 16), hash(&[&owner], 16))
    }

    /// The chain in the iptables layout.
    fn chain(&self) -> String {
        format!("CNI-{}", hash(&[self.network, self.container_id], 24))
    }
}

/// The first `len` hexadecimal digits of the SHA-512 of `parts`, one behind the other.
fn hash(parts: &[&str], len: usize) -> String {
    let mut sha = Sha512::new();
    for part in parts {
        sha.update(part.as_bytes());
    }
    let mut hex = sha.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    hex.truncate(len);
    hex
}

/// Deletes both layouts of an attachment; success where neither is there.
pub fn del_masquerade(socket: &mut Socket, of: Of<'_>) -> Result<(), KernelError> {
    let comment = of.comment();
    let own = rules(socket, Family::Inet, TABLE, CHAIN)?;
    let own: Vec<Rule> = own.into_iter().filter(|rule| rule.comment.starts_with(&comment)).collect();
    if !own.is_empty() {
        let mut batch = Batch::new(Family::Inet, TABLE);
        for rule in &own {
            batch.del_rule(CHAIN, rule.handle);
        }
        gone_is_fine(batch.send(socket))?;
    }
    for family in [Family::Ip, Family::Ip6] {
        del_chain(socket, family, &of.chain())?;
    }
    Ok(())
}

fn del_chain(socket: &mut Socket, family: Family, chain: &str) -> Result<(), KernelError> {
    let jumps = rules(socket, family, NAT, POSTROUTING)?;
    let jumps: Vec<Rule> = jumps.into_iter().filter(|rule| rule.jumps_to.as_deref() == Some(chain)).collect();
    if jumps.is_empty() && rules(socket, family, NAT, chain)?.is_empty() {
        return Ok(());
    }
    let mut batch = Batch::new(family, NAT);
    for rule in &jumps {
        batch.del_rule(POSTROUTING, rule.handle);
    }
    batch.flush_chain(chain).del_chain(chain);
    gone_is_fine(batch.send(socket))
}

fn gone_is_fine(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_reference_plugins() {
        let of = Of { network: "test", container_id: "1234", ifname: "eth0" };
        assert_eq!(of.chain(), "CNI-2bbe0c48b91a7d1b8a6753a8");
        let of = Of { network: "unit-test", container_id: "one", ifname: "eth0" };
        assert_eq!(of.comment(), "6fd94d501e58f0aa-287fc69eff0574a2");
    }
}
