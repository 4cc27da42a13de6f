//! Flannel's annotations of a Node: the address and the VXLAN link through which other nodes reach
//! its pods.

use braid_core::name::Mac;
use ipnet::IpNet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Start of the names of flannel's annotations.
pub const PREFIX: &str = "flannel.alpha.coreos.com/";
/// Backend: `vxlan`, `host-gw` or another one.
pub const BACKEND_TYPE: &str = "backend-type";
/// `true` on a node with ranges from Kubernetes.
pub const MANAGED: &str = "kube-subnet-manager";
/// Longest value that is read.
const LONGEST: usize = 256;

/// Family of addresses. Flannel has a link and annotations for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// True if the address is of the family.
    pub fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// True if the range is of the family.
    pub fn has_range(self, range: &IpNet) -> bool {
        self.has(range.addr())
    }

    /// Name of the annotation with the MAC of the VXLAN link.
    pub fn data(self) -> &'static str {
        match self {
            Self::V4 => "backend-data",
            Self::V6 => "backend-v6-data",
        }
    }

    /// Name of the annotation with the node's address.
    pub fn public(self) -> &'static str {
        match self {
            Self::V4 => "public-ip",
            Self::V6 => "public-ipv6",
        }
    }

    /// Name of the annotation by which an administrator sets the published address.
    pub fn overwrite(self) -> &'static str {
        match self {
            Self::V4 => "public-ip-overwrite",
            Self::V6 => "public-ipv6-overwrite",
        }
    }
}

/// Flannel's annotations, by the part of the name after [`PREFIX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations(BTreeMap<String, String>);

/// Value of `backend-data`.
#[derive(Deserialize)]
struct Data {
    #[serde(rename = "VNI")]
    vni: u32,
    #[serde(rename = "VtepMAC")]
    mac: String,
}

impl Annotations {
    /// Picks flannel's annotations.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let mut found = BTreeMap::new();
        for (name, value) in annotations {
            if let Some(name) = name.strip_prefix(PREFIX)
                && value.len() <= LONGEST
            {
                found.insert(name.to_owned(), value.clone());
            }
        }
        Self(found)
    }

    /// Returns a value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the backend of a node that takes part in the network.
    pub fn backend(&self) -> Option<&str> {
        let is_managed = self.get(MANAGED) == Some("true");
        self.get(BACKEND_TYPE).filter(|_| is_managed)
    }

    /// Returns the published address of the node.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        let address = self.get(family.public())?.parse().ok();
        address.filter(|address| family.has(*address))
    }

    /// Returns the MAC of the node's VXLAN link.
    pub fn mac(&self, family: Family) -> Option<Mac> {
        let mac = Mac::parse(&self.data(family)?.mac)?;
        let is_unicast = mac != Mac([0; 6]) && mac.0[0] & 1 == 0;
        is_unicast.then_some(mac)
    }

    /// Returns the VXLAN network identifier.
    pub fn vni(&self) -> Option<u32> {
        let mut families = Family::ALL.iter();
        families.find_map(|family| Some(self.data(*family)?.vni))
    }

    fn data(&self, family: Family) -> Option<Data> {
        serde_json::from_str(self.get(family.data())?).ok()
    }
}

/// Returns the value of `backend-data`, as flanneld writes and parses it: without spaces.
pub fn data(vni: u32, mac: Mac) -> String {
    format!(r#"{{"VNI":{vni},"VtepMAC":"{mac}"}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        let mut all = BTreeMap::from([("volumes".to_owned(), "x".to_owned())]);
        for (name, value) in pairs {
            all.insert(format!("{PREFIX}{name}"), (*value).to_owned());
        }
        Annotations::of(&all)
    }

    #[test]
    fn annotations_of_flanneld_name_backend_address_and_mac() {
        let found = annotations(&[
            ("backend-type", "vxlan"),
            ("kube-subnet-manager", "true"),
            ("backend-data", r#"{"VNI":7,"VtepMAC":"5a:d3:88:00:00:01"}"#),
            ("public-ip", "192.0.2.7"),
            ("public-ipv6", "fd99::7"),
        ]);
        let mac = Mac([0x5a, 0xd3, 0x88, 0, 0, 1]);
        assert_eq!(found.backend(), Some("vxlan"));
        assert_eq!((found.vni(), found.mac(Family::V4)), (Some(7), Some(mac)));
        assert_eq!(found.address(Family::V4), "192.0.2.7".parse().ok());
        assert_eq!(found.address(Family::V6), "fd99::7".parse().ok());
        assert_eq!(found.mac(Family::V6), None);
        assert_eq!(data(7, mac), found.get("backend-data").expect("its data"));
    }

    #[test]
    fn values_of_strangers_are_not_taken() {
        for mac in ["01:00:5e:00:00:01", "00:00:00:00:00:00", "; reboot", ""] {
            let value = format!(r#"{{"VNI":1,"VtepMAC":"{mac}"}}"#);
            let found = annotations(&[("backend-data", &value), ("public-ip", "fd99::1")]);
            assert_eq!(found.mac(Family::V4), None, "{mac}");
            assert_eq!(found.address(Family::V4), None);
        }
        let unmanaged = annotations(&[("backend-type", "vxlan")]);
        assert_eq!(unmanaged.backend(), None);
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(annotations(&[("backend-type", &long)]), annotations(&[]));
    }
}
