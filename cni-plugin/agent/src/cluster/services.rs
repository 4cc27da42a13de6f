//! Ranges of Services: objects `ServiceCIDR`.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// Ranges of Services by name of the object.
#[derive(Debug, Default)]
pub struct Services {
    ranges: BTreeMap<String, Vec<IpNet>>,
    /// Objects of a list that is still arriving.
    arriving: BTreeMap<String, Vec<IpNet>>,
    is_known: bool,
}

impl Services {
    /// Updates the ranges. Returns true if one differs.
    pub fn update(&mut self, event: &Event<ServiceCIDR>) -> bool {
        match event {
            Event::Init => {
                self.arriving.clear();
                false
            }
            Event::InitApply(object) => {
                self.arriving.insert(name(object), ranges(object));
                false
            }
            Event::InitDone => {
                let arrived = std::mem::take(&mut self.arriving);
                let is_changed = !self.is_known || arrived != self.ranges;
                self.ranges = arrived;
                self.is_known = true;
                is_changed
            }
            Event::Apply(object) => {
                let ranges = ranges(object);
                let former = self.ranges.insert(name(object), ranges.clone());
                former != Some(ranges)
            }
            Event::Delete(object) => self.ranges.remove(&name(object)).is_some(),
        }
    }

    /// Goes on without the objects, until they arrive. Returns true if the agent waited for them.
    pub fn give_up(&mut self) -> bool {
        !std::mem::replace(&mut self.is_known, true)
    }

    /// True after the first complete list, or the first error.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns all ranges.
    pub fn ranges(&self) -> Vec<IpNet> {
        self.ranges.values().flatten().copied().collect()
    }
}

fn name(object: &ServiceCIDR) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn ranges(object: &ServiceCIDR) -> Vec<IpNet> {
    let texts = object
        .spec
        .iter()
        .flat_map(|spec| spec.cidrs.iter().flatten());
    let mut ranges = Vec::new();
    for text in texts {
        ranges.extend(text.parse::<IpNet>().map(|range| range.trunc()));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, ranges: &[&str]) -> ServiceCIDR {
        serde_json::from_value(json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": name},
            "spec": {"cidrs": ranges},
        }))
        .expect("an object")
    }

    #[test]
    fn ranges_follow_the_objects_and_a_server_without_them_is_no_reason_to_wait() {
        let mut services = Services::default();
        assert!(!services.is_known());
        assert!(services.give_up() && services.is_known() && !services.give_up());
        for (event, expected) in [
            (Event::Init, false),
            (
                Event::InitApply(object("a", &["10.96.0.0/16", "fd00:96::/112"])),
                false,
            ),
            (Event::InitDone, true),
            (
                Event::Apply(object("a", &["10.96.0.0/16", "fd00:96::/112"])),
                false,
            ),
            (Event::Apply(object("b", &["10.97.0.0/16", "none"])), true),
            (Event::Delete(object("a", &[])), true),
        ] {
            assert_eq!(services.update(&event), expected, "{event:?}");
        }
        assert_eq!(
            services.ranges(),
            ["10.97.0.0/16".parse().expect("a range")]
        );
    }
}
