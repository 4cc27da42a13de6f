//! Traffic shaping on this node: limit and counters of each direction of an attachment.

use super::output;
use braid_core::name::{Hook, Ns};
use braid_core::plan::step::Step;
use braid_core::plan::thing::shaping::{Shaper, Toward, Traffic};
use braid_core::plan::thing::xsk_guard::XskBinding;
use braid_core::plan::thing::{PacketGuard, Thing, XskGuard};
use braid_node::attach::liveness::netns_of;
use braid_node::effect::shaping::observe;
use braid_node::effect::{packet_guard, xsk_guard};
use braid_node::ipam::liveness::Netns;
use braid_node::kernel::Kernel;
use braid_node::store::record::{Attached, Record};
use braid_node::sys::netns::NetNs;
use serde::Serialize;

/// One direction of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Direction {
    /// `ingress` towards the container, `egress` from it, as in configurations.
    #[serde(rename = "direction")]
    pub toward: &'static str,
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

/// Returns the shaped directions of one attachment.
pub(super) fn of(record: &Record, attached: &Attached) -> Vec<Direction> {
    let mut kernel = None;
    let mut directions = Vec::new();
    for step in attached.steps() {
        if let Step::Add(Thing::Shaping(shaping)) = step {
            let kernel = kernel.get_or_insert_with(|| open(record));
            directions.extend(
                shaping
                    .shapers
                    .iter()
                    .map(|shaper| direction(kernel.as_mut(), shaper)),
            );
        } else if let Step::Add(Thing::PacketGuard(_) | Thing::XskGuard(_)) = step {
            let kernel = kernel.get_or_insert_with(|| open(record));
            let sent = directions
                .iter_mut()
                .find(|direction| direction.toward == toward(Toward::Network));
            if let Some(passed) = sent.and_then(|direction| direction.passed.as_mut()) {
                passed.guarded += kernel.as_mut().map_or(0, |kernel| held(kernel, step));
            }
        }
    }
    directions
}

/// Opens the host and, if it still exists, the container.
fn open(record: &Record) -> Option<Kernel> {
    let path = record
        .netns
        .as_deref()
        .filter(|_| netns_of(record) != Netns::Gone);
    let netns = path.and_then(|path| NetNs::open(path).ok());
    Kernel::open(netns, output::log()).ok()
}

fn direction(kernel: Option<&mut Kernel>, shaper: &Shaper) -> Direction {
    let kernel = kernel.filter(|kernel| shaper.at.ns == Ns::Host || kernel.has_pod());
    let fact = kernel.and_then(|kernel| observe(kernel, &shaper.at).ok());
    let passed = fact.and_then(|fact| {
        let program = fact
            .programs
            .iter()
            .find(|program| program.hook == Hook::Egress);
        // Packets that the program passes may still be dropped by a full queue.
        let dropped = |passed: Traffic| passed.dropped + fact.passed.dropped;
        let program = program.map(|program| Traffic {
            dropped: dropped(program.passed),
            ..program.passed
        });
        if shaper.queue.has_program() {
            program
        } else {
            Some(fact.passed)
        }
    });
    Direction {
        toward: toward(shaper.toward),
        rate: shaper.rate.bps,
        burst: shaper.rate.burst,
        queue: shaper.queue.to_string(),
        passed,
    }
}

/// Returns the number of packets that a guard beside the shaper dropped.
fn held(kernel: &mut Kernel, guard: &Step) -> u64 {
    let found = if let Step::Add(Thing::PacketGuard(PacketGuard { at, .. })) = guard {
        let found = kernel
            .nft_of(at.ns)
            .and_then(|socket| Ok(packet_guard::find(socket, &at.name)?));
        found.map(|found| found.map(|fact| fact.dropped))
    } else if let Step::Add(Thing::XskGuard(XskGuard { netns, owner, .. })) = guard {
        let is_its = |hold: &XskBinding| hold.netns == *netns && hold.owner == *owner;
        xsk_guard::observe().map(|held| held.into_iter().find(is_its).map(|hold| hold.refused))
    } else {
        return 0;
    };
    found.ok().flatten().unwrap_or_default()
}

/// Returns the name of the direction in configurations.
fn toward(toward: Toward) -> &'static str {
    match toward {
        Toward::Pod => "ingress",
        Toward::Network => "egress",
    }
}

/// Formats bits or bytes with a decimal prefix: `20M`, `1.5G`.
pub(super) fn short(number: u64) -> String {
    const PREFIXES: [(u64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let Some((unit, prefix)) = PREFIXES.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    match (number / unit, number % unit / (unit / 10)) {
        (whole, 0) => format!("{whole}{prefix}"),
        (whole @ ..10, tenths) => format!("{whole}.{tenths}{prefix}"),
        (whole, _) => format!("{whole}{prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_number_has_at_least_two_digits() {
        let texts = [0, 999, 1_000, 1_550, 20_000_000, 12_345_678, 4_294_967_295].map(short);
        assert_eq!(texts, ["0", "999", "1k", "1.5k", "20M", "12M", "4.2G"]);
    }

    #[test]
    fn json_keys_are_the_counters() {
        let direction = Direction {
            toward: "ingress",
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
    }
}
