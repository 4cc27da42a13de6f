//! Interfaces of running containers on claimed devices, from the records of calls.

use braid_core::dra::claim::Claim;
use braid_core::dra::device_status::Interface;
use braid_core::k8s::claimed::ClaimedDevice;
use braid_node::store::holder::is_alive;
use braid_node::store::record::{ROOT, Record, each_in};
use std::collections::BTreeSet;
use std::path::Path;

/// Interfaces of running containers on claimed devices.
#[derive(Default)]
pub(super) struct Interfaces {
    pub(super) attached: Vec<Attached>,
    /// Uids of claims while their container is attached or detached.
    pub(super) busy: BTreeSet<String>,
}

/// Interface of a pod on a claimed device.
pub(super) struct Attached {
    /// Uid of the pod; `None` if the runtime has not passed it.
    pub(super) pod: Option<String>,
    pub(super) device: ClaimedDevice,
    pub(super) interface: Interface,
}

impl Interfaces {
    /// Reads the records; `None` if they can't be read.
    pub(super) fn read() -> Option<Self> {
        let mut found = Self::default();
        let read = each_in(Path::new(ROOT), |record, is_idle| {
            found.add(record, is_idle);
        });
        read.ok().map(|_| found)
    }

    fn add(&mut self, record: &Record, is_idle: bool) {
        for attached in &record.attachments {
            let Some(device) = &attached.claimed else {
                continue;
            };
            if !is_idle {
                self.busy.insert(device.claim_uid.clone());
            } else if is_alive(record)
                && !attached.is_unsettled
                && let Some(Ok(result)) = attached.result()
            {
                self.attached.push(Attached {
                    pod: attached.pod().and_then(|pod| pod.uid),
                    device: device.clone(),
                    interface: Interface::of(&attached.ifname, &result),
                });
            }
        }
    }

    /// Returns the interfaces of the pod that the claim is reserved for.
    pub(super) fn of(&self, claim: &Claim) -> Vec<(ClaimedDevice, Interface)> {
        let first = claim.pods.first();
        let mut found = Vec::new();
        for one in self.on(&claim.uid) {
            let pods = first.zip(one.pod.as_ref());
            if pods.is_none_or(|(first, pod)| first.uid == *pod) {
                found.push((one.device.clone(), one.interface.clone()));
            }
        }
        found
    }

    /// Returns the devices that the pod of a claim has alone. Their links are in its namespace.
    pub(super) fn alone(&self, claim: &Claim) -> Vec<String> {
        let mut devices = Vec::new();
        for (device, _) in self.of(claim) {
            if device.share_id.is_none() {
                devices.push(device.device);
            }
        }
        devices
    }

    /// Returns the uids of the pods that have interfaces on the devices of a claim.
    pub(super) fn pods(&self, claim_uid: &str) -> impl Iterator<Item = &str> {
        self.on(claim_uid).filter_map(|one| one.pod.as_deref())
    }

    fn on(&self, claim_uid: &str) -> impl Iterator<Item = &Attached> {
        let attached = self.attached.iter();
        attached.filter(move |one| one.device.claim_uid == claim_uid)
    }
}
