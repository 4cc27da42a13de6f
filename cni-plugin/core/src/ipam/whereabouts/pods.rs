//! Pods of the cluster, as far as they tell which addresses are in use.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A pod that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPod {
    /// `namespace/name`, as in a `podref`.
    pub name: String,
    /// Its addresses, by the status that its meta plugin wrote; `None` before that.
    pub addresses: Option<BTreeSet<IpAddr>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Network {
    ips: Option<Vec<String>>,
}

impl FoundPod {
    /// Parses a list of objects. `status` is the key of the annotation with the pod's networks.
    pub fn parse_all(list: &[u8], status: &str) -> serde_json::Result<Vec<Self>> {
        let mut all = Vec::new();
        for Object { metadata } in serde_json::from_slice::<Vec<Object>>(list)? {
            let annotations = metadata.annotations.unwrap_or_default();
            all.push(Self {
                name: format!("{}/{}", metadata.namespace, metadata.name),
                addresses: annotations.get(status).and_then(|text| addresses(text)),
            });
        }
        Ok(all)
    }

    /// True if the pod has this address.
    pub fn has(&self, address: Option<IpAddr>) -> bool {
        let all = self.addresses.as_ref().zip(address);
        all.is_some_and(|(all, address)| all.contains(&address))
    }

    /// True if the pod can have this address: it has it, or the one or the other is not known.
    pub fn may_have(&self, address: Option<IpAddr>) -> bool {
        self.has(address) || self.addresses.is_none() || address.is_none()
    }
}

/// Returns the addresses of a pod's networks; `None` if it has none, as while its networks are attached.
fn addresses(status: &str) -> Option<BTreeSet<IpAddr>> {
    let networks: Vec<Network> = serde_json::from_str(status).ok()?;
    let ips = networks.into_iter().filter_map(|network| network.ips);
    let mut all = BTreeSet::new();
    for text in ips.flatten() {
        let address = text.split('/').next().unwrap_or_default();
        all.insert(address.parse().ok()?);
    }
    Some(all).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_has_the_addresses_of_its_status_or_any() {
        let pod = |status: &str| {
            let list = json!([{"metadata": {"namespace": "shop", "name": "web",
                "annotations": {"status": status}}}]);
            let all = FoundPod::parse_all(list.to_string().as_bytes(), "status");
            all.unwrap().remove(0)
        };
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let known = pod(r#"[{"ips": ["10.1.0.9"]}, {"name": "a"}, {"ips": ["10.0.0.5/24"]}]"#);
        assert_eq!(known.name, "shop/web");
        assert!(known.may_have(address(5)) && !known.may_have(address(6)));
        assert!(known.may_have(None), "an entry outside its range");
        for unknown in ["", "[]", r#"[{"ips": null}]"#, r#"[{"ips": ["x"]}]"#] {
            assert!(pod(unknown).may_have(address(6)), "{unknown}");
        }
        let bare = FoundPod::parse_all(br#"[{"metadata": {"name": "a"}}]"#, "status").unwrap();
        assert!(bare[0].may_have(address(6)));
    }
}
