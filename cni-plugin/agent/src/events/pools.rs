//! Events about pools of addresses that run short, or that Whereabouts uses again: one for each time, on a
//! network that uses the pool, or else on the Node.

use super::networks::of_network;
use super::{ACTION, Post, Text};
use crate::cluster::objects::Objects;
use braid_core::cni::{Json, NetConf};
use braid_core::ipam::whereabouts::WhereaboutsConfig;
use braid_core::ipam::whereabouts::journal::Place;
use braid_core::ipam::whereabouts::pool::Node;
use braid_core::ipam::whereabouts::usage::Usage;
use braid_core::k8s::nad::Definition;
use braid_core::k8s::{ObjectName, object};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;

/// IPAM type of networks with pools.
const WHEREABOUTS: &str = "whereabouts";

/// Fault of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It runs short.
    Short,
    /// It is braid's alone, and Whereabouts uses it.
    Intruded,
}

impl Fault {
    const ALL: [Self; 2] = [Self::Short, Self::Intruded];

    /// True if the pool has the fault now. It `had` it before, or not.
    fn is_of(self, usage: &Usage, had: bool) -> bool {
        match self {
            Self::Short => usage.is_short(had),
            Self::Intruded => usage.is_intruded(),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Short => "AddressesRunOut",
            Self::Intruded => "WhereaboutsReturned",
        }
    }

    /// Returns a sentence about the fault.
    pub fn note(self, usage: &Usage) -> String {
        match self {
            Self::Short => usage.shortage(),
            Self::Intruded => usage.intrusion(),
        }
    }
}

/// Faults of pools.
#[derive(Debug, Default)]
pub struct PoolBook {
    /// Each with the pool's name.
    known: BTreeSet<(Fault, String)>,
}

impl PoolBook {
    /// Returns the faults that a pool did not have before, if this node reports about the pool.
    pub fn news<'u>(&mut self, usages: impl Iterator<Item = &'u Usage>) -> Vec<(Fault, &'u Usage)> {
        let before = std::mem::take(&mut self.known);
        let mut news = Vec::new();
        for usage in usages {
            for fault in Fault::ALL {
                let key = (fault, usage.place.name.clone());
                let had = before.contains(&key);
                if fault.is_of(usage, had) {
                    self.known.insert(key);
                    if !had && usage.is_reporter {
                        news.push((fault, usage));
                    }
                }
            }
        }
        news
    }
}

/// Returns the event about a fault of a pool. `networks` are all networks.
pub fn post(
    (fault, usage): (Fault, &Usage),
    networks: &Objects,
    node: &Node,
    now: Timestamp,
) -> Post {
    let users = networks
        .all()
        .find(|(name, entry)| uses(name, &entry.text, &usage.place));
    let regarding = match users {
        Some((name, entry)) => of_network(name, &entry.uid),
        None => ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        },
    };
    let text = Text {
        action: ACTION,
        kind: "Warning",
        reason: fault.reason(),
        note: &fault.note(usage),
    };
    let event = text.event(regarding, &node.name, now);
    Post { event }
}

/// True if a network, as the API server has it, has its addresses in a pool.
fn uses(name: &ObjectName, text: &str, place: &Place) -> bool {
    // Most networks need no parser.
    if !text.contains(WHEREABOUTS) {
        return false;
    }
    let Ok(nad) = object::nad(name, text.as_bytes()) else {
        return false;
    };
    let json = Json::parse(nad.config.as_bytes(), "spec.config");
    let definition = json.and_then(|json| Definition::parse(json, &name.name));
    definition.is_ok_and(|definition| {
        let mut plugins = definition.plugins().iter();
        plugins.any(|plugin| has_pool(plugin.clone(), &definition, place))
    })
}

fn has_pool(mut plugin: Json, definition: &Definition, place: &Place) -> bool {
    plugin.set("name", definition.name());
    plugin.set("cniVersion", definition.version().as_str());
    let Ok(conf) = NetConf::from_json(plugin) else {
        return false;
    };
    let config = WhereaboutsConfig::parse_for_release(&conf);
    conf.ipam == WHEREABOUTS && config.is_ok_and(|config| config.has_pool(place))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cluster::networks::NetworkObject;
    use braid_core::ipam::whereabouts::PoolRange;
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use std::path::PathBuf;

    /// Returns the use of a pool of 20 addresses with a held one.
    pub(crate) fn usage(used: u8, is_reporter: bool) -> Usage {
        let net = "10.0.0.0/24".parse().expect("a network");
        Usage {
            place: Place {
                name: "10.0.0.0-24".to_owned(),
                net,
                network: String::new(),
                has_reservations: true,
                kubeconfig: PathBuf::new(),
            },
            range: PoolRange {
                net,
                prefix_len: 24,
                first: [10, 0, 0, 1].into(),
                last: [10, 0, 0, 20].into(),
                exclude: Vec::new(),
                gateway: None,
            },
            used: used.into(),
            held: 1,
            claimed: 0,
            foreign: 0,
            free: u128::from(19 - used),
            is_reporter,
            is_exclusive: false,
        }
    }

    #[test]
    fn a_pool_is_news_once_until_it_has_had_enough_addresses() {
        let mut book = PoolBook::default();
        let mut is_news = |used: u8, is_reporter: bool| {
            let usage = usage(used, is_reporter);
            !book.news([&usage].into_iter()).is_empty()
        };
        assert!(!is_news(17, true));
        assert!(is_news(18, true));
        assert!(!is_news(19, true) && !is_news(17, true) && !is_news(18, true));
        assert!(!is_news(16, true) && is_news(18, true), "it was below 85 %");
        assert!(!is_news(16, false) && !is_news(18, false), "another node");
        assert!(!is_news(18, true), "that node has reported");
        assert!(book.news([].into_iter()).is_empty());
        assert_eq!(book.known, BTreeSet::new());
        let alone = Usage {
            is_exclusive: true,
            foreign: 1,
            ..usage(1, true)
        };
        assert_eq!(book.news([&alone].into_iter()), [(Fault::Intruded, &alone)]);
        assert!(book.news([&alone].into_iter()).is_empty());
    }

    #[test]
    fn an_event_is_about_a_network_of_the_pool_or_else_the_node() {
        let node = Node {
            name: "n1".to_owned(),
            uid: "u1".to_owned(),
            boot: "b1".to_owned(),
        };
        let mut networks = Objects::default();
        let now = Timestamp::UNIX_EPOCH;
        let mut about = |name: &str, config: &str| {
            let object = json!({
                "metadata": {"name": name, "namespace": "lans", "uid": name},
                "spec": {"config": config},
            });
            let object: NetworkObject = serde_json::from_value(object).expect("a network");
            networks.update(&Event::Apply(object));
            let event = post((Fault::Short, &usage(18, true)), &networks, &node, now).event;
            let regarding = event.regarding.expect("an object");
            let [kind, name] = [regarding.kind, regarding.name].map(Option::unwrap_or_default);
            format!("{kind} {name} in {:?}", event.metadata.namespace)
        };
        let of_node = "Node n1 in Some(\"default\")";
        let ipam = |range: &str| {
            let ipam = json!({"type": "whereabouts", "range": range});
            json!({"plugins": [{"type": "macvlan", "ipam": ipam}]}).to_string()
        };
        assert_eq!(about("a", &ipam("10.1.0.0/24")), of_node, "another pool");
        assert_eq!(about("b", "whereabouts {"), of_node);
        let expected = "NetworkAttachmentDefinition c in Some(\"lans\")";
        assert_eq!(about("c", &ipam("10.0.0.1-10.0.0.20/24")), expected);
    }
}
