//! Dynamic resource allocation: which devices of a pod's resource claims are for networks, and
//! under which resource.
//!
//! The kubelet says which devices a pod has, by driver, pool and name. Its driver says in
//! ResourceSlices what they are: a device with both attributes below is one for networks, as it is
//! to Multus 4.3.

use std::collections::BTreeMap;

/// The attribute with the device's id, as plugins take it.
pub const DEVICE_ID: &str = "k8s.cni.cncf.io/deviceID";
/// The attribute with the resource that NetworkAttachmentDefinitions name.
pub const RESOURCE: &str = "k8s.cni.cncf.io/resourceName";

/// A device that a claim of the pod has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The driver.
    pub driver: String,
    /// The driver's pool.
    pub pool: String,
    /// The device's name in the pool.
    pub device: String,
}

/// Devices that the kubelet gave a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// Ids of device plugins' devices, by resource.
    pub by_resource: BTreeMap<String, Vec<String>>,
    /// Devices of its resource claims.
    pub allocated: Vec<Allocated>,
}

/// A device of a ResourceSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// The pool.
    pub pool: String,
    /// The pool's generation: slices of older ones are void.
    pub generation: i64,
    /// The device's name in the pool.
    pub device: String,
    /// Its id; empty where it is none for networks.
    pub id: String,
    /// Its resource; empty where it is none for networks.
    pub resource: String,
}

impl Given {
    /// The drivers to ask where the devices of device plugins are fewer than `asked`, the resource
    /// of each network.
    pub fn drivers(&self, asked: &[Option<&str>]) -> Vec<String> {
        let wanted = |name: &str| asked.iter().filter(|other| **other == Some(name)).count();
        let has = |name: &str| self.by_resource.get(name).map_or(0, Vec::len);
        if asked.iter().flatten().all(|name| has(name) >= wanted(name)) {
            return Vec::new();
        }
        let mut drivers: Vec<String> = self
            .allocated
            .iter()
            .map(|device| device.driver.clone())
            .collect();
        drivers.sort_unstable();
        drivers.dedup();
        drivers
    }

    /// Takes over those of the claims' devices that `driver` offers for networks.
    pub fn learn(&mut self, driver: &str, offered: &[Offered]) {
        let newest = |pool: &str| {
            offered
                .iter()
                .filter(|one| one.pool == pool)
                .map(|one| one.generation)
                .max()
        };
        for Allocated { pool, device, .. } in self
            .allocated
            .iter()
            .filter(|device| device.driver == driver)
        {
            let generation = newest(pool);
            let is_it = |one: &&Offered| {
                one.pool == *pool && one.device == *device && Some(one.generation) == generation
            };
            // A graphics card has a claim as well.
            let found = offered
                .iter()
                .find(is_it)
                .filter(|one| !one.id.is_empty() && !one.resource.is_empty());
            if let Some(Offered { id, resource, .. }) = found {
                self.by_resource
                    .entry(resource.clone())
                    .or_default()
                    .push(id.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(text: &str) -> Allocated {
        let parts: Vec<&str> = text.split('/').collect();
        Allocated {
            driver: parts[0].to_owned(),
            pool: parts[1].to_owned(),
            device: parts[2].to_owned(),
        }
    }

    fn offered(device: &str, generation: i64, id: &str, resource: &str) -> Offered {
        let [pool, device, id, resource] = ["p", device, id, resource].map(str::to_owned);
        Offered {
            pool,
            generation,
            device,
            id,
            resource,
        }
    }

    #[test]
    fn d9_the_devices_of_claims_are_told_by_the_resource_that_their_driver_says() {
        let mut given = Given {
            by_resource: BTreeMap::from([("a/vf".to_owned(), vec!["0".to_owned()])]),
            allocated: [
                "nic/p/d1",
                "nic/p/d2",
                "nic/q/d1",
                "gpu/p/d1",
                "nic/p/none",
                "nic/p/card",
            ]
            .map(allocated)
            .to_vec(),
        };
        given.learn(
            "nic",
            &[
                offered("d1", 2, "1", "a/vf"),
                offered("d1", 1, "old", "a/vf"),
                offered("d2", 2, "2", "b/vf"),
                offered("d3", 2, "3", "b/vf"),
                offered("none", 1, "9", "a/vf"),
                offered("card", 2, "", ""),
            ],
        );
        let all = |resource: &str| given.by_resource[resource].join(" ");
        assert_eq!(
            (all("a/vf"), all("b/vf"), given.by_resource.len()),
            ("0 1".to_owned(), "2".to_owned(), 2)
        );
    }

    #[test]
    fn d9_drivers_are_asked_only_where_device_plugins_gave_too_few() {
        let given = Given {
            by_resource: BTreeMap::from([("a/vf".to_owned(), vec!["0".to_owned()])]),
            allocated: ["nic/p/d1", "nic/p/d2", "gpu/p/d1"].map(allocated).to_vec(),
        };
        for (asked, drivers) in [
            (&[None, Some("a/vf")][..], &[][..]),
            (&[Some("a/vf"), Some("a/vf")], &["gpu", "nic"]),
            (&[Some("b/vf")], &["gpu", "nic"]),
            (&[], &[]),
        ] {
            assert_eq!(given.drivers(asked), drivers, "{asked:?}");
        }
        assert_eq!(Given::default().drivers(&[Some("b/vf")]), [""; 0]);
    }
}
