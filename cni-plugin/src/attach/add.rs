//! ADD: one transaction for all plugins of the chain.

use super::chain::{self, Chain, From, Work};
use super::del;
use super::families::Ask;
use super::liveness::Known;
use super::planner::Planner;
use super::take_back::TakeBack;
use crate::apply::executor::Timing;
use crate::apply::holder::{is_alive, netns_of};
use crate::apply::kernel::Kernel;
use crate::apply::record::{Folder, Record};
use crate::apply::repair;
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
}

/// Writes the result for the runtime. An attachment whose result nobody has is taken back.
pub type Deliver<'d> = dyn FnMut(&str) -> Result<(), Error> + 'd;

/// Attaches the container and delivers the result, or leaves everything as it was.
pub fn add(request: &Request, chain: &Chain, deliver: &mut Deliver<'_>) -> Result<(), Error> {
    attach(request, chain, deliver, false).map(drop)
}

/// The same for somebody who watches, with the time that each send takes.
pub fn add_timed(request: &Request, chain: &Chain) -> Result<Added, Error> {
    attach(request, chain, &mut |_| Ok(()), true)
}

fn attach(request: &Request, chain: &Chain, deliver: &mut Deliver<'_>, is_timed: bool) -> Result<Added, Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("ADD needs a container"))?;
    chain.find_foreign(attachment)?;
    if let Some(ipam) = chain.ipam_alone() {
        return reserve_alone(request, chain, attachment, ipam, deliver);
    }
    let mut kernel = open_kernel(attachment, request.netns_override)?;
    if is_timed {
        kernel.time();
    }
    // Others' troubles, and before this container is locked: its other interfaces may be in need.
    for err in repair::rules(&mut kernel, &chain.features(), is_alive) {
        eprintln!("{err}");
    }
    let folder = Folder::lock(&attachment.container_id).map_err(Error::from)?;
    let record = start_record(request, chain, attachment, &folder, &mut kernel)?;
    let planner = Planner::new(chain, attachment, request.conf.version, request.conf.prev_result.clone());
    let mut run = Run { request, planner, done: 0, transaction: Transaction::new(&folder, record) };
    match run.all(&mut kernel).and_then(|stdout| deliver(&stdout)) {
        Ok(()) => {
            let result = run.planner.prev.take().unwrap_or_default();
            let timings = std::mem::take(&mut run.transaction.timings);
            // The process is about to end: to take its memory apart first is work for nobody.
            std::mem::forget((run, kernel));
            Ok(Added { result, timings })
        }
        Err(error) => Err(run.fail(error, &mut kernel)),
    }
}

/// ADD of an IPAM called by itself.
#[cold]
fn reserve_alone(
    request: &Request,
    chain: &Chain,
    attachment: &Attachment,
    ipam: &Ipam,
    deliver: &mut Deliver<'_>,
) -> Result<Added, Error> {
    let known = Known::of(chain.network());
    let result = AddResult::from(ipam.reserve(&chain::owner(attachment), known.host())?);
    let delivered = result.to_stdout(request.conf.version).and_then(|stdout| deliver(&stdout));
    delivered.inspect_err(|_| {
        let _ = ipam.release(&chain::owner(attachment), known.host());
    })?;
    Ok(Added { result, timings: Vec::new() })
}

/// The kernel with the container's namespace, which must not be the plugin's own.
pub fn open_kernel(attachment: &Attachment, may_be_own: bool) -> Result<Kernel, Error> {
    let path = attachment.netns.as_deref().unwrap_or(Path::new(""));
    let netns = NetNs::open(path).map_err(|err| Error::netns(err.to_string()))?;
    let kernel = Kernel::open(Some(netns)).map_err(Error::from)?;
    if !may_be_own {
        refuse_own(&kernel)?;
    }
    Ok(kernel)
}

/// Refuses to work on the plugin's own namespace as if it were a container's.
pub fn refuse_own(kernel: &Kernel) -> Result<(), Error> {
    if let Some(netns) = kernel.own_netns().map_err(Error::from)? {
        let sentence = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::netns(format!("{sentence}: {}", netns.path().display())));
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
    kernel: &mut Kernel,
) -> Result<Record, Error> {
    let key = chain.key(attachment);
    let mut record = Record::new(key.clone(), request.conf.json.clone());
    record.netns.clone_from(&attachment.netns);
    record.netns_cookie = kernel.pod_cookie();
    record.args.clone_from(&attachment.args);
    record.path.clone_from(&request.path);
    let earlier = if folder.is_new() { None } else { folder.load(&key).map_err(Error::from)? };
    if let Some(earlier) = earlier {
        if !earlier.is_of(record.netns_cookie) {
            end_elsewhere(earlier, chain, attachment, folder)?;
        } else if chain.makes_interface() || earlier.left.is_some() {
            if chain.makes_interface() {
                refuse_attached(attachment, attachment.netns.as_deref(), kernel)?;
            }
            del::take_back(earlier, chain, attachment, folder, kernel)?;
        } else {
            return Ok(earlier);
        }
    }
    Ok(record)
}

/// Takes back what an earlier ADD of the container did in another namespace, unless it is attached there.
#[cold]
fn end_elsewhere(earlier: Record, chain: &Chain, attachment: &Attachment, folder: &Folder) -> Result<(), Error> {
    let netns =
        earlier.netns.as_deref().filter(|_| netns_of(&earlier) != Netns::Gone).and_then(|path| NetNs::open(path).ok());
    let mut kernel = Kernel::open(netns).map_err(Error::from)?;
    refuse_attached(attachment, earlier.netns.as_deref(), &mut kernel)?;
    let there = Attachment { netns: earlier.netns.clone().filter(|_| kernel.has_pod()), ..attachment.clone() };
    del::take_back(earlier, chain, &there, folder, &mut kernel)
}

/// Refuses a container that has the interface already.
fn refuse_attached(attachment: &Attachment, netns: Option<&Path>, kernel: &mut Kernel) -> Result<(), Error> {
    let pod = LinkRef::pod(attachment.ifname.clone());
    if kernel.link(&pod).ok().flatten().is_none() {
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
    fn all(&mut self, kernel: &mut Kernel) -> Result<String, Error> {
        let items = &self.planner.chain.items;
        let mut at = 0;
        while let Some(item) = items.get(at) {
            if matches!(item.work, Work::Foreign) {
                self.foreign(at)?;
                at += 1;
            } else {
                let natives = self.planner.natives_from(at);
                at = natives.end;
                self.native(natives, kernel)?;
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
    fn native(&mut self, items: Range<usize>, kernel: &mut Kernel) -> Result<(), Error> {
        let Self { planner, done, .. } = self;
        let (chain, attachment) = (planner.chain, planner.attachment);
        let mut reserve = |ask: &Ask<'_>| lease(chain, attachment, ask, done);
        let planned = planner.native(items, kernel, &mut reserve);
        planner.warnings.drain(..).for_each(|warning| eprintln!("network {:?}: {warning}", chain.network()));
        let planned = planned?;
        self.transaction.run(kernel, planned.parts, &planned.observed).map_err(Error::from)
    }

    /// Takes everything back and says what went wrong, and what could not be taken back.
    #[cold]
    fn fail(self, error: Error, kernel: &mut Kernel) -> Error {
        let Self { planner: Planner { chain, attachment, .. }, done, transaction, .. } = self;
        let mut record = transaction.done();
        record.left = Some((0..done).collect());
        let mut taking = TakeBack { chain, attachment, record: Some(record), prev: None };
        let errors = taking.run(kernel);
        let leftovers = taking.record.map_or(Vec::new(), |left| transaction.end(left, errors));
        error.and_left_behind(&leftovers)
    }
}

/// Reserves the addresses of an item; from then on a failure has to give them back, which `done` notes.
fn lease(chain: &Chain, attachment: &Attachment, ask: &Ask<'_>, done: &mut usize) -> Result<Option<Lease>, Error> {
    let at = ask.at;
    let lease = match &chain.items[at].addresses {
        From::Nobody => return Ok(None),
        From::Ours(ipam) => ask.of(ipam)?.reserve(&chain::owner(attachment), Known::of(chain.network()).host())?,
        From::Foreign(ipam) => {
            *done = at + 1;
            let result = chain.delegate(ipam, at, Command::Add, Some(attachment), ask.prev)?;
            chain::lease_of(result.unwrap_or_default())
        }
    };
    *done = at + 1;
    Ok(Some(lease))
}
