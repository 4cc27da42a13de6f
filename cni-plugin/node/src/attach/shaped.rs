//! Traffic shaping on this node: limit and counters of each direction of an attachment.

use super::liveness::netns_of;
use crate::effect::shaping::observe;
use crate::effect::{packet_guard, xsk_guard};
use crate::ipam::liveness::Netns;
use crate::kernel::Kernel;
use crate::log::Log;
use crate::store::record::{Attached, Record};
use crate::sys::netns::NetNs;
use braid_core::name::{Hook, Ns};
use braid_core::plan::step::Step;
use braid_core::plan::thing::shaping::{Shaper, Toward, Traffic};
use braid_core::plan::thing::{PacketGuard, Thing, XskGuard};
use serde::{Deserialize, Serialize, Serializer};

/// One direction of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FlatDirection")]
pub struct Direction {
    /// `ingress` towards the container, `egress` from it, as in configurations.
    #[serde(rename = "direction", serialize_with = "name")]
    pub toward: Toward,
    /// Rate in bits per second.
    pub rate: u64,
    /// Burst in bits.
    pub burst: u64,
    /// Queue that shapes the traffic.
    pub queue: String,
    /// Packet counters; `None` if the kernel could not be queried.
    #[serde(flatten)]
    pub passed: Option<Traffic>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn name<S: Serializer>(toward: &Toward, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(toward.name())
}

/// A [`Direction`] as it is read. serde's `flatten` cannot read numbers of any size.
#[derive(Deserialize)]
struct FlatDirection {
    direction: String,
    rate: u64,
    burst: u64,
    queue: String,
    bytes: Option<u64>,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    delayed: u64,
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    marked: u64,
    #[serde(default)]
    bypassed: u64,
    #[serde(default)]
    guarded: u64,
}

impl TryFrom<FlatDirection> for Direction {
    type Error = String;

    fn try_from(flat: FlatDirection) -> Result<Self, String> {
        let toward = Toward::parse(&flat.direction).ok_or_else(|| {
            format!(
                "direction {:?} is neither ingress nor egress",
                flat.direction
            )
        })?;
        Ok(Self {
            toward,
            rate: flat.rate,
            burst: flat.burst,
            queue: flat.queue,
            passed: flat.bytes.map(|bytes| Traffic {
                bytes,
                packets: flat.packets,
                delayed: flat.delayed,
                dropped: flat.dropped,
                marked: flat.marked,
                bypassed: flat.bypassed,
                guarded: flat.guarded,
            }),
        })
    }
}

/// Returns the shaped directions of one attachment.
pub fn of(record: &Record, attached: &Attached, log: &Log) -> Vec<Direction> {
    let mut kernel = None;
    let mut directions = Vec::new();
    for step in attached.steps() {
        if let Step::Add(Thing::Shaping(shaping)) = step {
            let kernel = kernel.get_or_insert_with(|| open(record, log));
            for shaper in &shaping.shapers {
                directions.push(direction(kernel.as_mut(), shaper));
            }
        } else if let Step::Add(Thing::PacketGuard(_) | Thing::XskGuard(_)) = step {
            let kernel = kernel.get_or_insert_with(|| open(record, log));
            let sent = directions
                .iter_mut()
                .find(|direction| direction.toward == Toward::Network);
            if let Some(sent) = sent
                && let Some(passed) = &mut sent.passed
                && let Some(kernel) = kernel
            {
                passed.guarded += held(kernel, step);
            }
        }
    }
    directions
}

/// Opens the kernel state of the host. Also opens the state of the container's network namespace,
/// if the namespace still exists.
fn open(record: &Record, log: &Log) -> Option<Kernel> {
    let netns = match &record.netns {
        Some(path) if netns_of(record) != Netns::Gone => NetNs::open(path).ok(),
        Some(_) | None => None,
    };
    Kernel::open(netns, log.clone()).ok()
}

fn direction(kernel: Option<&mut Kernel>, shaper: &Shaper) -> Direction {
    Direction {
        toward: shaper.toward,
        rate: shaper.rate.bps,
        burst: shaper.rate.burst,
        queue: shaper.queue.to_string(),
        passed: passed(kernel, shaper),
    }
}

/// Returns the counters of a shaper.
fn passed(kernel: Option<&mut Kernel>, shaper: &Shaper) -> Option<Traffic> {
    let kernel = kernel?;
    if shaper.at.ns == Ns::Pod && !kernel.has_pod() {
        return None;
    }
    let fact = observe(kernel, &shaper.at).ok()?;
    if !shaper.queue.has_program() {
        return Some(fact.passed);
    }
    let program = fact
        .programs
        .iter()
        .find(|program| program.hook == Hook::Egress)?;
    Some(Traffic {
        // Packets that the program passes may still be dropped by a full queue.
        dropped: program.passed.dropped + fact.passed.dropped,
        ..program.passed
    })
}

/// Returns the number of packets that a packet guard dropped, or of bindings that an `AF_XDP` guard
/// refused. These packets and bindings would bypass the shaper. 0 if the number can't be read.
fn held(kernel: &mut Kernel, guard: &Step) -> u64 {
    let dropped = if let Step::Add(Thing::PacketGuard(guard)) = guard {
        held_packets(kernel, guard)
    } else if let Step::Add(Thing::XskGuard(guard)) = guard {
        refused_bindings(guard)
    } else {
        None
    };
    dropped.unwrap_or_default()
}

fn held_packets(kernel: &mut Kernel, guard: &PacketGuard) -> Option<u64> {
    let socket = kernel.nft_of(guard.at.ns).ok()?;
    let fact = packet_guard::find(socket, &guard.at.name).ok()??;
    Some(fact.dropped)
}

fn refused_bindings(guard: &XskGuard) -> Option<u64> {
    for binding in xsk_guard::observe().ok()? {
        if binding.netns == guard.netns && binding.owner == guard.owner {
            return Some(binding.refused);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keys_are_the_counters_and_are_read_again() {
        let mut direction = Direction {
            toward: Toward::Pod,
            rate: 8_000,
            burst: 800,
            queue: "tbf".to_owned(),
            passed: Some(Traffic {
                bytes: 7,
                ..Traffic::default()
            }),
        };
        let json = serde_json::to_string(&direction).expect("json");
        let expected = concat!(
            r#"{"direction":"ingress","rate":8000,"burst":800,"queue":"tbf","bytes":7,"packets":0,"delayed":0,"#,
            r#""dropped":0,"marked":0,"bypassed":0,"guarded":0}"#
        );
        assert_eq!(json, expected);
        let mut read = || {
            let json = serde_json::to_string(&direction).expect("json");
            assert_eq!(
                serde_json::from_str::<Direction>(&json).expect("read"),
                direction
            );
            direction.passed = None;
        };
        read();
        read();
    }
}
