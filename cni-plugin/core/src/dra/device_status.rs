//! Status of the devices of a claim, as the driver applies it to the claim.

use super::DRIVER;
use super::claim::{Claim, Share};
use super::slice::API_VERSION;
use crate::cni::AddResult;
use crate::k8s::claimed::ClaimedDevice;
use crate::name::IfName;
use serde_json::{Value, json};

/// Condition of a device.
const READY: &str = "Ready";
/// Addresses of a device that the API server accepts.
const MAX_ADDRESSES: usize = 16;
/// Maximum length in bytes of the name of a field manager.
const MAX_MANAGER: usize = 128;

/// Status of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    pool: String,
    device: String,
    share_id: Option<String>,
    /// Interface of the pod on the device, if it is attached.
    interface: Option<Interface>,
    /// Time of the last change between attached and not, as the API server writes times.
    since: String,
}

/// Interface of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    name: String,
    /// Addresses with their prefix length.
    ips: Vec<String>,
    /// Hardware address; empty if it has none.
    mac: String,
}

impl Interface {
    /// Returns the interface of an attachment with this result.
    pub fn of(name: &IfName, result: &AddResult) -> Self {
        let mut inside = result.interfaces.iter();
        let inside = inside.find(|interface| !interface.sandbox.is_empty());
        let ips = result.ips.iter().map(|ip| ip.address.to_string());
        Self {
            name: name.as_str().to_owned(),
            ips: ips.take(MAX_ADDRESSES).collect(),
            mac: inside.map_or_else(String::new, |interface| interface.mac.clone()),
        }
    }
}

impl DeviceStatus {
    /// True if the pod has an interface on the device.
    pub fn is_ready(&self) -> bool {
        self.interface.is_some()
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.pool, &self.device, &self.share_id) == (&other.pool, &other.device, &other.share_id)
    }

    /// Parses an item of `status.devices`; `None` for a device of another driver.
    fn parse(json: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if json["driver"] != DRIVER {
            return None;
        }
        let conditions = json["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == READY)?;
        let network = &json["networkData"];
        let ips = network["ips"].as_array().into_iter().flatten();
        let interface = (ready["status"] == "True").then(|| Interface {
            name: text(&network["interfaceName"]).unwrap_or_default(),
            ips: ips.filter_map(text).collect(),
            mac: text(&network["hardwareAddress"]).unwrap_or_default(),
        });
        Some(Self {
            pool: text(&json["pool"])?,
            device: text(&json["device"])?,
            share_id: text(&json["shareID"]),
            interface,
            since: text(&ready["lastTransitionTime"]).unwrap_or_default(),
        })
    }

    fn json(&self) -> Value {
        let (status, reason, message) = match &self.interface {
            Some(_) => ("True", "Attached", ""),
            None => (
                "False",
                "NotAttached",
                "the pod has no interface on the device",
            ),
        };
        let mut json = json!({
            "driver": DRIVER,
            "pool": self.pool,
            "device": self.device,
            "conditions": [{
                "type": READY,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": self.since,
            }],
        });
        if let Some(id) = &self.share_id {
            json["shareID"] = id.as_str().into();
        }
        if let Some(Interface { name, ips, mac }) = &self.interface {
            let mut network = json!({"interfaceName": name});
            if !ips.is_empty() {
                network["ips"] = json!(ips);
            }
            if !mac.is_empty() {
                network["hardwareAddress"] = mac.as_str().into();
            }
            json["networkData"] = network;
        }
        json
    }
}

/// Returns the status of each device of a claim. `attached` are the interfaces of pods on claimed devices,
/// and `before` is the status that the claim has. `now` is the present time.
pub fn statuses(
    claim: &Claim,
    attached: &[(ClaimedDevice, Interface)],
    before: &[DeviceStatus],
    now: &str,
) -> Vec<DeviceStatus> {
    let status = |share: &Share| {
        let claimed = share.claimed(&claim.name, &claim.uid);
        let found = attached.iter().find(|(device, _)| *device == claimed);
        let mut status = DeviceStatus {
            pool: share.pool.clone(),
            device: share.device.clone(),
            share_id: share.share_id.clone(),
            interface: found.map(|(_, interface)| interface.clone()),
            since: now.to_owned(),
        };
        let mut before = before.iter();
        let before = before.find(|before| before.is_of(&status));
        if let Some(before) = before.filter(|before| before.is_ready() == status.is_ready()) {
            status.since.clone_from(&before.since);
        }
        status
    };
    claim.shares.iter().map(status).collect()
}

/// Returns the status of this driver's devices in a `ResourceClaim`.
pub fn of_object(claim: &Value) -> Vec<DeviceStatus> {
    let devices = claim["status"]["devices"].as_array();
    let devices = devices.into_iter().flatten();
    devices.filter_map(DeviceStatus::parse).collect()
}

/// Returns the configuration to apply to the claim. It applies to the claim with this uid alone.
pub fn patch(claim: &Claim, statuses: &[DeviceStatus]) -> Value {
    let devices: Vec<Value> = statuses.iter().map(DeviceStatus::json).collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": claim.name.namespace,
            "name": claim.name.name,
            "uid": claim.uid,
        },
        "status": {"devices": devices},
    })
}

/// Returns the name of the field manager of a node: one each, so that a node keeps the devices of others.
pub fn manager(node: &str) -> String {
    let mut name = format!("braid-{node}");
    name.truncate(name.floor_char_boundary(MAX_MANAGER));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Json, Version};
    use crate::k8s::ObjectName;

    fn claim() -> Claim {
        let share = |request: &str, id: Option<&str>| Share {
            request: request.to_owned(),
            pool: "n1".to_owned(),
            device: "eth1".to_owned(),
            share_id: id.map(str::to_owned),
            bandwidth: None,
        };
        Claim {
            name: ObjectName {
                namespace: "web".to_owned(),
                name: "nic".to_owned(),
            },
            uid: "u".to_owned(),
            shares: vec![share("a", Some("1")), share("b", Some("2"))],
            configs: Vec::new(),
            pods: Vec::new(),
        }
    }

    fn attached(claim: &Claim, share: usize) -> (ClaimedDevice, Interface) {
        let result = r#"{"cniVersion":"1.1.0","interfaces":[{"name":"x","mac":"02:00:00:00:00:09"},
            {"name":"data0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/p"}],
            "ips":[{"address":"192.0.2.5/24","interface":1},{"address":"2001:db8::5/64"}]}"#;
        let result = Json::parse(result.as_bytes(), "test").expect("JSON");
        let result = AddResult::parse(&result, Version::NEWEST).expect("a result");
        let name = IfName::parse("data0").expect("a name");
        let device = claim.shares[share].claimed(&claim.name, &claim.uid);
        (device, Interface::of(&name, &result))
    }

    #[test]
    fn each_share_has_its_entry() {
        let claim = claim();
        let statuses = statuses(&claim, &[attached(&claim, 1)], &[], "T1");
        let ready: Vec<bool> = statuses.iter().map(DeviceStatus::is_ready).collect();
        assert_eq!(ready, [false, true]);
        let condition = |status, reason, message| {
            json!([{"type": "Ready", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "T1"}])
        };
        let missing = "the pod has no interface on the device";
        let patch = patch(&claim, &statuses);
        assert_eq!(
            patch,
            json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"namespace": "web", "name": "nic", "uid": "u"},
                "status": {"devices": [
                    {"driver": "braid.dev", "pool": "n1", "device": "eth1", "shareID": "1",
                     "conditions": condition("False", "NotAttached", missing)},
                    {"driver": "braid.dev", "pool": "n1", "device": "eth1", "shareID": "2",
                     "conditions": condition("True", "Attached", ""),
                     "networkData": {"interfaceName": "data0", "hardwareAddress": "02:00:00:00:00:01",
                        "ips": ["192.0.2.5/24", "2001:db8::5/64"]}},
                ]},
            })
        );
        assert_eq!(of_object(&patch), statuses, "a round trip");
    }

    #[test]
    fn each_whole_device_of_a_request_has_its_interface() {
        let mut claim = claim();
        for (share, device) in claim.shares.iter_mut().zip(["eth1-whole", "eth2-whole"]) {
            share.request = "a".to_owned();
            share.device = device.to_owned();
            share.share_id = None;
        }
        let second = [attached(&claim, 1)];
        let ready = statuses(&claim, &second, &[], "T1");
        let ready: Vec<bool> = ready.iter().map(DeviceStatus::is_ready).collect();
        assert_eq!(ready, [false, true]);
        claim.shares[1].pool = "n2".to_owned();
        let of_other_pool = statuses(&claim, &second, &[], "T1");
        assert!(of_other_pool.iter().all(|status| !status.is_ready()));
    }

    #[test]
    fn the_time_changes_with_the_condition_alone() {
        let claim = claim();
        let both = [attached(&claim, 0), attached(&claim, 1)];
        let before = statuses(&claim, &both[1..], &[], "T1");
        let after = statuses(&claim, &both, &before, "T2");
        let times: Vec<&str> = after.iter().map(|status| &*status.since).collect();
        assert_eq!(times, ["T2", "T1"]);
        assert_eq!(statuses(&claim, &both, &after, "T3"), after);
        // The interface of an earlier claim of this name.
        let mut old = both;
        for (device, _) in &mut old {
            device.claim_uid = "old".to_owned();
        }
        let none = statuses(&claim, &old, &after, "T4");
        assert!(none.iter().all(|status| !status.is_ready()), "{none:?}");
    }

    #[test]
    fn a_field_manager_has_a_bounded_name() {
        assert_eq!(manager("n1"), "braid-n1");
        assert_eq!(manager(&"n".repeat(253)).len(), MAX_MANAGER);
    }
}
