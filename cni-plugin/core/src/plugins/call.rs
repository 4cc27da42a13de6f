//! The attachment that a CNI call adds or deletes, and the names derived from it.
//!
//! Every name is a pure function of network, container id and interface, so cleaning up needs no
//! stored state.

use crate::cni::{AddResult, Interface, Owner};
use crate::name::{IfName, Mac, Ns};
use crate::plan::step::Step;
use crate::plan::thing::host_ports::OWNER_LEN;
use crate::plan::thing::{Attr, LinkAttr, LinkRef};
use base16ct::lower::encode_string;
use sha2::{Digest, Sha256, Sha512};

const _: () = assert!(Owner::MAX_LEN <= OWNER_LEN, "the maps keep an owner's text");

/// Longest link alias in bytes. The kernel takes at most `IFALIASZ` - 1 bytes, 255, with the NUL.
const ALIAS_LEN: usize = 254;

/// The part of a CNI call that a plan may depend on.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The network, the container and its interface.
    pub owner: Owner,
    /// `CNI_IFNAME`.
    pub ifname: &'a IfName,
    /// `CNI_NETNS` as given.
    pub sandbox: &'a str,
    /// The result of the previous plugin.
    pub prev: Option<&'a AddResult>,
    /// Digest of container id and interface name. Link names and hardware addresses derive from it.
    digest: [u8; 32],
    /// Name and hardware address of the host end of the container's link pair, read from
    /// `prevResult`. `None` means that both derive from `digest`.
    host_end: Option<(IfName, Mac)>,
}

impl<'a> Call<'a> {
    /// Creates a call for one interface of a container.
    pub fn new(
        network: &str,
        container_id: &str,
        ifname: &'a IfName,
        sandbox: &'a str,
        prev: Option<&'a AddResult>,
    ) -> Self {
        let digest = digest(&[container_id, ifname.as_str()]);
        let owner = Owner::new(network, container_id, ifname.as_str());
        Self {
            owner,
            ifname,
            sandbox,
            prev,
            digest,
            host_end: None,
        }
    }

    /// Reads the host end's name and hardware address from `prevResult`. The host end is the host
    /// interface listed directly before the container's interface.
    #[must_use]
    pub fn with_told_host_end(mut self) -> Self {
        let interfaces = self.prev.map_or(&[][..], |prev| &prev.interfaces);
        let is_own = |pair: &&[Interface]| {
            pair[0].sandbox.is_empty() && pair[1].name == self.ifname.as_str()
        };
        let told = interfaces.windows(2).find(is_own).map(|pair| &pair[0]);
        self.host_end = told.and_then(name_and_mac);
        self
    }

    /// Returns the container's interface.
    pub fn pod(&self) -> LinkRef {
        LinkRef::pod(self.ifname.clone())
    }

    /// Returns the container's entry in `interfaces` of the CNI result, with the hardware address
    /// `mac`.
    pub fn interface(&self, mac: String) -> Interface {
        Interface {
            name: self.ifname.to_string(),
            mac,
            sandbox: self.sandbox.to_owned(),
            ..Interface::default()
        }
    }

    /// Returns the name of the veth's host end.
    pub fn host_veth(&self) -> IfName {
        self.host_end
            .as_ref()
            .map_or_else(|| veth_name(&self.digest[..8]), |(name, _)| name.clone())
    }

    /// Returns the name of the netkit's host end.
    pub fn host_netkit(&self) -> IfName {
        self.host_end
            .as_ref()
            .map_or_else(|| named("nk", &self.digest[..8]), |(name, _)| name.clone())
    }

    /// Returns the host end's hardware address. A bridge takes the lowest address of its ports. The
    /// derived address has a high first byte, so adding or removing the port does not change the
    /// bridge's address.
    pub fn host_mac(&self) -> Mac {
        self.host_end
            .as_ref()
            .map_or_else(|| mac(0xfe, &self.digest[8..13]), |(_, mac)| *mac)
    }

    /// Returns the container's default hardware address, locally administered.
    pub fn pod_mac(&self) -> Mac {
        mac(0x0a, &self.digest[13..18])
    }

    /// Returns the ifb that queues packets received by a link in `ns`. With `Ns::Host`, the link is
    /// the container's host end, which receives the packets from the container. With `Ns::Pod`, the
    /// container has no host end. The link is then its interface, which receives the packets to the
    /// container.
    pub fn ifb(&self, ns: Ns) -> LinkRef {
        LinkRef {
            ns,
            name: named("ifb", &self.digest[18..24]),
        }
    }

    /// Returns the ifb with which the reference plugin `bandwidth` shapes the container's egress.
    pub fn reference_ifb(&self) -> IfName {
        let digest = Sha512::digest([&*self.owner.network, &self.owner.container_id].concat());
        named("bwp", &digest[..6])
    }

    /// Returns the step that writes the owner to the alias of a host link, so that GC finds the
    /// link if its record is lost. The alias is the program's name and the owner, shortened if too
    /// long.
    pub fn mark(&self, at: LinkRef) -> Step {
        let whole = self.owner.whole();
        let is_short = Owner::ALIAS_PREFIX.len() + whole.len() <= ALIAS_LEN;
        let alias = format!(
            "{}{}",
            Owner::ALIAS_PREFIX,
            if is_short { whole } else { self.owner.short() }
        );
        Step::add(Attr {
            at,
            to: LinkAttr::Alias(alias),
        })
    }
}

/// Returns the hardware address of a bridge that braid creates; it differs between nodes and
/// between boots.
pub fn bridge_mac(bridge: &IfName, boot_id: &str) -> Mac {
    mac(0x0e, &digest(&["bridge", bridge.as_str(), boot_id]))
}

/// Returns the name of a veth that the containers of a node share for `purpose`.
pub fn shared_veth(purpose: &str) -> IfName {
    veth_name(&digest(&["shared", purpose]))
}

fn name_and_mac(interface: &Interface) -> Option<(IfName, Mac)> {
    let name = IfName::parse(&interface.name).ok()?;
    let mac = Mac::parse(&interface.mac)?;
    Some((name, mac))
}

fn veth_name(digest: &[u8]) -> IfName {
    // 4 letters and 11 of the 16 hexadecimal digits are the longest possible name.
    named("veth", &digest[..8])
}

/// Returns `word` followed by as many hexadecimal digits of `bytes` as an interface name can hold.
fn named(word: &str, bytes: &[u8]) -> IfName {
    let mut name = word.to_owned() + &encode_string(bytes);
    name.truncate(IfName::MAX_LEN);
    IfName::parse(&name).unwrap_or_else(|_| unreachable!("letters and digits"))
}

fn mac(first: u8, digest: &[u8]) -> Mac {
    let mut bytes = [first; 6];
    bytes[1..].copy_from_slice(&digest[..5]);
    Mac(bytes)
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part.as_bytes());
        // No part contains a NUL, so no two lists of parts hash the same bytes.
        sha.update([0]);
    }
    sha.finalize().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a call for tests.
    pub(crate) fn call(ifname: &IfName) -> Call<'_> {
        Call::new("net", "4f1c", ifname, "/run/netns/pod", None)
    }

    #[test]
    fn names_differ_between_containers_and_between_interfaces() {
        let (eth0, eth1) = (
            IfName::parse("eth0").expect("a name"),
            IfName::parse("eth1").expect("a name"),
        );
        let one = call(&eth0);
        let other = Call::new("net", "4f1", &eth0, "/run/netns/pod", None);
        assert_eq!(one.host_veth().as_str().len(), 15);
        assert_ne!(one.host_veth(), call(&eth1).host_veth());
        assert_ne!(one.host_veth(), other.host_veth());
        assert_ne!(one.host_mac(), one.pod_mac());
        assert_eq!(one.pod_mac(), call(&eth0).pod_mac());
    }

    #[test]
    fn the_reference_ifb_has_the_name_that_its_own_tests_expect() {
        let eth0 = IfName::parse("eth0").expect("a name");
        let call = Call::new("cni-plugin-bandwidth-test", "dummy", &eth0, "", None);
        assert_eq!(call.reference_ifb().as_str(), "bwpa8eda89404b7");
    }

    #[test]
    fn generated_addresses_are_unicast_and_locally_administered() {
        let eth0 = IfName::parse("eth0").expect("a name");
        for mac in [
            call(&eth0).host_mac(),
            call(&eth0).pod_mac(),
            bridge_mac(&eth0, "a boot"),
        ] {
            assert_eq!(mac.0[0] & 0b11, 0b10, "{mac}");
        }
    }
}
