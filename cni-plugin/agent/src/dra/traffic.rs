//! Bandwidth of the offered links, and the part of it that claims have.

use super::state::State;
use crate::metrics::{Link, Traffic};
use braid_core::dra::nic::offers;
use braid_core::dra::prepared::Prepared;

/// Returns the bandwidths for the metrics.
pub(super) fn of(prepared: &[Prepared], state: &State) -> Traffic {
    let (settings, links) = (&state.wish.settings, state.links.as_ref());
    let nics = links.filter(|_| settings.is_enabled && state.wish.obstacle.is_none());
    let nics = nics.map_or(&[][..], |(nics, _)| nics);
    let mut links = Vec::new();
    for offer in offers(nics, settings).0 {
        let name = &offer.nic.name;
        let uses = prepared.iter().flat_map(|claim| &claim.uses);
        let rates = uses.filter(|one| one.parent == *name);
        let rates = rates.filter_map(|one| one.rate);
        links.push(Link {
            name: name.to_string(),
            capacity: offer.bandwidth.0,
            claimed: rates.fold(0, u64::saturating_add),
        });
    }
    Traffic {
        claims: prepared.len() as u64,
        links,
    }
}
