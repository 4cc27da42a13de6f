//! Adjust: requests to networks of a running container that take effect without a new interface:
//! limits, host ports, default routes.
//!
//! ```text
//!  record, new request ─► Plugin::adjust of each plugin that it concerns ─┐
//!                      ─► routes::moved ──────────────────────────────────┴─► steps ─► record
//! ```
//!
//! While the steps are applied, the record has what was and what will be, and the attachment is
//! unsettled. So DEL finds everything after a kill, and the next edit attaches the network again.

use super::chain::{Chain, Item, Runner};
use super::flannel;
use super::invocation::{Wanted, call};
use super::recorded;
use super::routes;
use crate::apply::executor::OnError;
use crate::apply::host::Host;
use crate::store::record::{Attached, Folder, Key, Record};
use braid_core::cni::{Error, Json};
use braid_core::ipam::Claim;
use braid_core::plan::thing::Thing;
use braid_core::plan::{Facts, Step};

const RUNTIME_CONFIG: &str = "runtimeConfig";

/// A network of a running container with a changed request.
#[derive(Debug)]
pub struct Adjust {
    /// Index of the attachment.
    pub at: usize,
    /// The network as it is requested now.
    pub wanted: Wanted,
}

/// True if the attachment can get what is requested now without a new interface.
pub fn is_possible(record: &Record, Adjust { at, wanted }: &Adjust) -> bool {
    let attached = &record.attachments[*at];
    let Ok(chain) = recorded::plain_chain_of(attached, &record.path) else {
        return false;
    };
    let is_same = attached.args == wanted.attachment.args
        && attached.claim.as_ref() == wanted.claim.as_ref().map(|Claim { owner, .. }| owner)
        && chain.items.len() == wanted.chain.items.len();
    is_same
        && changed(&chain, &wanted.chain).all(|(item, new)| {
            let is_same = without_requests(&chain.items[item]) == without_requests(new);
            match &new.work {
                Runner::Native(plugin) => is_same && plugin.adjusts(part(attached, item)),
                Runner::Ipam | Runner::Foreign => false,
            }
        })
        && (!moves_routes(record, *at, wanted) || !has_foreign(record))
}

/// True if the request moves default routes of the container.
pub fn moves_routes(record: &Record, at: usize, wanted: &Wanted) -> bool {
    record.attachments[at].default_route() != wanted.default_route
}

/// True if foreign plugins may have added routes, which the record does not have.
fn has_foreign(record: &Record) -> bool {
    let mut chains = recorded::chains(record);
    chains.any(|(_, chain)| chain.has_foreign())
}

/// Returns the plugins with another configuration, each with its index.
fn changed<'c>(old: &'c Chain, new: &'c Chain) -> impl Iterator<Item = (usize, &'c Item)> {
    let pairs = old.items.iter().zip(&new.items).enumerate();
    let conf = |item: &Item| flannel::unmarked(&item.conf.json);
    pairs.filter_map(move |(at, (old, new))| (conf(old) != conf(new)).then_some((at, new)))
}

/// Returns the configuration of a plugin without the pod's requests. The rest differs if the
/// definition of the network has changed.
fn without_requests(item: &Item) -> Json {
    let mut json = flannel::unmarked(&item.conf.json);
    json.remove(RUNTIME_CONFIG);
    json
}

fn part(attached: &Attached, item: usize) -> &[Step] {
    attached.parts.get(item).map_or(&[], Vec::as_slice)
}

/// A change that was made, and can be rolled back.
#[derive(Debug)]
pub(super) struct Adjusted {
    undo: Vec<Step>,
    /// Changed attachments as they were, each with true if its own request has changed.
    before: Vec<(Attached, bool)>,
}

impl Adjusted {
    /// Rolls the change back, in the kernel and in the record on disk. Returns the errors.
    #[cold]
    pub(super) fn roll_back(
        self,
        key: &Key,
        (folder, host): (&Folder, &mut (dyn Host + 'static)),
    ) -> Vec<Error> {
        let report = host.execute(&self.undo, &Facts::default(), OnError::GoOn);
        let mut errors: Vec<Error> = report.errors.into_iter().map(Error::from).collect();
        let stored = recorded::load(key, folder).and_then(|mut record| {
            for attached in &mut record.attachments {
                let mut all = self.before.iter();
                match all.find(|(before, _)| before.ifname == attached.ifname) {
                    Some((before, _)) if errors.is_empty() => attached.clone_from(before),
                    Some((before, is_its_own)) => unite(attached, before, *is_its_own),
                    None => {}
                }
            }
            folder.store(&record).map_err(Error::from)
        });
        errors.extend(stored.err());
        errors
    }
}

/// True if what the plugins that a change concerns have made is there. Another program, or another
/// version of braid, may have changed it.
pub(super) fn is_whole(
    record: &Record,
    all: &[Adjust],
    host: &mut (dyn Host + 'static),
) -> Result<bool, Error> {
    let mut steps = Vec::new();
    for Adjust { at, wanted } in all {
        let attached = &record.attachments[*at];
        let chain = recorded::plain_chain_of(attached, &record.path)?;
        for (item, _) in changed(&chain, &wanted.chain) {
            steps.extend_from_slice(part(attached, item));
        }
    }
    host.has(&steps).map_err(Error::from)
}

/// Gives attachments what is requested now. Returns the new record. After an error, the attachments
/// are as before, or unsettled.
pub(super) fn adjust(
    record: &Record,
    all: &[Adjust],
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
) -> Result<(Record, Adjusted), Error> {
    let (mut steps, mut after) = (Vec::new(), record.clone());
    for Adjust { at, wanted } in all {
        let attached = &mut after.attachments[*at];
        steps.extend(plugins(attached, &record.path, wanted, &mut *host)?);
    }
    let moves = |one: &Adjust| moves_routes(record, one.at, &one.wanted);
    if all.iter().any(moves) {
        steps.extend(routes::moved(&record.attachments, &mut after.attachments));
    }
    let mut before = Vec::new();
    after.is_unpublished = true;
    let mut both = after.clone();
    for (at, old) in record.attachments.iter().enumerate() {
        if *old != after.attachments[at] {
            let is_its_own = all.iter().any(|one| one.at == at);
            unite(&mut both.attachments[at], old, is_its_own);
            before.push((old.clone(), is_its_own));
        }
    }
    folder.store(&both).map_err(Error::from)?;
    let report = host.execute(&steps, &Facts::default(), OnError::Stop);
    let applied = report.applied.iter().rev();
    let undo = applied.filter_map(|at| inverse(&steps[*at])).collect();
    let adjusted = Adjusted { undo, before };
    if let Some(error) = report.errors.into_iter().next() {
        let errors = adjusted.roll_back(&record.key, (folder, host));
        return Err(Error::from(error).and_cleanup(&errors));
    }
    folder.store(&after).map_err(Error::from)?;
    Ok((after, adjusted))
}

/// Plans the changes of the plugins of an attachment, and gives it its new form.
fn plugins(
    attached: &mut Attached,
    path: &[std::path::PathBuf],
    wanted: &Wanted,
    host: &mut (dyn Host + 'static),
) -> Result<Vec<Step>, Error> {
    let (chain, sandbox) = (recorded::plain_chain_of(attached, path)?, wanted.sandbox());
    let mut result = attached.result().transpose()?;
    let mut steps = Vec::new();
    for (item, new) in changed(&chain, &wanted.chain) {
        let Runner::Native(plugin) = &new.work else {
            return Err(Error::internal("a foreign plugin does not change in place"));
        };
        let call = call(wanted, &sandbox, result.as_ref());
        let facts = host.observe(&plugin.needs(&call)).map_err(Error::from)?;
        let adjustment = plugin
            .adjust(&call, &facts, part(attached, item))
            .map_err(|err| err.context(wanted.title()))?;
        for warning in &adjustment.warnings {
            host.log().warn(warning);
        }
        steps.extend(adjustment.steps);
        if attached.parts.len() <= item {
            attached.parts.resize_with(item + 1, Vec::new);
        }
        attached.parts[item] = adjustment.after;
        result = Some(adjustment.result);
    }
    attached.note(result.as_ref());
    let requested = wanted.attached();
    (attached.conf, attached.asked) = (requested.conf, requested.asked);
    attached.device = requested.device;
    attached.default_route = requested.default_route;
    Ok(steps)
}

/// Adds to an attachment what it was before. With `is_its_own`, its own request has changed, and it
/// becomes unsettled.
fn unite(attached: &mut Attached, before: &Attached, is_its_own: bool) {
    let is_gone = |step: &&Step| attached.steps().all(|other| other != *step);
    let gone: Vec<Step> = before.steps().filter(is_gone).cloned().collect();
    attached.parts.push(gone);
    for route in &before.displaced {
        if !attached.displaced.contains(route) {
            attached.displaced.push(route.clone());
        }
    }
    attached.is_unsettled |= is_its_own;
}

/// Returns the step that rolls a step of a change back.
fn inverse(step: &Step) -> Option<Step> {
    if let Step::Del(thing) = step {
        Some(Step::Add(thing.clone()))
    } else if let Step::Ensure(Thing::HostPorts(_)) = step {
        // The deletion of the new ports beside them took a part of them.
        Some(step.clone())
    } else {
        step.inverse()
    }
}
