//! The queues that can shape, and the best one that this kernel has.

use super::feature::Feature;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The queue that holds the packets until they may leave, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Queue {
    /// `fq` by the departure time that the program writes.
    #[serde(rename = "fq")]
    Fq,
    /// `tbf`, and behind it `pfifo_fast`, between whose bands the program chooses.
    #[serde(rename = "tbf+pfifo_fast")]
    TbfPfifoFast,
    /// `htb` with classes between which the program chooses, one of them not limited.
    #[serde(rename = "htb")]
    Htb,
    /// `tbf`, and behind it `fq_codel`, which lets a flow with little to send pass others; no
    /// program.
    #[serde(rename = "tbf+fq_codel")]
    TbfFqCodel,
    /// `tbf` alone, as the reference plugin.
    #[serde(rename = "tbf")]
    Tbf,
}

/// All that the choice depends on.
pub const LADDER: &[Feature] = match ASKED {
    [ladder @ .., Feature::PacketGuard, Feature::XskBind] => ladder,
    _ => ASKED,
};

/// All that shaping asks for: the ladder, and what guards an interface without an end on the host's
/// side.
pub const ASKED: &[Feature] = &[
    Feature::Fq,
    Feature::Htb,
    Feature::Tbf,
    Feature::FqCodel,
    Feature::Clsact,
    Feature::ClsBpf,
    Feature::Bpf,
    Feature::PacketGuard,
    Feature::XskBind,
];

/// The features that each rung needs, the best first.
const RUNGS: [(Queue, &[Feature]); 5] = [
    (
        Queue::Fq,
        &[Feature::Fq, Feature::Clsact, Feature::ClsBpf, Feature::Bpf],
    ),
    (
        Queue::TbfPfifoFast,
        &[Feature::Tbf, Feature::Clsact, Feature::ClsBpf, Feature::Bpf],
    ),
    (
        Queue::Htb,
        &[Feature::Htb, Feature::Clsact, Feature::ClsBpf, Feature::Bpf],
    ),
    (Queue::TbfFqCodel, &[Feature::Tbf, Feature::FqCodel]),
    (Queue::Tbf, &[Feature::Tbf]),
];

impl Queue {
    /// The best of a kernel that has these features; none where it can't shape.
    pub fn best(has: impl Fn(Feature) -> bool) -> Option<Self> {
        RUNGS
            .iter()
            .find(|(_, needs)| needs.iter().all(|feature| has(*feature)))
            .map(|(queue, _)| *queue)
    }

    /// The features that the rungs above need and the kernel lacks: the reason why it does no
    /// better.
    pub fn lacking(self, has: impl Fn(Feature) -> bool) -> Vec<Feature> {
        let above = RUNGS.iter().filter(|(queue, _)| *queue < self);
        let mut lacking: Vec<Feature> = above
            .flat_map(|(_, needs)| *needs)
            .copied()
            .filter(|f| !has(*f))
            .collect();
        lacking.sort_unstable();
        lacking.dedup();
        lacking
    }

    /// The kernel's word for the root queue.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::Htb => "htb",
            Self::TbfPfifoFast | Self::TbfFqCodel | Self::Tbf => "tbf",
        }
    }

    /// True if braid's program decides when each packet leaves, or which one leaves first.
    pub fn has_program(self) -> bool {
        matches!(self, Self::Fq | Self::TbfPfifoFast | Self::Htb)
    }

    /// True if it lets packets that are not to be shaped pass beside the others.
    pub fn lets_pass(self) -> bool {
        matches!(self, Self::Fq | Self::Htb)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fq => "fq with eBPF",
            Self::TbfPfifoFast => "tbf with eBPF",
            Self::Htb => "htb with eBPF",
            Self::TbfFqCodel => "tbf with fq_codel",
            Self::Tbf => "tbf",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best_without(lacks: &[Feature]) -> Option<Queue> {
        Queue::best(|feature| !lacks.contains(&feature))
    }

    #[test]
    fn each_rung_is_taken_where_those_above_lack_something() {
        assert_eq!(best_without(&[]), Some(Queue::Fq));
        assert_eq!(best_without(&[Feature::Fq]), Some(Queue::TbfPfifoFast));
        assert_eq!(best_without(&[Feature::Fq, Feature::Tbf]), Some(Queue::Htb));
        for program in [Feature::Clsact, Feature::ClsBpf, Feature::Bpf] {
            assert_eq!(
                best_without(&[program]),
                Some(Queue::TbfFqCodel),
                "{program:?}"
            );
        }
        assert_eq!(
            best_without(&[Feature::Bpf, Feature::FqCodel]),
            Some(Queue::Tbf)
        );
        assert_eq!(best_without(&[Feature::Bpf, Feature::Tbf]), None);
    }

    #[test]
    fn what_a_better_rung_lacks_is_named_once() {
        let lacks = [Feature::Fq, Feature::Bpf];
        assert_eq!(
            Queue::TbfPfifoFast.lacking(|feature| feature != Feature::Fq),
            [Feature::Fq]
        );
        assert_eq!(
            Queue::TbfFqCodel.lacking(|feature| !lacks.contains(&feature)),
            [Feature::Fq, Feature::Bpf]
        );
        assert!(Queue::Fq.lacking(|_| true).is_empty());
    }
}
