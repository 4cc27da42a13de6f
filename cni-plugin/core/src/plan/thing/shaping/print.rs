//! Commands that add and delete shaping.

use super::{LinkRef, Queue, Rate, Shaper, Shaping};
use std::fmt::Write;

/// Returns the commands that add the shaping, one line for each link.
pub(super) fn add(shaping: &Shaping) -> Vec<String> {
    let program = |at: &LinkRef, hook: &str| {
        format!(
            "tc qdisc add dev {0} clsact; tc filter add dev {0} {hook} pref 1 bpf da obj braid.o",
            at.name
        )
    };
    let mut places = Vec::new();
    for shaper in &shaping.shapers {
        let Rate { bps, burst } = shaper.rate;
        let queue = queue(shaper);
        let line = if shaper.queue.has_program() {
            format!(
                "{}; {queue} # {bps} bit/s, burst {burst} bit",
                program(&shaper.at, "egress")
            )
        } else {
            queue
        };
        places.push(line);
    }
    if let (Some(last), Some(subnets)) = (places.last_mut(), &shaping.subnets) {
        let nets = subnets
            .nets
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        let _ = write!(
            last,
            " # {} {nets}",
            if subnets.only { "only" } else { "all but" }
        );
    }
    places
}

fn queue(shaper: &Shaper) -> String {
    let (name, kind) = (&shaper.at.name, shaper.queue.kind());
    let root = format!("tc qdisc replace dev {name} root handle 1: {kind}");
    let bucket = format!(
        "{root} rate {}bit burst {} limit",
        shaper.rate.bps,
        shaper.bucket()
    );
    match shaper.queue {
        Queue::Fq | Queue::Htb => root,
        Queue::TbfPfifoFast => {
            let bucket = format!(
                "{root} rate {}bit burst {}",
                shaper.rate.bps,
                shaper.bucket_of_large()
            );
            format!("{bucket} limit 1; tc qdisc add dev {name} parent 1:1 pfifo_fast")
        }
        Queue::Tbf => format!("{bucket} {}", shaper.bucket_queue()),
        Queue::TbfFqCodel => {
            let target = format!("fq_codel target {}us", shaper.codel_target_ns() / 1000);
            format!(
                "{bucket} {}; tc qdisc add dev {name} parent 1:1 {target}",
                shaper.bucket_queue()
            )
        }
    }
}

/// Returns the commands that delete the shaping, one line for each link.
pub(super) fn del(shaping: &Shaping) -> Vec<String> {
    let mut lines = Vec::new();
    for shaper in &shaping.shapers {
        let root = format!("tc qdisc del dev {} root", shaper.at.name);
        let filter = format!("; tc filter del dev {} egress pref 1", shaper.at.name);
        lines.push(
            root + if shaper.queue.has_program() {
                &filter
            } else {
                ""
            },
        );
    }
    lines
}
