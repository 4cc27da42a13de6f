//! The attachment that a plan is for, and the names that follow from it.
//!
//! Every name is a pure function of network, container id and interface, so that cleaning up needs
//! no memory.

use crate::cni::{AddResult, Interface, Owner};
use crate::name::{IfName, Mac, Ns};
use crate::plan::step::Step;
use crate::plan::thing::host_ports::OWNER_LEN;
use crate::plan::thing::{Attr, LinkAttr, LinkRef};
use base16ct::lower::encode_string;
use sha2::{Digest, Sha256, Sha512};

const _: () = assert!(Owner::MAX_LEN <= OWNER_LEN, "the maps keep an owner's text");

/// Longest alias that the kernel takes with its NUL (`IFALIASZ` less one for each), in bytes.
const ALIAS_LEN: usize = 254;

/// One call, as far as a plan may depend on it.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The network, the container and its interface.
    pub owner: Owner,
    /// `CNI_IFNAME`.
    pub ifname: &'a IfName,
    /// `CNI_NETNS` as given.
    pub sandbox: &'a str,
    /// The result of the plugin before.
    pub prev: Option<&'a AddResult>,
    /// Of container id and interface: what their names are made of.
    digest: [u8; 32],
    /// The host end of the container's pair of links where it has another name and address.
    host_end: Option<(IfName, Mac)>,
}

impl<'a> Call<'a> {
    /// A call for one interface of a container.
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

    /// The same with the host end that the result names, right before the container's interface.
    #[must_use]
    pub fn with_told_host_end(mut self) -> Self {
        let interfaces = self.prev.map_or(&[][..], |prev| &prev.interfaces);
        let is_own = |pair: &&[Interface]| {
            pair[0].sandbox.is_empty() && pair[1].name == self.ifname.as_str()
        };
        let told = interfaces.windows(2).find(is_own).map(|pair| &pair[0]);
        self.host_end =
            told.and_then(|end| IfName::parse(&end.name).ok().zip(Mac::parse(&end.mac)));
        self
    }

    /// The container's interface.
    pub fn pod(&self) -> LinkRef {
        LinkRef::pod(self.ifname.clone())
    }

    /// The container's interface in a result.
    pub fn interface(&self, mac: String) -> Interface {
        Interface {
            name: self.ifname.to_string(),
            mac,
            sandbox: self.sandbox.to_owned(),
            ..Interface::default()
        }
    }

    /// The host end of the container's veth.
    pub fn host_veth(&self) -> IfName {
        self.host_end
            .as_ref()
            .map_or_else(|| veth_name(&self.digest[..8]), |(name, _)| name.clone())
    }

    /// The host end of the container's netkit.
    pub fn host_netkit(&self) -> IfName {
        self.host_end
            .as_ref()
            .map_or_else(|| named("nk", &self.digest[..8]), |(name, _)| name.clone())
    }

    /// The host end's hardware address. Its first byte is high, so that a bridge, which takes the
    /// lowest address of its ports, does not change its own when the port comes or goes.
    pub fn host_mac(&self) -> Mac {
        self.host_end
            .as_ref()
            .map_or_else(|| mac(0xfe, &self.digest[8..13]), |(_, mac)| *mac)
    }

    /// The container's hardware address where none is asked for; locally administered.
    pub fn pod_mac(&self) -> Mac {
        mac(0x0a, &self.digest[13..18])
    }

    /// The ifb in which what comes in by a link of that namespace is queued: from the container by
    /// the host's end of its link, or to it where there is no such end.
    pub fn ifb(&self, ns: Ns) -> LinkRef {
        LinkRef {
            ns,
            name: named("ifb", &self.digest[18..24]),
        }
    }

    /// The ifb by which the reference `bandwidth` shapes what this container sends.
    pub fn reference_ifb(&self) -> IfName {
        let digest = Sha512::digest([&*self.owner.network, &self.owner.container_id].concat());
        named("bwp", &digest[..6])
    }

    /// Writes on a link of the host whose it is, for GC after the record is lost: the owner behind
    /// the program's name, whole where it fits.
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

/// The hardware address of a bridge that a node makes: another one on each node, and after each
/// boot.
pub fn bridge_mac(bridge: &IfName, boot_id: &str) -> Mac {
    mac(0x0e, &digest(&["bridge", bridge.as_str(), boot_id]))
}

/// The host name of a veth that a node keeps for a purpose of its own.
pub fn shared_veth(purpose: &str) -> IfName {
    veth_name(&digest(&["shared", purpose]))
}

fn veth_name(digest: &[u8]) -> IfName {
    // 4 letters and 11 of the 16 hexadecimal digits: as long as a name may be.
    named("veth", &digest[..8])
}

/// A name of as many hexadecimal digits as fit behind `word`.
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
        // No part holds a NUL, so no two lists of parts hash the same bytes.
        sha.update([0]);
    }
    sha.finalize().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A call for tests.
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
