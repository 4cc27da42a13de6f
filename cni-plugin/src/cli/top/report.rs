//! Output of `braid top` for programs, which `kubectl braid` reads again.

use serde::{Deserialize, Serialize};

/// Traffic of the interfaces of a node's containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::cli) struct NodeTraffic {
    /// Time between the two samples.
    pub(in crate::cli) seconds: f64,
    /// The busiest first.
    pub(in crate::cli) interfaces: Vec<InterfaceTraffic>,
}

/// Traffic of an interface, as its container sees it. All numbers but rates of limits are averages
/// per second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct InterfaceTraffic {
    /// `<namespace>/<name>` of the pod, if the runtime passed it.
    pub(in crate::cli) pod: Option<String>,
    pub(in crate::cli) network: String,
    pub(in crate::cli) container_id: String,
    pub(in crate::cli) ifname: String,
    /// Received bits at layer 2.
    pub(in crate::cli) rx_bits_per_second: u64,
    pub(in crate::cli) tx_bits_per_second: u64,
    pub(in crate::cli) rx_packets_per_second: u64,
    pub(in crate::cli) tx_packets_per_second: u64,
    /// Packets that the interface itself dropped. Limits count their dropped packets in `bandwidth`.
    pub(in crate::cli) rx_dropped_per_second: u64,
    pub(in crate::cli) tx_dropped_per_second: u64,
    /// Limited directions.
    pub(in crate::cli) bandwidth: Vec<LimitTraffic>,
}

/// Traffic of a limited direction, as its limit counts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct LimitTraffic {
    /// `ingress` towards the container, `egress` from it.
    pub(in crate::cli) direction: String,
    /// Limit in bits per second.
    pub(in crate::cli) rate: u64,
    pub(in crate::cli) bits_per_second: u64,
    pub(in crate::cli) packets_per_second: u64,
    pub(in crate::cli) delayed_per_second: u64,
    pub(in crate::cli) dropped_per_second: u64,
    pub(in crate::cli) marked_per_second: u64,
    pub(in crate::cli) bypassed_per_second: u64,
    pub(in crate::cli) guarded_per_second: u64,
}

impl InterfaceTraffic {
    /// Bits per second in both directions.
    pub(in crate::cli) fn bits(&self) -> u64 {
        self.rx_bits_per_second
            .saturating_add(self.tx_bits_per_second)
    }
}
