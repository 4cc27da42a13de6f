//! Qdiscs (queueing disciplines) that can shape, and the choice of the best one that the kernel
//! has.

use super::feature::Feature;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Qdisc (queueing discipline) that limits the rate of a link. The order is from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Queue {
    /// `fq`; braid's eBPF program sets the departure times of packets.
    #[serde(rename = "fq")]
    Fq,
    /// `tbf` with `pfifo_fast` as its child; braid's eBPF program chooses the band.
    #[serde(rename = "tbf+pfifo_fast")]
    TbfPfifoFast,
    /// `htb` with classes, one of them unlimited; braid's eBPF program chooses the class.
    #[serde(rename = "htb")]
    Htb,
    /// `tbf` with `fq_codel` as its child, which lets sparse flows pass others; no eBPF program.
    #[serde(rename = "tbf+fq_codel")]
    TbfFqCodel,
    /// `tbf` alone, as in the reference plugin; no eBPF program.
    #[serde(rename = "tbf")]
    Tbf,
}

/// Kernel features that decide which qdisc is chosen.
pub const LADDER: &[Feature] = match ASKED {
    [ladder @ .., Feature::PacketGuard, Feature::XskBind] => ladder,
    _ => ASKED,
};

/// Kernel features that shaping requests. The last two are needed only for an interface without a
/// host end, for guards against packet sockets and `AF_XDP` sockets. The others are [`LADDER`].
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

/// Qdiscs with the kernel features that each one needs, from best to worst.
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
    /// Returns the best qdisc on a kernel with these features; `None` if the kernel can't shape.
    pub fn best(has: impl Fn(Feature) -> bool) -> Option<Self> {
        RUNGS
            .iter()
            .find(|(_, needs)| needs.iter().all(|feature| has(*feature)))
            .map(|(queue, _)| *queue)
    }

    /// Returns the features that better qdiscs than `self` need and the kernel lacks.
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

    /// Returns the kernel's name of the root qdisc.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::Htb => "htb",
            Self::TbfPfifoFast | Self::TbfFqCodel | Self::Tbf => "tbf",
        }
    }

    /// True if braid's eBPF program decides when each packet leaves, or which packet leaves first.
    pub fn has_program(self) -> bool {
        matches!(self, Self::Fq | Self::TbfPfifoFast | Self::Htb)
    }

    /// True if the qdisc lets packets that are exempt from shaping overtake packets that wait.
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
    fn each_queue_is_chosen_if_better_ones_lack_a_feature() {
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
    fn a_missing_feature_is_named_once() {
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
