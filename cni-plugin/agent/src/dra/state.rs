//! State of the node's devices, as of the last comparison of the task.

use super::wish::Wish;
use braid_core::dra::nic::Nic;
use std::collections::BTreeSet;
use std::time::SystemTime;

/// State of the devices.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) wish: Wish,
    /// Links with their speeds, and the time when they were read; `None` before the first reading.
    pub(super) links: Option<(Vec<Nic>, SystemTime)>,
    /// Devices that prepared claims have alone. Their links may be in the pods.
    pub(super) alone: BTreeSet<String>,
}

/// Gives links without a carrier the speed that they had. Their drivers report none.
pub(super) fn keep_speeds(nics: &mut [Nic], known: &[Nic]) {
    for nic in nics {
        if nic.speed_mbit.is_none() && !nic.fact.carrier {
            let mut known = known.iter();
            let before = known.find(|known| known.fact.index == nic.fact.index);
            nic.speed_mbit = before.and_then(|before| before.speed_mbit);
        }
    }
}
