//! ADD: one transaction for all plugins of the chain.

use super::chain::{self, Chain, From, Work};
use super::del;
use super::families::Ask;
use super::liveness::Known;
use super::planner::Planner;
use super::take_back::TakeBack;
use crate::apply::executor::Timing;
use crate::apply::holder::netns_of;
use crate::apply::host::{Host, Machine};
use crate::apply::record::{Folder, Record};
use crate::apply::transaction::Transaction;
use crate::cni::{AddResult, Attachment, Command, Error, Request};
use crate::ipam::liveness::Netns;
use crate::ipam::{Ipam, Lease};
use crate::plan::step::Step;
use crate::plan::thing::LinkRef;
use crate::sys::netns::NetNs;
use std::ops::Range;
use std::path::Path;

/// What a successful ADD has to say to somebody who watches.
#[derive(Debug)]
pub struct Added {
    /// The result.
    pub result: AddResult,
    /// How long each send took, with the steps that it carried.
    pub timings: Vec<(Vec<Step>, Timing)>,
    /// The machine as the call opened it; none where it did not. Closing it takes time that a process which ends saves.
    pub host: Option<Box<dyn Host>>,
}

/// Writes the result for the runtime. An attachment whose result nobody has is taken back.
pub type Deliver<'d> = dyn FnMut(&str) -> Result<(), Error> + 'd;

/// Attaches the container and delivers the result, or leaves everything as it was.
#[inline(never)] // `cargo xtask dist` knows the calls that run it by its name.
pub fn add(request: &Request, chain: &Chain, machine: &dyn Machine, deliver: &mut Deliver<'_>) -> Result<Added, Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("ADD needs a container"))?;
    chain.find_foreign(attachment)?;
    if let Some(ipam) = chain.ipam_alone() {
        return reserve_alone(request, chain, attachment, ipam, deliver);
    }
    let mut host = open_host(attachment, request.netns_override, machine)?;
    // Others' troubles, and before this container is locked: its other interfaces may be in need.
    for err in host.restore(&chain.features()) {
        host.warn(&err.to_string());
    }
    let folder = machine.folder(&attachment.container_id).map_err(Error::from)?;
    let record = start_record(request, chain, attachment, &folder, (machine, &mut *host))?;
    let planner = Planner::new(chain, attachment, request.conf.version, request.conf.prev_result.clone());
    let mut run = Run { request, planner, done: 0, transaction: Transaction::new(&folder, record) };
    match run.all(&mut *host).and_then(|stdout| deliver(&stdout)) {
        Ok(()) => {
            let result = run.planner.prev.take().unwrap_or_default();
            let timings = std::mem::take(&mut run.transaction.timings);
            Ok(Added { result, timings, host: Some(host) })
        }
        Err(error) => Err(run.fail(error, &mut *host)),
    }
}

/// ADD of an IPAM called by itself.
#[cold]
fn reserve_alone(
    request: &Request,
    chain: &Chain,
    attachment: &Attachment,
    ipam: &dyn Ipam,
    deliver: &mut Deliver<'_>,
) -> Result<Added, Error> {
    let known = Known::of(chain.network());
    let result = AddResult::from(ipam.reserve(&chain.owner(attachment), known.host())?);
    let delivered = result.to_stdout(request.conf.version).and_then(|stdout| deliver(&stdout));
    delivered.inspect_err(|_| {
        let _ = ipam.release(&chain.owner(attachment), known.host());
    })?;
    Ok(Added { result, timings: Vec::new(), host: None })
}

/// The machine with the container's namespace, which must not be the plugin's own.
pub fn open_host(attachment: &Attachment, may_be_own: bool, machine: &dyn Machine) -> Result<Box<dyn Host>, Error> {
    let path = attachment.netns.as_deref().unwrap_or(Path::new(""));
    let netns = NetNs::open(path).map_err(|err| Error::netns(err.to_string()))?;
    let host = machine.open(Some(netns)).map_err(Error::from)?;
    if !may_be_own {
        refuse_own(&*host)?;
    }
    Ok(host)
}

/// Refuses to work on the plugin's own namespace as if it were a container's.
pub fn refuse_own(host: &dyn Host) -> Result<(), Error> {
    if let Some(path) = host.own_netns().map_err(Error::from)? {
        let sentence = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::netns(format!("{sentence}: {}", path.display())));
    }
    Ok(())
}

/// The record to go on with: a new one, after what an interrupted ADD left is taken back; or, where the chain only
/// changes an interface that others made, the one that an earlier call of the same chain began.
fn start_record(
    request: &Request,
    chain: &Chain,
    attachment: &Attachment,
    folder: &Folder,
    (machine, host): (&dyn Machine, &mut dyn Host),
) -> Result<Record, Error> {
    let key = chain.key(attachment);
    let mut record = Record::new(key.clone(), request.conf.json.clone());
    record.netns.clone_from(&attachment.netns);
    record.netns_cookie = host.pod_cookie();
    record.args.clone_from(&attachment.args);
    record.path.clone_from(&request.path);
    let earlier = if folder.is_new() { None } else { folder.load(&key).map_err(Error::from)? };
    if let Some(earlier) = earlier {
        if !earlier.is_of(record.netns_cookie) {
            end_elsewhere(earlier, chain, attachment, (folder, machine))?;
        } else if chain.makes_interface() || earlier.left.is_some() {
            if chain.makes_interface() {
                refuse_attached(attachment, attachment.netns.as_deref(), host)?;
            }
            del::take_back(earlier, chain, attachment, folder, host)?;
        } else {
            return Ok(earlier);
        }
    }
    Ok(record)
}

/// Takes back what an earlier ADD of the container did in another namespace, unless it is attached there.
#[cold]
fn end_elsewhere(
    earlier: Record,
    chain: &Chain,
    attachment: &Attachment,
    (folder, machine): (&Folder, &dyn Machine),
) -> Result<(), Error> {
    let netns =
        earlier.netns.as_deref().filter(|_| netns_of(&earlier) != Netns::Gone).and_then(|path| NetNs::open(path).ok());
    let mut host = machine.open(netns).map_err(Error::from)?;
    refuse_attached(attachment, earlier.netns.as_deref(), &mut *host)?;
    let there = Attachment { netns: earlier.netns.clone().filter(|_| host.has_pod()), ..attachment.clone() };
    del::take_back(earlier, chain, &there, folder, &mut *host)
}

/// Refuses a container that has the interface already.
fn refuse_attached(attachment: &Attachment, netns: Option<&Path>, host: &mut dyn Host) -> Result<(), Error> {
    let pod = LinkRef::pod(attachment.ifname.clone());
    if host.link(&pod).ok().flatten().is_none() {
        return Ok(());
    }
    let (id, name) = (&attachment.container_id, attachment.ifname.as_str());
    let netns = netns.unwrap_or(Path::new("")).display();
    Err(Error::internal(format!("interface {name:?} of container {id} is already attached in {netns}")))
}

/// One ADD on its way through the chain.
struct Run<'a> {
    request: &'a Request,
    planner: Planner<'a>,
    /// How many items hold something that a failure has to give back.
    done: usize,
    transaction: Transaction<'a>,
}

impl Run<'_> {
    fn all(&mut self, host: &mut dyn Host) -> Result<String, Error> {
        let items = &self.planner.chain.items;
        let mut at = 0;
        while let Some(item) = items.get(at) {
            if matches!(item.work, Work::Foreign) {
                self.foreign(at)?;
                at += 1;
            } else {
                let natives = self.planner.natives_from(at);
                at = natives.end;
                self.native(natives, host)?;
            }
        }
        let version = self.request.conf.version;
        self.planner.prev.as_ref().map_or_else(|| AddResult::default().to_stdout(version), |r| r.to_stdout(version))
    }

    fn foreign(&mut self, at: usize) -> Result<(), Error> {
        let Planner { chain, attachment, prev, .. } = &mut self.planner;
        self.transaction.will_delegate().map_err(Error::from)?;
        self.done = at + 1;
        let plugin = &chain.items[at].conf.plugin;
        let result = chain.delegate(plugin, at, Command::Add, Some(attachment), prev.as_ref())?;
        *prev = result.or(prev.take());
        Ok(())
    }

    /// Plans neighbouring native plugins one after the other, then applies all their steps at once.
    fn native(&mut self, items: Range<usize>, host: &mut dyn Host) -> Result<(), Error> {
        let Self { planner, done, .. } = self;
        let (chain, attachment) = (planner.chain, planner.attachment);
        let mut reserve = |ask: &Ask<'_>| lease(chain, attachment, ask, done);
        let planned = planner.native(items, host, &mut reserve);
        planner.warnings.drain(..).for_each(|warning| host.warn(&format!("network {:?}: {warning}", chain.network())));
        let planned = planned?;
        self.transaction.run(host, planned.parts, &planned.observed).map_err(Error::from)
    }

    /// Takes everything back and says what went wrong, and what could not be taken back.
    #[cold]
    fn fail(self, error: Error, host: &mut dyn Host) -> Error {
        let Self { planner: Planner { chain, attachment, .. }, done, transaction, .. } = self;
        let mut record = transaction.done();
        record.left = Some((0..done).collect());
        let mut taking = TakeBack { chain, attachment, record: Some(record), prev: None };
        let errors = taking.run(host);
        let leftovers = taking.record.map_or(Vec::new(), |left| transaction.end(left, errors));
        error.and_left_behind(&leftovers)
    }
}

/// Reserves the addresses of an item; from then on a failure has to give them back, which `done` notes.
fn lease(chain: &Chain, attachment: &Attachment, ask: &Ask<'_>, done: &mut usize) -> Result<Option<Lease>, Error> {
    let at = ask.at;
    let lease = match &chain.items[at].addresses {
        From::Nobody => return Ok(None),
        From::Ours(ipam) => {
            let known = Known::of(chain.network());
            ask.lease(&**ipam, |ipam| ipam.reserve(&chain.owner(attachment), known.host()))?
        }
        From::Foreign(ipam) => {
            *done = at + 1;
            let result = chain.delegate(ipam, at, Command::Add, Some(attachment), ask.prev)?;
            chain::lease_of(result.unwrap_or_default())
        }
    };
    *done = at + 1;
    Ok(Some(lease))
}
