//! Edit: networks of a running container are detached and attached, as one transaction.
//!
//! ```text
//!  record ─► attach the new networks (run) ─► detach those that leave ─► record
//!            if they share an interface or a network, the leaving ones are detached first
//!  failure ─► roll the new ones back, restore the detached ones: addresses, then the recorded steps
//! ```
//!
//! Attachments that an edit creates or deletes are unsettled in the record until it ends. After a kill,
//! DEL deletes all of them, and the next edit detaches them before anything else.

use super::add::refuse_attached;
use super::adjust::{self, Adjust};
use super::invocation::Wanted;
use super::liveness::NodeState;
use super::planner::Planner;
use super::receiver::Receiver;
use super::recorded;
use super::routes;
use super::run::Run;
use super::teardown::Teardown;
use crate::Cause;
use crate::apply::executor::OnError;
use crate::apply::host::Host;
use crate::apply::transaction::Transaction;
use crate::ipam::Ipam;
use crate::store::record::{Attached, Folder, Key, Owed, Record};
use braid_core::cni::{AddResult, Error};
use braid_core::plan::Facts;
use braid_core::plan::order::ordered;
use nix::errno::Errno;

/// Changes of a running container's networks.
#[derive(Debug, Default)]
pub struct Edit {
    /// Indices of the attachments to detach, ascending.
    pub detach: Vec<usize>,
    /// Networks to attach.
    pub attach: Vec<Wanted>,
    /// Networks with changed requests that need no new interface.
    pub adjust: Vec<Adjust>,
}

impl Edit {
    /// True if nothing changes.
    pub fn is_none(&self) -> bool {
        self.detach.is_empty() && self.attach.is_empty() && self.adjust.is_empty()
    }
}

impl Edit {
    /// Returns the edit with new interfaces for all changed requests.
    fn without_adjust(self) -> Self {
        let Self {
            mut detach,
            mut attach,
            adjust,
        } = self;
        for Adjust { at, wanted } in adjust {
            detach.push(at);
            attach.push(wanted);
        }
        detach.sort_unstable();
        Self {
            detach,
            attach,
            adjust: Vec::new(),
        }
    }
}

/// Function that completes new attachments: networks of the container, the result of each, and its
/// opened namespace. If it fails, the new attachments are rolled back.
pub type Complete<'c> =
    dyn FnMut(&[Wanted], &[Option<AddResult>], &mut (dyn Host + 'static)) -> Result<(), Error> + 'c;

/// Receiver of the results of a run, which [`Complete`] gets instead.
struct Nobody;

impl Receiver for Nobody {
    fn deliver(
        &mut self,
        _results: &[Option<AddResult>],
        _host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error> {
        Ok(None)
    }
}

/// Changes the attachments of the running container with this record. `folder` is its locked folder,
/// and `host` has opened its namespace. Returns the new record. After an error the attachments are
/// as before, except for those that the error names, which stay unsettled in the record.
pub fn edit(
    record: Record,
    edit: Edit,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
    complete: &mut Complete<'_>,
) -> Result<Record, Error> {
    if edit.adjust.is_empty() {
        return exchange(record, edit, (folder, host), complete);
    }
    if !adjust::is_whole(&record, &edit.adjust, &mut *host)? {
        return exchange(record, edit.without_adjust(), (folder, host), complete);
    }
    let (adjusted, done) = adjust::adjust(&record, &edit.adjust, (folder, &mut *host))?;
    exchange(adjusted, edit, (folder, &mut *host), complete)
        .map_err(|error| error.and_cleanup(&done.roll_back(&record.key, (folder, host))))
}

/// Detaches and attaches networks.
fn exchange(
    record: Record,
    Edit { detach, attach, .. }: Edit,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
    complete: &mut Complete<'_>,
) -> Result<Record, Error> {
    if detach.contains(&0) {
        return Err(Error::internal("the first network of a container stays"));
    }
    let is_rival = |wanted: &Wanted| {
        let mut leaving = detach.iter().map(|at| &record.attachments[*at]);
        leaving.any(|attached| is_rival(attached, wanted))
    };
    if !attach.iter().any(is_rival) {
        let record = attach_to(record, attach, (folder, &mut *host), complete)?;
        let (record, _) = detach_from(record, &detach, (folder, &mut *host))?;
        return give_routes_back(record, (folder, host));
    }
    let (record, gone) = detach_from(record, &detach, (folder, &mut *host))?;
    let key = record.key.clone();
    match attach_to(record, attach, (folder, &mut *host), complete) {
        Ok(record) => give_routes_back(record, (folder, host)),
        Err(error) => Err(error.and_cleanup(&restore(&key, gone, (folder, host)))),
    }
}

/// Completes an interrupted edit: detaches unsettled attachments, and gives default routes back.
/// Returns the record.
pub fn recover(
    record: Record,
    folder: &Folder,
    host: &mut (dyn Host + 'static),
) -> Result<Record, Error> {
    let mut unsettled = Vec::new();
    for (at, attached) in record.attachments.iter().enumerate() {
        if attached.is_unsettled {
            unsettled.push(at);
        }
    }
    let (record, _) = detach_from(record, &unsettled, (folder, &mut *host))?;
    give_routes_back(record, (folder, host))
}

/// True if attachment and network may need the same interface, address or default routes.
fn is_rival(attached: &Attached, wanted: &Wanted) -> bool {
    let has_routes = attached.default_route().is_some() && wanted.default_route.is_some();
    attached.ifname == wanted.attachment.ifname
        || attached.network == wanted.chain.network()
        || has_routes
}

/// Adds the default routes that attachments have lost to a network that is gone.
fn give_routes_back(
    mut record: Record,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
) -> Result<Record, Error> {
    if !record.lacks_default_routes() {
        return Ok(record);
    }
    let mut steps = Vec::new();
    for attached in &mut record.attachments {
        let mut routes = routes::present(attached);
        for route in &attached.displaced {
            steps.push(route.clone());
            // An interrupted edit may have recorded it.
            if !routes.contains(route) {
                routes.push(route.clone());
            }
        }
        if !attached.displaced.is_empty() {
            routes::forget_defaults(attached);
            attached.parts.push(routes);
        }
    }
    folder.store(&record).map_err(Error::from)?;
    let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
    let is_there = |cause: &Cause| {
        cause
            .kernel()
            .is_some_and(|said| said.errno == Errno::EEXIST)
    };
    if report.failed.iter().any(|(_, cause)| !is_there(cause)) {
        let errors: Vec<Error> = report.errors.into_iter().map(Error::from).collect();
        Error::joined(&errors)?;
    }
    for attached in &mut record.attachments {
        if !std::mem::take(&mut attached.displaced).is_empty() {
            routes::note(attached);
        }
    }
    folder.store(&record).map_err(Error::from)?;
    Ok(record)
}

/// Attaches the container to networks. Rolls all of them back on an error.
fn attach_to(
    mut record: Record,
    attach: Vec<Wanted>,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
    complete: &mut Complete<'_>,
) -> Result<Record, Error> {
    if attach.is_empty() {
        return Ok(record);
    }
    refuse_attached(&attach, record.netns.as_deref(), host)?;
    for wanted in &attach {
        let found = wanted.chain.find_foreign(&wanted.attachment);
        found.map_err(|err| err.context(wanted.title()))?;
        record.is_foreign |= wanted.chain.has_foreign();
    }
    let joining = attach.iter().map(Wanted::attached).collect();
    run(record, (attach, joining), (folder, host), complete)
}

/// Attaches the container to networks, each with its recorded form.
fn run(
    record: Record,
    (attach, joining): (Vec<Wanted>, Vec<Attached>),
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
    complete: &mut Complete<'_>,
) -> Result<Record, Error> {
    let mut wanted = present(&record, 0..record.attachments.len())?;
    wanted.extend(attach);
    let transaction = Transaction::of_edit(folder, record, joining);
    let mut run = Run::new(Planner::new(&wanted), transaction);
    let ran = run.all(host, &mut Nobody);
    match ran.and_then(|()| complete(&wanted, &run.planner.results, &mut *host)) {
        Ok(()) => run.transaction.settle().map_err(Error::from),
        Err(error) => Err(run.fail(error, host)),
    }
}

/// Detaches the attachments with these indices. Returns the record without them, and these
/// attachments as they were. If it fails, they stay in the record, unsettled.
fn detach_from(
    mut record: Record,
    detach: &[usize],
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
) -> Result<(Record, Vec<Attached>), Error> {
    if detach.is_empty() {
        return Ok((record, Vec::new()));
    }
    let wanted = present(&record, detach.iter().copied())?;
    for (at, wanted) in detach.iter().zip(&wanted) {
        refuse_unseen_leases(&record.attachments[*at], wanted)?;
    }
    let mut gone = Vec::new();
    for at in detach {
        let attached = &mut record.attachments[*at];
        gone.push(attached.clone());
        attached.is_unsettled = true;
    }
    record.is_unpublished = true;
    folder.store(&record).map_err(Error::from)?;
    let mut taking = Teardown {
        wanted: &wanted,
        record: Some(record.take(detach)),
        passes_prev_result: true,
    };
    let mut errors = taking.run(host);
    if !errors.is_empty() {
        let left = taking.record.map_or(Vec::new(), |left| left.attachments);
        record.attachments.extend(left);
    }
    errors.extend(folder.store(&record).err().map(Error::from));
    Error::joined(&errors)?;
    Ok((record, gone))
}

/// Fails if the folder of a network's leases is not there, as in a container without it: the lease
/// would stay forever. An attachment without steps may have no lease yet.
pub(super) fn refuse_unseen_leases(attached: &Attached, wanted: &Wanted) -> Result<(), Error> {
    if wanted.claim.is_some() || attached.steps().next().is_none() {
        return Ok(());
    }
    for (_, config) in recorded::host_locals(&wanted.chain) {
        let path = config.path();
        if !path.exists() {
            let (network, path) = (wanted.chain.network(), path.display());
            let sentence = format!("network {network:?}: no leases in {path}");
            return Err(Error::io(sentence));
        }
    }
    Ok(())
}

/// Attaches the container again to the networks that an edit has detached. Returns the errors. What
/// cannot be restored is no longer attached.
#[cold]
fn restore(
    key: &Key,
    gone: Vec<Attached>,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
) -> Vec<Error> {
    let mut errors = Vec::new();
    for attached in gone {
        let network = attached.network.clone();
        let restored = recorded::load(key, folder)
            .and_then(|record| again(record, attached, (folder, &mut *host)).map(drop));
        let context = format_args!("attach network {network:?} again");
        errors.extend(restored.err().map(|err| err.context(context)));
    }
    let given_back =
        recorded::load(key, folder).and_then(|record| give_routes_back(record, (folder, host)));
    errors.extend(given_back.err());
    errors
}

/// Attaches the container again to a network, with the addresses and the links that it had.
fn again(
    mut record: Record,
    attached: Attached,
    (folder, host): (&Folder, &mut (dyn Host + 'static)),
) -> Result<Record, Error> {
    let at = record.attachments.len();
    let running = record.clone();
    record.attachments.push(attached);
    let wanted = present(&record, [at])?;
    let is_known = |wanted: &Wanted| {
        let mut items = wanted.chain.items.iter();
        items.all(|item| !item.is_through_link()) && !wanted.chain.has_foreign()
    };
    if !wanted.iter().all(is_known) {
        // A foreign program, or a server on the network, assigns the addresses again.
        let attached = record.attachments.remove(at);
        let fresh = Attached {
            parts: Vec::new(),
            displaced: Vec::new(),
            result: None,
            ..attached
        };
        record.attachments.push(fresh.clone());
        let wanted = present(&record, [at])?;
        return run(
            running,
            (wanted, vec![fresh]),
            (folder, host),
            &mut |_, _, _| Ok(()),
        );
    }
    record.attachments[at].is_unsettled = true;
    folder.store(&record).map_err(Error::from)?;
    let restored = wanted
        .iter()
        .try_for_each(|wanted| reserve_again(wanted, &record.attachments[at], &*host))
        .and_then(|()| {
            let steps = record.attachments[at].steps().cloned().collect();
            let report = host.execute(&ordered(steps), &Facts::default(), OnError::Stop);
            report.errors.into_iter().next().map_or(Ok(()), Err)?;
            Ok(())
        });
    if let Err(error) = restored {
        let (_, _) = detach_from(record, &[at], (folder, host))
            .map_err(|err| error.clone().and_cleanup(&[err]))?;
        return Err(error);
    }
    record.attachments[at].is_unsettled = false;
    folder.store(&record).map_err(Error::from)?;
    Ok(record)
}

/// Reserves the recorded addresses of an attachment again. The addresses of a claim are still
/// reserved.
fn reserve_again(wanted: &Wanted, attached: &Attached, host: &dyn Host) -> Result<(), Error> {
    if wanted.claim.is_some() {
        return Ok(());
    }
    let Wanted {
        chain, attachment, ..
    } = wanted;
    let known = NodeState::of(host.root(), chain.network(), host.log());
    for (at, config) in recorded::host_locals(chain) {
        let mut config = config.clone();
        config.requested = recorded::addresses(attached.parts.get(at).into_iter().flatten());
        config.reserve(&chain.owner(attachment), known.host_of(attachment))?;
    }
    Ok(())
}

/// Returns the networks of these attachments. Fails if one of their configurations cannot be read.
fn present(record: &Record, which: impl IntoIterator<Item = usize>) -> Result<Vec<Wanted>, Error> {
    let mut wanted = Vec::new();
    for at in which {
        let attached = &record.attachments[at];
        let chain = recorded::chain_of(attached, &record.path)
            .map_err(|err| err.context(format_args!("network {:?}", attached.network)))?;
        wanted.push(recorded::as_wanted(
            attached,
            record.interface_of(attached),
            chain,
        ));
    }
    Ok(wanted)
}
