//! Interfaces of running containers on claimed devices, from the records of calls.

use braid_core::dra::device_status::Interface;
use braid_core::k8s::claimed::ClaimedDevice;
use braid_node::store::holder::is_alive;
use braid_node::store::record::{ROOT, Record, each_in};
use std::collections::BTreeSet;
use std::path::Path;

/// Interfaces of running containers on claimed devices.
#[derive(Default)]
pub(super) struct Interfaces {
    pub(super) attached: Vec<(ClaimedDevice, Interface)>,
    /// Uids of claims while their container is attached or detached.
    pub(super) busy: BTreeSet<String>,
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
                let interface = Interface::of(&attached.ifname, &result);
                self.attached.push((device.clone(), interface));
            }
        }
    }
}
