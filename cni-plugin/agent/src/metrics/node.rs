//! State of the node, read from its disk and kernel for a scrape: attachments, addresses, shaping.
//!
//! A pod that is gone is in no later state, so its series go with it.

use braid_core::cni::Error;
use braid_node::attach::call_conf;
use braid_node::attach::shaped::{self, Direction};
use braid_node::attach::usage::{Usage, UsageReader};
use braid_node::log::Log;
use braid_node::store::record::{self, Attached, Record};
use std::collections::BTreeMap;
use std::path::Path;

/// State of the node.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    pub(super) usage: Usage,
    pub(super) shaped: BTreeMap<Shaped, Passed>,
}

/// A shaped direction of a pod's interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shaped {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) interface: String,
    pub(super) direction: &'static str,
}

/// Counters of a shaped direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

impl NodeState {
    /// Reads the state. The network of `conflist`, the node's conflist, counts before the first pod.
    pub(super) fn read(conflist: &Path) -> Result<Self, Error> {
        let (mut state, mut usage) = (Self::default(), UsageReader::default());
        if let Some(conf) = call_conf::read(conflist)? {
            usage.add_network(conf);
        }
        let log = Log::new(|text| tracing::debug!("{text}"));
        record::each(|record| {
            usage.add_record(record);
            state.add(record, &log);
        })?;
        state.usage = usage.usage();
        Ok(state)
    }

    /// Adds the shaped directions of a record.
    fn add(&mut self, record: &Record, log: &Log) {
        for attached in &record.attachments {
            let directions = shaped::of(record, attached, log);
            self.add_shaped(attached, &directions);
        }
    }

    /// Adds the counters of an attachment to the counters of its pod. A pod has several containers while its
    /// sandbox is replaced.
    fn add_shaped(&mut self, attached: &Attached, directions: &[Direction]) {
        let Some(pod) = attached.pod() else {
            return;
        };
        for direction in directions {
            let Some(passed) = direction.passed else {
                continue;
            };
            let key = Shaped {
                namespace: pod.name.namespace.clone(),
                pod: pod.name.name.clone(),
                interface: attached.ifname.to_string(),
                direction: direction.toward.name(),
            };
            let sum = self.shaped.entry(key).or_default();
            sum.bytes = sum.bytes.saturating_add(passed.bytes);
            sum.dropped = sum.dropped.saturating_add(passed.dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::Attachment;
    use braid_core::cni::Json;
    use braid_core::name::IfName;
    use braid_core::plan::thing::shaping::{Toward, Traffic};
    use braid_node::attach::chain::BRAID;

    fn attached(args: &str) -> Attached {
        let attachment = Attachment {
            container_id: "4f1c".to_owned(),
            ifname: IfName::parse("eth0").expect("a name"),
            netns: None,
            args: args.to_owned(),
        };
        Attached::new("pods", BRAID, &attachment, Json::Null.into())
    }

    fn direction(bytes: u64, dropped: u64) -> Direction {
        let passed = Traffic {
            bytes,
            dropped,
            ..Traffic::default()
        };
        Direction {
            toward: Toward::Network,
            rate: 1_000_000,
            burst: 8_000,
            queue: "fq".to_owned(),
            passed: Some(passed),
        }
    }

    #[test]
    fn counters_belong_to_pods_and_two_sandboxes_of_a_pod_are_one_series() {
        let mut state = NodeState::default();
        let web = attached("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web");
        state.add_shaped(&web, &[direction(1_000, 2)]);
        state.add_shaped(&web, &[direction(500, 1)]);
        state.add_shaped(&attached(""), &[direction(7, 7)]);
        let unread = Direction {
            passed: None,
            ..direction(0, 0)
        };
        state.add_shaped(
            &attached("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=gone"),
            &[unread],
        );
        let web = Shaped {
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            interface: "eth0".to_owned(),
            direction: "egress",
        };
        let passed = Passed {
            bytes: 1_500,
            dropped: 3,
        };
        assert_eq!(state.shaped, BTreeMap::from([(web, passed)]));
    }
}
