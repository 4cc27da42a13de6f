//! ADD: one transaction for all plugins of all networks of a call.

use super::del;
use super::invocation::{Invocation, Wanted, of_network, refuse_own};
use super::liveness::NodeState;
use super::planner::Planner;
use super::receiver::Receiver;
use super::run::Run;
use crate::apply::executor::Timing;
use crate::apply::host::{Host, Machine};
use crate::apply::transaction::Transaction;
use crate::ipam::Ipam;
use crate::ipam::liveness::Netns;
use crate::store::holder::netns_of;
use crate::store::record::{Folder, Record};
use crate::sys::netns::NetNs;
use braid_core::cni::{AddResult, Attachment, Error, Version};
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

/// Attaches the container to all networks and delivers the result. Rolls everything back on an
/// error.
#[inline(never)] // `cargo xtask dist` recognizes ADD by this function's name.
pub fn add(
    call: &Invocation,
    machine: &dyn Machine,
    receiver: &mut dyn Receiver,
) -> Result<Added, Error> {
    for (at, wanted) in call.wanted.iter().enumerate() {
        let found = wanted.chain.find_foreign(&wanted.attachment);
        found.map_err(of_network(&call.wanted, at))?;
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
    let transaction = Transaction::new(&folder, record);
    let mut run = Run::new(Planner::new(&call.wanted), transaction);
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
            refuse_attached(&call.wanted, call.first().netns.as_deref(), host)?;
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
    refuse_attached(&call.wanted, earlier.netns.as_deref(), &mut *host)?;
    let there = Attachment {
        netns: earlier.netns.clone().filter(|_| host.has_pod()),
        ..call.first().clone()
    };
    del::take_back(earlier, &there, folder, &mut *host)
}

/// Fails if the container already has an interface of these networks.
pub(super) fn refuse_attached(
    wanted: &[Wanted],
    netns: Option<&Path>,
    host: &mut dyn Host,
) -> Result<(), Error> {
    for Wanted { attachment, .. } in wanted {
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
