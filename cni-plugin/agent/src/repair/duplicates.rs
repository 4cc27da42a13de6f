//! IPv6 addresses of pods that another host has: each is reported once, until its detection succeeds.

use braid_core::k8s::settings::PodRef;
use braid_node::apply::host::Machine;
use braid_node::attach::duplicates::{self, Detection, Duplicate};
use braid_node::store::holder::is_alive;
use braid_node::store::record::{Attached, Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of early looks at a container with an open detection. Without a carrier, a detection
/// does not end.
const OPEN_LOOKS: u32 = 10;

/// A new duplicate.
#[derive(Debug)]
pub(super) struct News {
    pub(super) container_id: String,
    pub(super) pod: Option<PodRef>,
    duplicate: Duplicate,
}

impl News {
    /// Returns the text of the event.
    pub(super) fn sentence(&self) -> String {
        let Duplicate {
            network,
            ifname,
            address,
        } = &self.duplicate;
        format!(
            "address {address} of {ifname}, network {network:?}, is used by another host: IPv6 \
             duplicate address detection failed"
        )
    }
}

/// Duplicates as of the last look, by container, network, interface and plugin of the record.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    known: BTreeMap<[String; 4], Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    duplicates: BTreeSet<Duplicate>,
    /// Number of looks since the detection began.
    looks: u32,
    is_open: bool,
}

impl Duplicates {
    /// True if a detection is about to end.
    pub(super) fn is_open(&self) -> bool {
        let mut known = self.known.values();
        known.any(|known| known.is_open && known.looks < OPEN_LOOKS)
    }

    /// Looks at the containers of all records, and returns new duplicates.
    pub(super) fn look(&mut self, records: &[Record], machine: &dyn Machine) -> Vec<News> {
        let before = std::mem::take(&mut self.known);
        let mut news = Vec::new();
        for record in records.iter().filter(|record| is_alive(record)) {
            let Key { owner, plugin } = &record.key;
            let key = [&owner.container_id, &owner.network, &owner.ifname, plugin];
            let key = key.map(Clone::clone);
            let mut known = before.get(&key).cloned().unwrap_or_default();
            match duplicates::look(record, machine) {
                Ok(detection) => {
                    let first = record.attachments.first();
                    news.extend(known.take(detection).into_iter().map(|duplicate| News {
                        container_id: owner.container_id.clone(),
                        pod: first.and_then(Attached::pod),
                        duplicate,
                    }));
                }
                Err(err) => tracing::warn!(
                    container = owner.container_id,
                    error = %err,
                    "read the addresses of a pod"
                ),
            }
            self.known.insert(key, known);
        }
        news
    }
}

impl Known {
    /// Takes in a detection, and returns the duplicates that it has not had before.
    fn take(&mut self, detection: Detection) -> Vec<Duplicate> {
        self.is_open = detection.is_open;
        self.looks = if self.is_open { self.looks + 1 } else { 0 };
        let duplicates: BTreeSet<Duplicate> = detection.duplicates.into_iter().collect();
        let new = duplicates.difference(&self.duplicates).cloned().collect();
        self.duplicates = duplicates;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detection(addresses: &[&str], is_open: bool) -> Detection {
        let duplicate = |address: &&str| Duplicate {
            network: "lan".to_owned(),
            ifname: "net1".to_owned(),
            address: address.parse().expect("an address"),
        };
        Detection {
            duplicates: addresses.iter().map(duplicate).collect(),
            is_open,
        }
    }

    #[test]
    fn a_duplicate_is_news_once_until_it_is_over() {
        let mut known = Known::default();
        let mut news = |addresses: &[&str]| known.take(detection(addresses, false)).len();
        assert_eq!(news(&["fd41::5"]), 1);
        assert_eq!(news(&["fd41::5"]), 0);
        assert_eq!(news(&["fd41::5", "fd41::6"]), 1);
        assert_eq!(news(&[]), 0);
        assert_eq!(news(&["fd41::5"]), 1);
    }

    #[test]
    fn a_detection_that_does_not_end_is_no_longer_awaited() {
        let mut duplicates = Duplicates::default();
        let key = ["a", "lan", "net1", "macvlan"].map(str::to_owned);
        let mut is_awaited = |is_open| {
            let known = duplicates.known.entry(key.clone()).or_default();
            known.take(detection(&[], is_open));
            duplicates.is_open()
        };
        assert!(!is_awaited(false));
        let awaited: Vec<bool> = (0..11).map(|_| is_awaited(true)).collect();
        assert_eq!(awaited, [[true; 9].as_slice(), &[false; 2]].concat());
        assert!(!is_awaited(false) && is_awaited(true), "another detection");
    }

    #[test]
    fn an_event_names_interface_address_and_network() {
        let news = News {
            container_id: "a".to_owned(),
            pod: None,
            duplicate: detection(&["fd41::5"], false).duplicates.remove(0),
        };
        assert_eq!(
            news.sentence(),
            "address fd41::5 of net1, network \"lan\", is used by another host: IPv6 duplicate \
             address detection failed"
        );
    }
}
