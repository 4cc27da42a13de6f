//! Dynamic resource allocation: the network devices that are allocated to a pod's resource claims,
//! and the resource name of each device.
//!
//! The kubelet reports the devices of a pod by driver, pool and name. The driver publishes their
//! attributes in ResourceSlices. A device with the attributes [`DEVICE_ID`] and [`RESOURCE`] is a
//! network device, as in Multus 4.3.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// ResourceSlice attribute with the device id that CNI plugins take.
pub const DEVICE_ID: &str = "k8s.cni.cncf.io/deviceID";
/// ResourceSlice attribute with the resource name that NetworkAttachmentDefinitions refer to.
pub const RESOURCE: &str = "k8s.cni.cncf.io/resourceName";

/// A device allocated to a resource claim of the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// Driver name.
    pub driver: String,
    /// Pool of the driver that contains the device.
    pub pool: String,
    /// Device name in the pool.
    pub device: String,
}

/// Devices that the kubelet assigned to a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Device ids by resource name. These are the devices of device plugins. [`Given::learn`] adds
    /// the devices of claims.
    pub by_resource: BTreeMap<String, Vec<String>>,
    /// Devices allocated to the pod's resource claims.
    pub allocated: Vec<Allocated>,
}

/// A device that a driver publishes in a ResourceSlice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Pool of the driver that contains the device.
    pub pool: String,
    /// Generation of the pool. Only slices of the newest generation are valid.
    pub generation: i64,
    /// Device name in the pool.
    pub device: String,
    /// Value of [`DEVICE_ID`]; empty if the device is not a network device.
    pub id: String,
    /// Value of [`RESOURCE`]; empty if the device is not a network device.
    pub resource: String,
}

impl Given {
    /// Returns the drivers to query for their devices. `asked` has the resource that each network
    /// needs. The list is empty if device plugins already provide enough devices.
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

    /// Adds the network devices of `driver` that are allocated to the pod's claims. `offered` has
    /// the devices that `driver` publishes.
    pub fn learn(&mut self, driver: &str, offered: &[Offered]) {
        let newest = |pool: &str| {
            offered
                .iter()
                .filter(|one| one.pool == pool)
                .map(|one| one.generation)
                .max()
        };
        for allocated in &self.allocated {
            if allocated.driver != driver {
                continue;
            }
            let Allocated { pool, device, .. } = allocated;
            let generation = newest(pool);
            let is_it = |one: &&Offered| {
                one.pool == *pool && one.device == *device && Some(one.generation) == generation
            };
            // Claims also allocate other devices, such as graphics cards.
            if let Some(Offered { id, resource, .. }) = offered.iter().find(is_it)
                && !id.is_empty()
                && !resource.is_empty()
            {
                let ids = self.by_resource.entry(resource.clone()).or_default();
                ids.push(id.clone());
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

    // Conformance: D9
    #[test]
    fn devices_of_claims_are_found_by_the_resource_in_their_slice() {
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
        let ids = |resource: &str| given.by_resource[resource].join(" ");
        assert_eq!(
            (ids("a/vf"), ids("b/vf"), given.by_resource.len()),
            ("0 1".to_owned(), "2".to_owned(), 2)
        );
    }

    // Conformance: D9
    #[test]
    fn drivers_are_queried_only_if_device_plugins_gave_too_few() {
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
