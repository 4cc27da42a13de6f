//! Output of `braid status` for programs, which `kubectl braid` reads again.

use crate::cli::shaped::Direction;
use braid_node::attach::usage::Usage;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Attachments and networks of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct NodeStatus {
    /// Version of the program.
    pub(in crate::cli) version: String,
    pub(in crate::cli) attachments: Vec<AttachmentStatus>,
    pub(in crate::cli) networks: Vec<NetworkStatus>,
    /// Sentences about full ranges, lost names and files that can't be read.
    pub(in crate::cli) warnings: Vec<String>,
}

/// One attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct AttachmentStatus {
    /// `<namespace>/<name>` of the pod, if the runtime passed it.
    pub(in crate::cli) pod: Option<String>,
    pub(in crate::cli) network: String,
    /// NetworkAttachmentDefinition of the network, as `<namespace>/<name>`.
    pub(in crate::cli) network_attachment_definition: Option<String>,
    /// Type of the plugin; the types of a list are joined by `+`.
    #[serde(rename = "type")]
    pub(in crate::cli) plugin: String,
    pub(in crate::cli) container_id: String,
    pub(in crate::cli) ifname: String,
    /// Addresses with prefix on the container's interface.
    pub(in crate::cli) addresses: Vec<String>,
    /// Host end of the veth, or parent of a macvlan or ipvlan.
    pub(in crate::cli) host_link: Option<String>,
    pub(in crate::cli) netns: Option<String>,
    /// `alive`, `gone` or `unknown`.
    pub(in crate::cli) netns_state: Cow<'static, str>,
    /// Seconds since the record was last written.
    pub(in crate::cli) age_seconds: u64,
    /// Limit and counters of each shaped direction.
    pub(in crate::cli) bandwidth: Vec<Direction>,
    /// Device of a resource claim on which the attachment is.
    pub(in crate::cli) claim: Option<ClaimStatus>,
}

/// A device of a resource claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct ClaimStatus {
    /// `<namespace>/<name>` of the claim.
    pub(in crate::cli) name: String,
    /// Request, or `<request>/<alternative>`.
    pub(in crate::cli) request: String,
    pub(in crate::cli) device: String,
    /// Limit in each direction as a quantity of bits per second; `None` without a limit.
    pub(in crate::cli) rate: Option<String>,
}

/// A network of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct NetworkStatus {
    pub(in crate::cli) network: String,
    /// Number of attachments.
    pub(in crate::cli) attachments: u64,
    /// Ranges of the IPAM `host-local`.
    pub(in crate::cli) ranges: Vec<RangeStatus>,
}

/// Addresses of a range. A range counts as at most 65536.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct RangeStatus {
    /// First and last address, joined by a dash.
    pub(in crate::cli) range: String,
    pub(in crate::cli) used: u64,
    pub(in crate::cli) free: u64,
}

/// Returns the networks of a node with their ranges.
pub(super) fn networks(usage: Usage) -> Vec<NetworkStatus> {
    let mut ranges: BTreeMap<String, Vec<RangeStatus>> = BTreeMap::new();
    for ((network, range), addresses) in usage.ranges {
        ranges.entry(network).or_default().push(RangeStatus {
            range,
            used: addresses.used,
            free: addresses.free,
        });
    }
    let mut networks = Vec::new();
    for (network, attachments) in usage.attachments {
        networks.push(NetworkStatus {
            ranges: ranges.remove(&network).unwrap_or_default(),
            network,
            attachments,
        });
    }
    networks
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_node::attach::usage::Addresses;

    #[test]
    fn a_network_has_its_ranges_and_may_have_none() {
        let mut usage = Usage::default();
        for (network, count) in [("lan", 2), ("pods", 3)] {
            usage.attachments.insert(network.to_owned(), count);
        }
        let key = ("pods".to_owned(), "10.1.0.1-10.1.0.6".to_owned());
        usage.ranges.insert(key, Addresses { used: 3, free: 2 });
        let json = serde_json::to_string(&networks(usage)).expect("json");
        let expected = concat!(
            r#"[{"network":"lan","attachments":2,"ranges":[]},"#,
            r#"{"network":"pods","attachments":3,"ranges":[{"range":"10.1.0.1-10.1.0.6","used":3,"free":2}]}]"#
        );
        assert_eq!(json, expected);
    }
}
