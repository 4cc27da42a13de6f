//! Teardown of a call's attachments, for DEL, GC and the rollback of ADD. Failed steps stay in the
//! record for the next attempt.

use super::chain::{AddressSource, ForeignCall, Runner};
use super::device_file;
use super::invocation::{PluginIndex, Wanted, call, is_foreign, places};
use super::liveness::NodeState;
use crate::apply::executor::OnError;
use crate::apply::host::Host;
use crate::store::record::{Attached, Record};
use braid_core::cni::{AddResult, Command, Error};
use braid_core::name::Ns;
use braid_core::plan::Facts;
use braid_core::plan::order::ordered;
use braid_core::plan::step::Step;
use braid_core::plan::thing::Thing;
use braid_core::plan::undo::{in_turn, undo};
use std::ops::Range;

/// Teardown of the attachments of one call.
#[derive(Debug)]
pub struct Teardown<'a> {
    /// The attachments to tear down, in the order of ADD.
    pub wanted: &'a [Wanted],
    /// The record of the applied steps; undone steps are removed from it. Without a record the
    /// teardown is planned from names alone.
    pub record: Option<Record>,
    /// True if foreign plugins get the result of ADD as `prevResult`.
    pub passes_prev_result: bool,
}

impl Teardown<'_> {
    /// Tears down all plugins in reverse order. Neighbouring native plugins, also of different
    /// networks, are undone together. Continues after a failure. Returns all errors.
    pub fn run(&mut self, host: &mut dyn Host) -> Vec<Error> {
        let all = places(self.wanted);
        let mut owed = all.clone();
        owed.retain(|place| self.is_owed(*place));
        let (mut errors, mut left, mut end) = (Vec::new(), Vec::new(), all.len());
        while end > 0 {
            let start = self.neighbours(&all, end);
            let mut early: Vec<(PluginIndex, Result<(), Error>)> = Vec::new();
            for place in all[start..end].iter().rev() {
                if owed.contains(place) && self.is_through_link(*place) {
                    self.take_off(*place, host, &mut errors);
                    early.push((*place, self.give_back(*place, host)));
                }
            }
            let failed = self.undo_natives(&all[start..end], host, &mut errors);
            for place in all[start..end].iter().rev() {
                if !owed.contains(place) {
                    continue;
                }
                let given = match early.iter().position(|(given, _)| given == place) {
                    Some(at) => early.swap_remove(at).1,
                    // An address is released only after all links with it are deleted.
                    None if self.has_link(*place, &failed) => {
                        left.push(*place);
                        continue;
                    }
                    None => self.give_back(*place, host),
                };
                if let Err(err) = given {
                    left.push(*place);
                    errors.push(err);
                }
            }
            end = start;
        }
        if let Some(record) = &mut self.record {
            note_left(record, &left);
            for attached in &record.attachments {
                if let Some(path) = &attached.device_file {
                    errors.extend(device_file::remove(path).err());
                }
            }
        }
        errors
    }

    fn is_through_link(&self, place: PluginIndex) -> bool {
        self.wanted[place.wanted].chain.items[place.item].is_through_link()
    }

    /// Deletes the addresses of the plugin at `place` from the container's link. The link itself is
    /// still needed to release the lease, and is deleted later.
    fn take_off(&self, place: PluginIndex, host: &mut dyn Host, errors: &mut Vec<Error>) {
        let Some(attached) = self.attached(place.wanted) else {
            return;
        };
        let mut steps = Vec::new();
        for step in attached.parts.get(place.item).into_iter().flatten() {
            if matches!(step, Step::Add(Thing::Addr(addr)) if addr.at.ns == Ns::Pod) {
                steps.extend(step.inverse());
            }
        }
        if host.has_pod() && !steps.is_empty() {
            let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
            errors.extend(report.errors.into_iter().map(Error::from));
        }
    }

    /// True if the record has all steps that are still in effect. Otherwise the teardown is planned
    /// from names alone. A reboot ends the effect of all steps. So a record from an earlier boot
    /// counts as complete.
    fn knows_steps(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| !record.is_second() || record.is_of_earlier_boot())
    }

    /// Returns the recorded attachment with this index.
    fn attached(&self, at: usize) -> Option<&Attached> {
        self.record.as_ref()?.attachments.get(at)
    }

    fn is_owed(&self, place: PluginIndex) -> bool {
        match self.attached(place.wanted) {
            Some(Attached {
                left: Some(left), ..
            }) => left.contains(&place.item),
            Some(Attached { left: None, .. }) | None => true,
        }
    }

    /// Returns the start of the consecutive native plugins before index `end`. If the plugin before
    /// `end` is foreign, returns the index of that plugin.
    fn neighbours(&self, all: &[PluginIndex], end: usize) -> usize {
        let is_foreign = |at: usize| is_foreign(self.wanted, all[at]);
        let mut start = end - 1;
        while !is_foreign(end - 1) && start > 0 && !is_foreign(start - 1) {
            start -= 1;
        }
        start
    }

    /// Undoes the plugins at `places`, by the recorded steps or from names alone. Returns the steps
    /// that failed.
    fn undo_natives(
        &mut self,
        places: &[PluginIndex],
        host: &mut dyn Host,
        errors: &mut Vec<Error>,
    ) -> Vec<Step> {
        let parts = self.parts(places);
        let mut done = Vec::new();
        for (at, parts) in &parts {
            if let Some(attached) = self.attached(*at) {
                done.extend(attached.parts[parts.clone()].iter().flatten().cloned());
            }
        }
        // Sorted in the order in which they were applied.
        let done = ordered(done);
        let steps = if self.knows_steps() {
            undo(&done)
        } else {
            self.teardown_without_record(places)
        };
        let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
        errors.extend(report.errors.into_iter().map(Error::from));
        let mut failed = Vec::new();
        for (at, _) in report.failed {
            failed.push(steps[at].clone());
        }
        if !host.has_pod() {
            for step in &done {
                let Step::Add(Thing::Shaping(shaping)) = step else {
                    continue;
                };
                if let Err(err) = host.leave_shaping(shaping) {
                    errors.push(err.into());
                    failed.extend(step.inverse());
                }
            }
        }
        for (at, parts) in parts {
            if let Some(record) = &mut self.record
                && let Some(attached) = record.attachments.get_mut(at)
            {
                attached.keep(parts, &failed);
            }
        }
        failed
    }

    /// Returns the recorded parts of the plugins at `places`, as a range of indices for each
    /// attachment. At ADD, the runtime may have passed other capabilities, and the chain may have
    /// had more plugins than now. The range with the chain's last plugin includes their parts.
    fn parts(&self, places: &[PluginIndex]) -> Vec<(usize, Range<usize>)> {
        let range = |places: &[PluginIndex]| {
            let PluginIndex {
                wanted,
                item: start,
            } = places[0];
            let len = self
                .attached(wanted)
                .map_or(0, |attached| attached.parts.len());
            let end = start + places.len();
            let end = if end == self.wanted[wanted].chain.items.len() {
                len
            } else {
                end.min(len)
            };
            (wanted, start.min(end)..end)
        };
        places
            .chunk_by(|one, other| one.wanted == other.wanted)
            .map(range)
            .collect()
    }

    fn teardown_without_record(&self, places: &[PluginIndex]) -> Vec<Step> {
        let mut steps = Vec::new();
        for PluginIndex { wanted, item } in places.iter().rev() {
            let wanted = &self.wanted[*wanted];
            let Runner::Native(plugin) = &wanted.chain.items[*item].work else {
                continue;
            };
            steps.extend(plugin.teardown_without_record(&call(wanted, "", self.prev(wanted))));
        }
        in_turn(steps)
    }

    fn prev<'w>(&self, wanted: &'w Wanted) -> Option<&'w AddResult> {
        if self.passes_prev_result {
            wanted.chain.conf.prev_result.as_ref()
        } else {
            None
        }
    }

    /// True if a link of the plugin at `place` could not be deleted or moved back.
    fn has_link(&self, place: PluginIndex, failed: &[Step]) -> bool {
        if let Some(attached) = self.attached(place.wanted)
            && self.knows_steps()
        {
            let mut left = attached.parts.get(place.item).into_iter().flatten();
            return left.any(|step| matches!(step, Step::Add(Thing::Link(_) | Thing::Moved(_))));
        }
        failed
            .iter()
            .any(|step| matches!(step, Step::Del(Thing::Link(_) | Thing::Moved(_))))
    }

    /// Releases the addresses of the plugin at `place`, or calls DEL of a foreign plugin or IPAM. A
    /// foreign program that would only start braid again is skipped, as it cannot have created
    /// anything. If ADD has run the program, it is not skipped for this reason: it was another file
    /// at that time.
    fn give_back(&self, place: PluginIndex, host: &mut dyn Host) -> Result<(), Error> {
        let wanted = &self.wanted[place.wanted];
        let Wanted {
            chain, attachment, ..
        } = wanted;
        let item = &chain.items[place.item];
        let foreign = match (&item.work, &item.addresses) {
            (Runner::Foreign, _) => &item.conf.plugin,
            (_, AddressSource::Foreign(ipam)) => ipam,
            (_, AddressSource::NoIpam) => return Ok(()),
            (_, AddressSource::Ours(ipam)) => {
                let known = NodeState::of(host.root(), chain.network(), host.log());
                let (owner, host) = (wanted.lease_owner(), known.host_of(attachment));
                return match wanted.claim {
                    Some(_) => ipam.release_claimed(&owner, host),
                    None => ipam.release(&owner, host).map(drop),
                };
            }
        };
        let is_begun = self
            .attached(place.wanted)
            .is_some_and(|attached| place.item < attached.parts.len());
        if let Some(circle) = chain.circle(foreign, attachment, is_begun) {
            host.log().line(format_args!(
                "network {:?}: nothing to delete: {circle}",
                chain.network()
            ));
            return Ok(());
        }
        let call = ForeignCall {
            plugin: foreign,
            item: place.item,
            command: Command::Del,
            attachment: Some(attachment),
            prev: self.prev(wanted),
        };
        chain.delegate(&call, host.log()).map(drop)
    }
}

/// Writes to the record which plugins are still to be torn down.
fn note_left(record: &mut Record, left: &[PluginIndex]) {
    for (at, attached) in record.attachments.iter_mut().enumerate() {
        let mut items = Vec::new();
        for place in left {
            if place.wanted == at {
                items.push(place.item);
            }
        }
        attached.left = Some(items);
    }
}
