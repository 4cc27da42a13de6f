//! Steps that are one request of the route family.

use super::{Effect, attr, of};
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::rtnl;
use braid_core::plan::step::Step;
use braid_core::plan::thing::{LinkRef, Thing, Verb};
use nix::errno::Errno;

/// A request of the route family for one or more steps.
pub(crate) struct RouteRequest {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) body: Vec<u8>,
}

impl RouteRequest {
    /// Builds the request for all of `steps`, which
    /// [`in_one_request`](braid_core::plan::request::in_one_request) has checked.
    pub(crate) fn of(steps: &[Step], kernel: &mut Kernel) -> Result<Self, Cause> {
        let mut body = Vec::with_capacity(64);
        if let Some((at, _)) = steps[0].attr() {
            attr::set_attrs(
                kernel.index(at)?,
                steps.iter().filter_map(Step::attr).map(|(_, to)| to),
                &mut body,
            );
            return Ok(Self {
                kind: rtnl::NEWLINK,
                flags: 0,
                body,
            });
        }
        let (effect, verb) = carried(&steps[0]).ok_or(Errno::EOPNOTSUPP)?;
        // Index 0 if the thing is not on a link.
        let index = effect.link().map_or(Ok(0), |at| kernel.index(at))?;
        let (kind, flags) = effect
            .request(verb, index, &mut body)
            .ok_or(Errno::EOPNOTSUPP)?;
        Ok(Self { kind, flags, body })
    }
}

fn carried(step: &Step) -> Option<(&dyn Effect, Verb)> {
    match step {
        Step::Add(thing) | Step::Ensure(thing) => Some((of(thing), Verb::Add)),
        Step::Del(thing) => Some((of(thing), Verb::Del)),
        Step::Set { .. }
        | Step::Retune { .. }
        | Step::Wait(_)
        | Step::Forget(..)
        | Step::Legacy(_) => None,
    }
}

/// Returns the link that the step's request names by index; `None` if it names no link.
pub(crate) fn link_of(step: &Step) -> Option<&LinkRef> {
    match step.attr() {
        Some((at, _)) => Some(at),
        None => carried(step)?.0.link(),
    }
}

/// True if the thing consists of nf_tables elements only. Elements of several such things are
/// deleted in one transaction.
pub(crate) fn is_only_elements(thing: &Thing) -> bool {
    matches!(of(thing).transport(Verb::Del), super::Transport::Elements)
}
