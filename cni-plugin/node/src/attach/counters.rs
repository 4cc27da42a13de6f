//! Counters of the interfaces in a container's network namespace.

use super::liveness::netns_of;
use crate::ipam::liveness::Netns;
use crate::kernel::Kernel;
use crate::kernel::link::{INFO_LEN, ifla};
use crate::log::Log;
use crate::store::record::Record;
use crate::sys::netlink::attributes_of;
use crate::sys::netns::NetNs;
use crate::sys::rtnl::link::link_dump;
use crate::sys::rtnl::{self, text_of};
use braid_core::name::Ns;
use std::collections::BTreeMap;

/// Length of one counter in bytes.
const COUNTER: usize = 8;

/// Counters of an interface since its creation, as the container sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received packets.
    pub rx_packets: u64,
    /// Sent packets.
    pub tx_packets: u64,
    /// Received bytes, at layer 2.
    pub rx_bytes: u64,
    /// Sent bytes, at layer 2.
    pub tx_bytes: u64,
    /// Received packets that the interface dropped.
    pub rx_dropped: u64,
    /// Packets that the interface dropped instead of sending them.
    pub tx_dropped: u64,
}

/// Returns the counters of all interfaces in the container's namespace, by name. Empty if the
/// namespace is gone or can't be read.
pub fn of(record: &Record, log: &Log) -> BTreeMap<String, Counters> {
    read(record, log).unwrap_or_default()
}

fn read(record: &Record, log: &Log) -> Option<BTreeMap<String, Counters>> {
    let path = record.netns.as_ref()?;
    if netns_of(record) == Netns::Gone {
        return None;
    }
    let mut kernel = Kernel::open(Some(NetNs::open(path).ok()?), log.clone()).ok()?;
    let socket = kernel.route(Ns::Pod).ok()?;
    let mut counters = BTreeMap::new();
    for message in socket.dump(rtnl::GETLINK, link_dump).ok()? {
        counters.extend(parse(&message.body));
    }
    Some(counters)
}

/// Parses `RTM_NEWLINK`: the link's name and counters.
fn parse(body: &[u8]) -> Option<(String, Counters)> {
    let (mut name, mut counters) = (String::new(), None);
    for (kind, value) in attributes_of(body.get(INFO_LEN..)?) {
        if kind == ifla::IFNAME {
            name = text_of(value);
        } else if kind == ifla::STATS64 {
            counters = parse_counters(value);
        }
    }
    Some((name, counters?))
}

/// Parses the first fields of `struct rtnl_link_stats64` (`include/uapi/linux/if_link.h`). The fifth
/// and sixth are errors.
fn parse_counters(value: &[u8]) -> Option<Counters> {
    let mut fields = [0; 8];
    for (field, bytes) in fields.iter_mut().zip(value.chunks_exact(COUNTER)) {
        *field = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    let [
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        _,
        _,
        rx_dropped,
        tx_dropped,
    ] = fields;
    Some(Counters {
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_first_fields_of_the_kernels_structure() {
        let mut value = Vec::new();
        for field in 1..=25_u64 {
            value.extend(field.to_ne_bytes());
        }
        let expected = Counters {
            rx_packets: 1,
            tx_packets: 2,
            rx_bytes: 3,
            tx_bytes: 4,
            rx_dropped: 7,
            tx_dropped: 8,
        };
        assert_eq!(parse_counters(&value), Some(expected));
    }
}
