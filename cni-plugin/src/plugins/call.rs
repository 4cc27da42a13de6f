//! Whose attachment a plan is for, and the names that follow from it.
//!
//! Every name is a pure function of network, container id and interface, so that cleaning up needs no memory.

use crate::cni::AddResult;
use crate::plan::step::{LinkAttr, LinkRef, Step};
use crate::plan::{IfName, Mac};
use sha2::{Digest, Sha256};

/// Longest alias that the kernel takes with its NUL (`IFALIASZ` less one for each), in bytes.
const ALIAS_LEN: usize = 254;

/// One call, as far as a plan may depend on it.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The network's name.
    pub network: &'a str,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a IfName,
    /// `CNI_NETNS` as given.
    pub sandbox: &'a str,
    /// The result of the plugin before.
    pub prev: Option<&'a AddResult>,
}

impl Call<'_> {
    /// The container's interface.
    pub fn pod(&self) -> LinkRef {
        LinkRef::pod(self.ifname.clone())
    }

    /// The host end of the container's veth.
    pub fn host_veth(&self) -> IfName {
        veth_name(self.hash(""))
    }

    /// The host end's hardware address. Its first byte is high, so that a bridge, which takes the lowest address of
    /// its ports, does not change its own when the port comes or goes.
    pub fn host_mac(&self) -> Mac {
        mac(0xfe, self.hash("host"))
    }

    /// The container's hardware address where none is asked for; locally administered.
    pub fn pod_mac(&self) -> Mac {
        mac(0x0a, self.hash("pod"))
    }

    /// Whose a rule or a link is, in comments and aliases.
    pub fn owner(&self) -> String {
        owner(self.network, self.container_id, self.ifname.as_str())
    }

    /// Writes on the host end whose it is, for GC after the record is lost: [`Call::owner`] behind the program's name.
    pub fn mark_host_veth(&self) -> Step {
        let mut alias = format!("{ALIAS_PREFIX}{}", self.owner());
        while alias.len() > ALIAS_LEN {
            alias.pop();
        }
        Step::SetLink { at: LinkRef::host(self.host_veth()), to: LinkAttr::Alias(alias), from: None }
    }

    fn hash(&self, purpose: &str) -> [u8; 8] {
        hash(&[purpose, self.container_id, self.ifname.as_str()])
    }
}

/// What the alias of a host link starts with.
pub const ALIAS_PREFIX: &str = "braid ";

/// Network, container id and interface as one text; none of the first two holds a space.
pub fn owner(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{network} {container_id} {ifname}")
}

/// The hardware address of a bridge that a node makes: another one on each node, and after each boot.
pub fn bridge_mac(bridge: &IfName, boot_id: &str) -> Mac {
    mac(0x0e, hash(&["bridge", bridge.as_str(), boot_id]))
}

/// The host name of a veth that a node keeps for a purpose of its own.
pub fn shared_veth(purpose: &str) -> IfName {
    veth_name(hash(&["shared", purpose]))
}

fn veth_name(hash: [u8; 8]) -> IfName {
    let hex = hash.iter().fold(String::from("veth"), |name, byte| name + &format!("{byte:02x}"));
    // 4 letters and 11 of the 16 hexadecimal digits: as long as a name may be.
    IfName::parse(&hex[..IfName::MAX_LEN]).unwrap_or_else(|_| unreachable!("letters and digits"))
}

fn mac(first: u8, hash: [u8; 8]) -> Mac {
    let mut bytes = [first; 6];
    bytes[1..].copy_from_slice(&hash[..5]);
    Mac(bytes)
}

fn hash(parts: &[&str]) -> [u8; 8] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part.as_bytes());
        // No part holds a NUL, so no two lists of parts hash the same bytes.
        sha.update([0]);
    }
    let digest = sha.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    first
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A call for tests.
    pub(crate) fn call(ifname: &IfName) -> Call<'_> {
        Call { network: "net", container_id: "4f1c", ifname, sandbox: "/run/netns/pod", prev: None }
    }

    #[test]
    fn names_differ_between_containers_and_between_interfaces() {
        let (eth0, eth1) = (IfName::parse("eth0").expect("a name"), IfName::parse("eth1").expect("a name"));
        let one = call(&eth0);
        let other = Call { container_id: "4f1", ..call(&eth0) };
        assert_eq!(one.host_veth().as_str().len(), 15);
        assert_ne!(one.host_veth(), call(&eth1).host_veth());
        assert_ne!(one.host_veth(), other.host_veth());
        assert_ne!(one.host_mac(), one.pod_mac());
        assert_eq!(one.pod_mac(), call(&eth0).pod_mac());
    }

    #[test]
    fn generated_addresses_are_unicast_and_locally_administered() {
        let eth0 = IfName::parse("eth0").expect("a name");
        for mac in [call(&eth0).host_mac(), call(&eth0).pod_mac(), bridge_mac(&eth0, "a boot")] {
            assert_eq!(mac.0[0] & 0b11, 0b10, "{mac}");
        }
    }
}
