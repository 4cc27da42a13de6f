//! Changed limits of a running container. Queues and programs stay, so no packet is lost; a direction
//! that is no longer limited keeps its queue, with a rate that no link reaches. A direction that was
//! not limited gets its queue as in ADD.

use super::{Bandwidth, shapers};
use crate::cni::Error;
use crate::name::Ns;
use crate::plan::step::Step;
use crate::plan::thing::shaping::{Rate, Shaper, Toward};
use crate::plan::thing::{LinkAttr, LinkRef, PacketGuard, Shaping, Thing};
use crate::plan::{Facts, Feature};
use crate::plugins::{Adjustment, Call, Plugin};

impl Bandwidth {
    /// True if the shaping in `present`, if any, selects packets by the subnets of this configuration.
    pub(super) fn has_subnets_of(&self, present: &[Step]) -> bool {
        present.iter().all(|step| {
            let Step::Add(Thing::Shaping(shaping)) = step else {
                return true;
            };
            shaping.subnets == self.subnets
        })
    }

    /// Plans the change of [`Plugin::adjust`].
    pub(super) fn adjusted(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        present: &[Step],
    ) -> Result<Adjustment, Error> {
        let is_shaped = |toward| shapers(present).any(|shaper| shaper.toward == toward);
        let mut changed = self.retuned(call, facts, present);
        let missing = Self {
            ingress: self.ingress.filter(|_| !is_shaped(Toward::Pod)),
            egress: self.egress.filter(|_| !is_shaped(Toward::Network)),
            subnets: self.subnets.clone(),
        };
        let planned = missing.plan(call, facts, None)?;
        changed.steps.extend_from_slice(&planned.steps);
        changed.after.extend(planned.steps);
        Ok(Adjustment {
            result: planned.result,
            warnings: planned.warnings,
            ..changed
        })
    }

    /// Gives the shaping in `present` the rates of this configuration.
    fn retuned(&self, call: &Call<'_>, facts: &Facts, present: &[Step]) -> Adjustment {
        let (mut steps, mut after) = (Vec::new(), Vec::new());
        let mut sent = None;
        for step in present {
            if let Step::Add(Thing::Shaping(from)) = step {
                let to = Shaping {
                    shapers: from.shapers.iter().map(|one| self.with_rate(one)).collect(),
                    ..from.clone()
                };
                sent = sent.or_else(|| to.shaper(Toward::Network).cloned());
                after.push(Step::add(to.clone()));
                let from = from.clone();
                steps.push(Step::Retune { to, from });
            } else if let Step::Add(Thing::PacketGuard(guard)) = step {
                // It follows the rate of the shaper, below.
                steps.push(Step::del(guard.clone()));
            } else if gso_sizes(step).is_none() {
                after.push(step.clone());
            }
        }
        if let Some(sent) = &sent {
            if sent.at.ns == Ns::Pod && facts.has(Feature::PacketGuard) {
                let guard = PacketGuard::of(sent, self.subnets.as_ref()).map(Step::add);
                steps.extend(guard.clone());
                after.extend(guard);
            }
            let (change, kept) = gso(&call.pod(), facts, present, sent);
            steps.extend(change);
            after.extend(kept);
        }
        Adjustment {
            steps,
            after,
            ..Adjustment::default()
        }
    }

    fn with_rate(&self, shaper: &Shaper) -> Shaper {
        let rate = match shaper.toward {
            Toward::Pod => self.ingress,
            Toward::Network => self.egress,
        };
        shaper.retuned(rate.unwrap_or(Rate::UNREACHED))
    }
}

/// Returns the step that changes the maximum size of the interface's GSO packets to what its egress
/// shaper handles, and the step that an ADD would have recorded.
fn gso(
    at: &LinkRef,
    facts: &Facts,
    present: &[Step],
    sent: &Shaper,
) -> (Option<Step>, Option<Step>) {
    let set = present.iter().find_map(gso_sizes);
    let of_kernel = || facts.link(at).map(|link| link.gso_max_size);
    let Some((now, unlimited)) = set.or_else(|| of_kernel().map(|size| (size, size))) else {
        return (None, None);
    };
    let to = sent.gso_max_size().unwrap_or(unlimited).min(unlimited);
    let step = |to, from| {
        (to != from).then(|| Step::Set {
            at: at.clone(),
            to: LinkAttr::GsoMaxSize(to),
            from: LinkAttr::GsoMaxSize(from),
        })
    };
    (step(to, now), step(to, unlimited))
}

/// Returns new and old size of a step that limits the interface's GSO packets.
fn gso_sizes(step: &Step) -> Option<(u32, u32)> {
    let Step::Set {
        to: LinkAttr::GsoMaxSize(now),
        from: LinkAttr::GsoMaxSize(unlimited),
        ..
    } = step
    else {
        return None;
    };
    Some((*now, *unlimited))
}
