//! Use of networks on this node: attachments, and addresses of each `host-local` range.

use super::chain::{BRAID, Chain};
use super::recorded;
use crate::ipam::host_local::HostLocalConfig;
use crate::ipam::host_local::store::leased;
use crate::store::record::{Attached, Record};
use braid_core::cni::{Json, NetConf};
use braid_core::ipam::range::{Range, RangeSet, to_bits};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Most addresses that a range counts as.
const MOST_ADDRESSES: u64 = 65_536;
/// Most ranges of a node. Further ones are left out, since strangers write networks.
const MOST_RANGES: usize = 1_024;

/// Networks of this node, by name.
#[derive(Debug, Default)]
pub struct Usage {
    /// Attachments of each network.
    pub attachments: BTreeMap<String, u64>,
    /// Addresses of each range, by the names of network and range.
    pub ranges: BTreeMap<(String, String), Addresses>,
}

/// Reader of the use of networks.
#[derive(Debug, Default)]
pub struct UsageReader {
    usage: Usage,
    /// Leased addresses by data directory.
    leased: HashMap<PathBuf, Vec<IpAddr>>,
    /// Configuration that was read last, by network. Pods of a network usually have the same.
    seen: HashMap<String, Rc<Json>>,
}

/// Addresses of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Leased addresses.
    pub used: u64,
    /// Addresses that an ADD could get.
    pub free: u64,
}

impl UsageReader {
    /// Returns the use of the networks that were added.
    pub fn usage(self) -> Usage {
        self.usage
    }

    /// Adds a network that is on the node without an attachment, from its configuration for `braid`.
    pub fn add_network(&mut self, conf: NetConf) {
        self.usage.attachments.entry(conf.name.clone()).or_default();
        let chain = Chain::parse(BRAID, conf.clone(), "", &[])
            .or_else(|_| Chain::parse_for_release(BRAID, conf, "", &[]));
        if let Ok(chain) = chain {
            self.add_ranges(&chain);
        }
    }

    /// Adds the attachments of a record, and the ranges of their networks.
    pub fn add_record(&mut self, record: &Record) {
        for attached in &record.attachments {
            let count = self.usage.attachments.entry(attached.network.clone());
            *count.or_default() += 1;
            if self.is_seen(attached) {
                continue;
            }
            if let Ok(chain) = recorded::chain_of(attached, &record.path) {
                self.add_seen(&chain);
            }
        }
    }

    /// True if the configuration is the one of the last attachment of this network.
    fn is_seen(&mut self, attached: &Attached) -> bool {
        let before = self
            .seen
            .insert(attached.network.clone(), Rc::clone(&attached.conf));
        before.is_some_and(|before| before == attached.conf)
    }

    /// Adds the ranges whose leases can be read. An attachment has a lease, so a folder that is missing
    /// is one that this process does not see.
    fn add_seen(&mut self, chain: &Chain) {
        for (_, config) in recorded::host_locals(chain) {
            if config.path().exists() {
                self.add_config(chain.network(), config);
            }
        }
    }

    fn add_ranges(&mut self, chain: &Chain) {
        for (_, config) in recorded::host_locals(chain) {
            self.add_config(chain.network(), config);
        }
    }

    fn add_config(&mut self, network: &str, config: &HostLocalConfig) {
        // An unreadable folder has no leases that a call could find.
        let read = |path: &PathBuf| leased(path).unwrap_or_default();
        let path = config.path();
        let leased = self
            .leased
            .entry(path.clone())
            .or_insert_with(|| read(&path));
        for range in config.ranges.iter().flat_map(RangeSet::ranges) {
            let key = (network.to_owned(), range.to_string());
            let ranges = &mut self.usage.ranges;
            if ranges.contains_key(&key) || ranges.len() < MOST_RANGES {
                ranges.insert(key, addresses(range, leased));
            }
        }
    }
}

/// Counts the addresses of a range.
fn addresses(range: &Range, leased: &[IpAddr]) -> Addresses {
    let [first, last] = [range.range_start(), range.range_end()].map(to_bits);
    let has_gateway = range.gateway().is_some_and(|ip| range.contains(ip));
    let size = (last - first)
        .saturating_add(1)
        .saturating_sub(has_gateway.into());
    let size = u64::try_from(size).unwrap_or(u64::MAX).min(MOST_ADDRESSES);
    let used = leased.iter().filter(|ip| range.contains(**ip)).count() as u64;
    Addresses {
        used,
        free: size.saturating_sub(used),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Key;
    use braid_core::cni::Attachment;
    use braid_core::cni::Owner;
    use braid_core::ipam::range::RangeSpec;
    use braid_core::name::IfName;
    use std::fs;

    fn range(subnet: &str, start: Option<&str>, gateway: Option<&str>) -> Range {
        let ip = |text: Option<&str>| text.map(|text| text.parse().expect("an address"));
        let spec = RangeSpec {
            subnet: Some(subnet.parse().expect("a subnet")),
            range_start: ip(start),
            range_end: None,
            gateway: ip(gateway),
        };
        Range::new(&spec).expect("a range")
    }

    #[test]
    fn a_range_counts_its_addresses_without_the_gateway_and_at_most_65_536() {
        let leased = ["10.1.0.2", "10.1.0.200", "10.2.0.2", "2001:db8::2"];
        let leased = leased.map(|ip| ip.parse().expect("an address"));
        for (range, used, free) in [
            (range("10.1.0.0/24", None, None), 2, 251),
            (range("10.1.0.0/24", Some("10.1.0.100"), None), 1, 154),
            (range("10.1.0.0/24", None, Some("10.9.0.1")), 2, 252),
            (range("10.3.0.0/31", None, None), 0, 2),
            (range("10.0.0.0/15", None, None), 2, 65_534),
            (range("2001:db8::/64", None, None), 1, 65_535),
            (range("8000::/1", None, None), 0, 65_536),
        ] {
            let found = addresses(&range, &leased);
            assert_eq!(found, Addresses { used, free }, "{range}");
        }
    }

    #[test]
    fn the_nodes_network_has_its_range_before_the_first_pod_and_records_add_theirs() {
        let dir = tempfile::tempdir().expect("a folder");
        let conf = |name: &str| {
            let ipam = format!(
                r#"{{"type":"host-local","dataDir":{:?},"subnet":"10.1.0.0/29"}}"#,
                dir.path().display().to_string()
            );
            let text = format!(
                r#"{{"cniVersion":"1.1.0","name":"{name}","type":"braid","plugins":[{{"type":"ptp","ipam":{ipam}}}]}}"#
            );
            Json::parse(text.as_bytes(), "test").expect("JSON")
        };
        let mut reader = UsageReader::default();
        reader.add_network(NetConf::from_json(conf("pods")).expect("a configuration"));
        let key = |name: &str| (name.to_owned(), "10.1.0.1-10.1.0.6".to_owned());
        let free = |used, free| Some(Addresses { used, free });
        assert_eq!(reader.usage.attachments.get("pods"), Some(&0));
        assert_eq!(reader.usage.ranges.get(&key("pods")).copied(), free(0, 5));

        fs::create_dir(dir.path().join("lan")).expect("a folder");
        for file in ["10.1.0.2", "10.1.0.3", "lock", "last_reserved_ip.0"] {
            fs::write(dir.path().join("lan").join(file), "c\r\neth0").expect("a lease");
        }
        let ifname = IfName::parse("eth0").expect("a name");
        let attachment = Attachment {
            container_id: "c".to_owned(),
            ifname,
            netns: None,
            args: String::new(),
        };
        let attached = Attached::new("lan", BRAID, &attachment, conf("lan").into());
        let key_of_record = Key {
            owner: Owner::new("lan", "c", "eth0"),
            plugin: BRAID.to_owned(),
        };
        for _ in 0..2 {
            let record = Record::new(key_of_record.clone(), None, vec![attached.clone()]);
            reader.add_record(&record);
        }
        let usage = reader.usage();
        assert_eq!(usage.attachments.get("lan"), Some(&2));
        assert_eq!(usage.ranges.get(&key("lan")).copied(), free(2, 3));
        assert_eq!(usage.ranges.len(), 2);
    }
}
