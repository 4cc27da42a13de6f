//! ADD: one transaction for all plugins of all networks of a call.

use super::chain::ForeignCall;
use super::del;
use super::invocation::{Invocation, PluginIndex, Wanted, is_foreign, places, refuse_own};
use super::lease_request::LeaseRequest;
use super::liveness::NodeState;
use super::planner::{Native, Planner};
use super::reserver;
use super::routes;
use super::teardown::Teardown;
use crate::apply::executor::Timing;
use crate::apply::host::{Host, Machine};
use crate::apply::transaction::Transaction;
use crate::ipam::Ipam;
use crate::ipam::liveness::Netns;
use crate::log::Log;
use crate::store::holder::netns_of;
use crate::store::record::{Folder, Owed, Record};
use crate::sys::netns::NetNs;
use braid_core::cni::{AddResult, Attachment, Command, Error, Version};
use braid_core::plan::Facts;
use braid_core::plan::step::Step;
use braid_core::plan::thing::LinkRef;
use std::path::Path;

/// Outcome of a successful ADD.
#[derive(Debug)]
pub struct Added {
    /// The result of each network, in order.
    pub results: Vec<AddResult>,
    /// Duration of each netlink send, with the steps that were sent.
    pub timings: Vec<(Vec<Step>, Timing)>,
    /// The opened node with its sockets; `None` if the call did not open it. The process exits
    /// without closing the sockets, which saves time.
    pub host: Option<Box<dyn Host>>,
}

/// Receiver of the results of ADD, one for each network. A result is `None` if the foreign plugins
/// returned none.
pub trait Receiver {
    /// Receives the results as planned, before the kernel work that completes them. `ahead` has the
    /// links as they will be afterwards. Not called if the last plugin is a foreign program. ADD may
    /// still fail.
    fn plan(&mut self, _results: &[Option<AddResult>], _ahead: &Facts) {}

    /// Delivers the results. `host` is the opened node, if any. Returns the pod's network status if
    /// it could not be published. If this fails, ADD is rolled back.
    fn deliver(
        &mut self,
        results: &[Option<AddResult>],
        host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error>;
}

/// Function that delivers the results of ADD, as [`Receiver::deliver`] does.
pub type Deliver<'d> = dyn FnMut(&[Option<AddResult>], Option<&mut (dyn Host + 'static)>) -> Result<Option<Owed>, Error>
    + 'd;

/// Receiver that only delivers the results.
pub struct DeliverBy<'d>(pub &'d mut Deliver<'d>);

impl Receiver for DeliverBy<'_> {
    fn deliver(
        &mut self,
        results: &[Option<AddResult>],
        host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error> {
        (self.0)(results, host)
    }
}

/// Attaches the container to all networks and delivers the result. Rolls everything back on an
/// error.
#[inline(never)] // `cargo xtask dist` recognizes ADD by this function's name.
pub fn add(
    call: &Invocation,
    machine: &dyn Machine,
    receiver: &mut dyn Receiver,
) -> Result<Added, Error> {
    for wanted in &call.wanted {
        let found = wanted.chain.find_foreign(&wanted.attachment);
        found.map_err(|err| {
            if call.wanted.len() > 1 {
                err.context(wanted.title())
            } else {
                err
            }
        })?;
    }
    if let [wanted] = &call.wanted[..]
        && let Some(ipam) = wanted.chain.ipam_alone()
    {
        return reserve_alone(wanted, ipam, machine, receiver);
    }
    let mut host = open_host(call.first(), call.netns_override, machine)?;
    // Rules are restored before this container is locked, as the rules of its other interfaces may
    // have been flushed too. Errors concern other attachments, so they are only warnings.
    for err in host.restore(&call.features()) {
        host.log().warn(&err);
    }
    let folder = machine
        .folder(&call.key.owner.container_id)
        .map_err(Error::from)?;
    let record = start_record(call, &folder, (machine, &mut *host))?;
    let places = places(&call.wanted);
    let transaction = Transaction::new(&folder, record);
    let mut run = Run {
        planner: Planner::new(&call.wanted),
        places,
        done: 0,
        transaction,
    };
    let delivered = match run.all(&mut *host, receiver) {
        Ok(()) => receiver.deliver(&run.planner.results, Some(&mut *host)),
        Err(err) => Err(err),
    };
    match delivered {
        Ok(owed) => {
            if let Some(owed) = owed
                && let Err(err) = run.transaction.owe(owed)
            {
                host.log().warn(&err);
            }
            let mut results = Vec::new();
            for result in run.planner.results.drain(..) {
                results.push(result.unwrap_or_default());
            }
            let timings = std::mem::take(&mut run.transaction.timings);
            Ok(Added {
                results,
                timings,
                host: Some(host),
            })
        }
        Err(error) => Err(run.fail(error, &mut *host)),
    }
}

/// Runs ADD for an IPAM that the runtime calls directly, without a plugin.
#[cold]
fn reserve_alone(
    wanted: &Wanted,
    ipam: &dyn Ipam,
    machine: &dyn Machine,
    receiver: &mut dyn Receiver,
) -> Result<Added, Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    let known = NodeState::of(machine.root(), chain.network(), machine.log());
    let host = known.host_of(attachment);
    let reserved = ipam.reserve(&chain.owner(attachment), host);
    known.take_reclaimed().end_on(machine);
    let results = [Some(AddResult::from(reserved?))];
    receiver.deliver(&results, None).inspect_err(|_| {
        let _ = ipam.release(&chain.owner(attachment), host);
    })?;
    Ok(Added {
        results: results.into_iter().flatten().collect(),
        timings: Vec::new(),
        host: None,
    })
}

/// Opens the node's sockets and the container's network namespace. Refuses the namespace of this
/// process unless `may_be_own` is set.
pub fn open_host(
    attachment: &Attachment,
    may_be_own: bool,
    machine: &dyn Machine,
) -> Result<Box<dyn Host>, Error> {
    let path = attachment.netns.as_deref().unwrap_or(Path::new(""));
    let netns = NetNs::open(path).map_err(|err| Error::netns(err.to_string()))?;
    let host = machine.open(Some(netns)).map_err(Error::from)?;
    if !may_be_own {
        refuse_own(&*host)?;
    }
    Ok(host)
}

/// Returns the first network's result as text for the runtime.
pub fn stdout(results: &[Option<AddResult>], version: Version) -> Result<String, Error> {
    match results.first() {
        Some(Some(result)) => result.to_stdout(version),
        Some(None) | None => AddResult::default().to_stdout(version),
    }
}

/// Returns the record for this ADD. By default, rolls back an earlier, interrupted ADD and returns
/// a new record. If no plugin of the call creates an interface, returns the record of an earlier
/// ADD by the same plugins instead, and this ADD continues that record.
fn start_record(
    call: &Invocation,
    folder: &Folder,
    (machine, host): (&dyn Machine, &mut dyn Host),
) -> Result<Record, Error> {
    let record = call.record(host.pod_cookie());
    let earlier = if folder.is_new() {
        None
    } else {
        folder.load(&call.key).map_err(Error::from)?
    };
    let Some(earlier) = earlier else {
        // State that foreign programs kept across a reboot is released before ADD calls these
        // programs again for the same container.
        let left = if record.is_foreign {
            folder.load_foreign(&call.key).map_err(Error::from)?
        } else {
            None
        };
        if let Some(left) = left
            && left.is_of_earlier_boot()
        {
            end_elsewhere(left, call, (folder, machine))?;
        }
        return Ok(record);
    };
    // A call for several networks never continues a record: the networks may have changed since.
    let is_anew = call.makes_interface() || call.wanted.len() > 1 || earlier.attachments.len() > 1;
    if !earlier.is_of(record.netns_cookie) {
        end_elsewhere(earlier, call, (folder, machine))?;
    } else if is_anew || earlier.is_leaving() {
        if is_anew {
            refuse_attached(call, call.first().netns.as_deref(), host)?;
        }
        del::take_back(earlier, call.first(), folder, host)?;
    } else {
        return Ok(earlier);
    }
    Ok(record)
}

/// Rolls back an earlier, interrupted ADD of this container in another network namespace. Fails if
/// the container is still attached in that namespace.
#[cold]
fn end_elsewhere(
    earlier: Record,
    call: &Invocation,
    (folder, machine): (&Folder, &dyn Machine),
) -> Result<(), Error> {
    let netns = match &earlier.netns {
        Some(path) if netns_of(&earlier) != Netns::Gone => NetNs::open(path).ok(),
        Some(_) | None => None,
    };
    let mut host = machine.open(netns).map_err(Error::from)?;
    refuse_attached(call, earlier.netns.as_deref(), &mut *host)?;
    let there = Attachment {
        netns: earlier.netns.clone().filter(|_| host.has_pod()),
        ..call.first().clone()
    };
    del::take_back(earlier, &there, folder, &mut *host)
}

/// Fails if the container already has one of the call's interfaces.
fn refuse_attached(
    call: &Invocation,
    netns: Option<&Path>,
    host: &mut dyn Host,
) -> Result<(), Error> {
    for Wanted { attachment, .. } in &call.wanted {
        let pod = LinkRef::pod(attachment.ifname.clone());
        if host.link(&pod).ok().flatten().is_some() {
            let (id, name) = (&attachment.container_id, attachment.ifname.as_str());
            let netns = netns.unwrap_or(Path::new("")).display();
            let sentence =
                format!("interface {name:?} of container {id} is already attached in {netns}");
            return Err(Error::internal(sentence));
        }
    }
    Ok(())
}

/// State of a running ADD.
struct Run<'a> {
    planner: Planner<'a>,
    /// The plugins of all networks, in order.
    places: Vec<PluginIndex>,
    /// Number of plugins in `places`, counted from the first, that may hold state to release after
    /// a failure.
    done: usize,
    transaction: Transaction<'a>,
}

impl Run<'_> {
    /// Runs all plugins.
    fn all(&mut self, host: &mut dyn Host, receiver: &mut dyn Receiver) -> Result<(), Error> {
        self.begin()?;
        let wanted = self.planner.wanted;
        let mut at = 0;
        while let Some(place) = self.places.get(at) {
            if is_foreign(wanted, *place) {
                self.foreign(at, host.log())?;
                at += 1;
            } else {
                let natives = self.natives(at);
                let planned = self.native(at, natives, host)?;
                at += natives;
                if at == self.places.len() {
                    receiver.plan(&self.planner.results, &planned.ahead);
                }
                self.apply(planned, host)?;
            }
        }
        match self.places.last() {
            Some(last) if is_foreign(wanted, *last) => self.settle_routes(host),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the number of consecutive native plugins from index `at` on that are planned
    /// together. A plugin that gets addresses through its link (DHCP) ends the sequence, because
    /// its link must exist before the next plugins are planned.
    fn natives(&self, at: usize) -> usize {
        let wanted = self.planner.wanted;
        let natives = self.places[at..]
            .iter()
            .take_while(|place| !is_foreign(wanted, **place));
        let item = |place: &PluginIndex| &wanted[place.wanted].chain.items[place.item];
        let before = natives
            .clone()
            .take_while(|place| !item(place).is_through_link())
            .count();
        natives.count().min(before + 1)
    }

    /// Writes the record if DEL will need it to find the state of this ADD. DEL needs it for
    /// addresses in networks outside the call's configuration, for files, and for state of foreign
    /// programs. The record is written before any of these is created. Then writes the device
    /// information files for the plugins.
    fn begin(&mut self) -> Result<(), Error> {
        let wanted = self.planner.wanted;
        let is_elsewhere =
            |wanted: &Wanted| wanted.object.is_some() || wanted.device_file.is_some();
        if wanted.len() > 1 || wanted.iter().any(is_elsewhere) {
            self.transaction
                .note(&self.planner.results)
                .map_err(Error::from)?;
        } else if wanted.iter().any(|wanted| wanted.chain.has_foreign()) {
            self.transaction.keep().map_err(Error::from)?;
        }
        for wanted in wanted {
            if let Some(file) = &wanted.device_file {
                file.write()?;
            }
        }
        Ok(())
    }

    /// Moves the pod's default routes to the network that requests them. Does nothing if no network
    /// requests them. ADD calls this function if the last plugin is another program. The default
    /// routes then exist already, so they are deleted from the kernel.
    fn settle_routes(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        let Planner {
            wanted, results, ..
        } = &mut self.planner;
        let Some(decided) = routes::decided(wanted, results) else {
            return Ok(());
        };
        let mut parts = routes::of_kernel(&decided, wanted, host)?;
        routes::settle(&decided, wanted, &mut parts);
        self.transaction
            .forget(|at, step| routes::is_default_of(step, decided[at].families()));
        self.transaction
            .run(host, parts, &Facts::default(), &self.planner.results)
            .map_err(Error::from)
    }

    fn foreign(&mut self, at: usize, log: &Log) -> Result<(), Error> {
        let place = self.places[at];
        let Wanted {
            chain, attachment, ..
        } = &self.planner.wanted[place.wanted];
        self.transaction
            .will_delegate(place.wanted)
            .map_err(Error::from)?;
        self.done = at + 1;
        let result = &mut self.planner.results[place.wanted];
        let call = ForeignCall {
            plugin: &chain.items[place.item].conf.plugin,
            item: place.item,
            command: Command::Add,
            attachment: Some(attachment),
            prev: result.as_ref(),
        };
        let own = chain.delegate(&call, log)?;
        *result = own.or(result.take());
        // A runtime caches the first network's result itself, but does not pass it to GC.
        self.transaction
            .note(&self.planner.results)
            .map_err(Error::from)
    }

    /// Plans `count` consecutive native plugins from index `at` on, one after the other. If the last
    /// plugin gets its addresses through its link (DHCP), its link is created before the addresses
    /// are requested.
    fn native(&mut self, at: usize, count: usize, host: &mut dyn Host) -> Result<Native, Error> {
        let Self {
            planner,
            done,
            places,
            transaction,
        } = self;
        let (wanted, mut next) = (planner.wanted, at);
        let mut reserve = |ask: &LeaseRequest<'_>, host: &mut dyn Host| {
            next += 1;
            reserver::reserve(&wanted[ask.place.wanted], ask, host, || *done = next)
        };
        let planned = planner.native(&places[at..at + count], host, &mut reserve);
        for warning in planner.warnings.drain(..) {
            host.log().warn(&warning);
        }
        let mut planned = planned?;
        let last = places[at + count - 1];
        let is_through_link = wanted[last.wanted].chain.items[last.item].is_through_link();
        if is_through_link {
            transaction
                .run(
                    host,
                    planned.parts.clone(),
                    &planned.observed,
                    &planner.results,
                )
                .map_err(Error::from)?;
            // Even if the request fails, the IPAM may hold a lease.
            *done = at + count;
            let mut ask = |ask: &LeaseRequest<'_>, host: &mut dyn Host| {
                reserver::reserve(&wanted[last.wanted], ask, host, || {})
            };
            planned = planner.addresses(last, host, planned, &mut ask)?;
            for warning in planner.warnings.drain(..) {
                host.log().warn(&warning);
            }
        }
        if at + count == self.places.len()
            && let Some(decided) = routes::decided(wanted, &mut self.planner.results)
        {
            if at > 0 || is_through_link {
                planned
                    .parts
                    .extend(routes::of_kernel(&decided, wanted, host)?);
                self.transaction
                    .forget(|at, step| routes::is_default_of(step, decided[at].families()));
            }
            routes::settle(&decided, wanted, &mut planned.parts);
        }
        Ok(planned)
    }

    /// Applies the steps of all planned plugins together.
    fn apply(&mut self, planned: Native, host: &mut dyn Host) -> Result<(), Error> {
        let results = &self.planner.results;
        self.transaction
            .run(host, planned.parts, &planned.observed, results)
            .map_err(Error::from)
    }

    /// Rolls the ADD back. Returns `error`, with a list of everything that could not be rolled
    /// back.
    #[cold]
    fn fail(self, error: Error, host: &mut dyn Host) -> Error {
        let Self {
            planner: Planner { wanted, .. },
            places,
            done,
            transaction,
        } = self;
        let mut record = transaction.done();
        for (at, attached) in record.attachments.iter_mut().enumerate() {
            let mut held = Vec::new();
            for place in &places[..done] {
                if place.wanted == at {
                    held.push(place.item);
                }
            }
            attached.left = Some(held);
        }
        let mut taking = Teardown {
            wanted,
            record: Some(record),
            passes_prev_result: false,
        };
        let errors = taking.run(host);
        let leftovers = taking
            .record
            .map_or(Vec::new(), |left| transaction.end(left, errors));
        error.and_left_behind(&leftovers)
    }
}
