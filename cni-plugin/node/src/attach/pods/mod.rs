//! All networks of a pod. The networks that the pod's annotation requests are attached in one call,
//! and the results are published.
//!
//! ```text
//!  settings, CNI_ARGS ─► Finder: pod and NADs from the API, networks from files ─► k8s::select ─► Invocation
//!  attach::add ─► results ─► k8s::status ─► API: network-status ─► response to the runtime
//!  DEL, CHECK need no API: the record has all networks of the pod
//!  DEL without a record: `lost` queries the API, for 2 s at most
//!  GC queries the API for claims that hold leases, and publishes statuses that ADD could not publish
//! ```

mod chained;
pub(super) mod claims;
mod devices;
mod edit;
mod find;
mod gc;
mod interface_facts;
mod lost;
pub mod multus;
mod network;
mod outcome;
mod publish;
mod ready;
mod refusal;

use super::add::{Added, add as attach};
use super::chain::{BRAID, Chain};
use super::check::check_all;
use super::del::detach_or;
use super::invocation::{DelRequest, Detached, Invocation};
use super::{recorded, status as of_network};
use crate::apply::host::Machine;
use crate::source::cluster::{Cluster, NoCluster};
use braid_core::cni::{Error, Kind, Request};
use braid_core::k8s::interface_event::{self, FAILED_REMOVE};
use braid_core::k8s::settings::{PodRef, Settings};
use braid_core::k8s::source::Event;
pub use edit::{Outcome as Edited, edit, is_stale, republish};
use find::Finder;
pub use gc::gc;
pub use network::AttachedNetwork;
use outcome::Outcome;
pub use publish::Publisher;

/// Attaches the pod to its networks, publishes the pod's network status and delivers the default
/// network's result.
pub fn add(
    request: &Request,
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
    deliver: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<Added, Error> {
    ready::wait(settings, machine)?;
    let version = request.conf.version;
    let mut finder = Finder::new(settings, machine, cluster);
    let (call, publisher) = finder.call(request)?;
    let mut may_free = true;
    loop {
        let mut outcome = Outcome::new(
            (&publisher, &mut finder),
            (&call.wanted, version),
            machine,
            deliver,
        );
        let added = attach(&call, machine, &mut outcome);
        if added.is_err() {
            outcome.withdraw();
        }
        let is_told = outcome.is_told;
        match added {
            // An unreachable API is not the reason why the ADD failed.
            Err(err) if may_free && err.kind == Kind::NoFreeAddress => {
                if !claims::free_of(&call.wanted, settings, machine, cluster).unwrap_or_default() {
                    publisher.report(&err, &call.wanted, finder.source());
                    return Err(err);
                }
                may_free = false;
            }
            Err(err) => {
                if !is_told && err.kind != Kind::TryAgain {
                    publisher.report(&err, &call.wanted, finder.source());
                }
                return Err(err);
            }
            Ok(added) => return Ok(added),
        }
    }
}

/// Returns the call that attaches the pod to its networks, and the publisher of the pod's status.
pub fn call(
    request: &Request,
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<(Invocation, Publisher), Error> {
    Finder::new(settings, machine, cluster).call(request)
}

/// Detaches the pod from all networks in its record. Without a record, [`lost`] finds the networks.
pub fn del(
    request: Request,
    settings: &Settings,
    plugin_name: &str,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
) -> Result<(), Error> {
    let conf = request.conf.clone();
    let (call, is_known) = leaving(request, settings, plugin_name, machine)?;
    if multus::detach(&call, settings, machine)? && !is_recorded(&call, machine)? {
        return Ok(());
    }
    let lost = lost::Lost {
        call: &call,
        conf: &conf,
        is_known,
        settings,
        machine,
        cluster,
    };
    let detached = detach_or(&call, machine, &|folder, host| lost.find(folder, host));
    let events = match &detached {
        Ok(interfaces) => removed(interfaces),
        Err(err) => {
            let networks = [conf.name.clone()];
            vec![interface_event::failed(FAILED_REMOVE, err, &networks)]
        }
    };
    report(&events, &call.attachment.args, settings, cluster);
    detached.map(drop)
}

/// Returns an event about each interface that the pod had.
fn removed(interfaces: &[Detached]) -> Vec<Event> {
    let mut events = Vec::new();
    for Detached {
        ifname,
        addresses,
        network,
    } in interfaces
    {
        let event = interface_event::removed(ifname.as_str(), addresses, network);
        events.push(event);
    }
    events
}

/// Writes events about the pod of a call.
fn report(events: &[Event], args: &str, settings: &Settings, cluster: &dyn Cluster) {
    if events.is_empty() {
        return;
    }
    let Ok(Some(PodRef {
        name,
        uid: Some(uid),
        ..
    })) = PodRef::of(args)
    else {
        return;
    };
    if let Ok(mut source) = cluster.source(settings, None) {
        source.report(&name, &uid, events);
    }
}

/// True if the container's call has a record, readable or not.
fn is_recorded(call: &DelRequest, machine: &dyn Machine) -> Result<bool, Error> {
    let folder = machine
        .folder(&call.key.owner.container_id)
        .map_err(Error::from)?;
    let is_recorded = folder.has_file(&call.key);
    folder.close().map_err(Error::from)?;
    Ok(is_recorded)
}

/// Checks all networks in the pod's record; without a record only the default network.
pub fn check(
    request: Request,
    settings: &Settings,
    plugin_name: &str,
    machine: &dyn Machine,
) -> Result<(), Error> {
    let (call, _) = leaving(request, settings, plugin_name, machine)?;
    let folder = machine
        .folder(&call.key.owner.container_id)
        .map_err(Error::from)?;
    let record = folder.load(&call.key).map_err(Error::from)?;
    let wanted = recorded::wanted(record.as_ref(), &call)?;
    let DelRequest {
        key,
        path,
        netns_override,
        ..
    } = call;
    check_all(
        &Invocation {
            key,
            netns_override,
            path,
            wanted,
        },
        record.as_ref(),
        machine,
    )
}

/// Converts a request to a DEL call with the default network's configuration. The flag is false if
/// that configuration is unknown. Then the call has the runtime's configuration.
fn leaving(
    request: Request,
    settings: &Settings,
    plugin_name: &str,
    machine: &dyn Machine,
) -> Result<(DelRequest, bool), Error> {
    let verb = request.command.as_str();
    let Request {
        attachment,
        path,
        netns_override,
        conf,
        ..
    } = request;
    let attachment = attachment.ok_or_else(|| Error::env(format!("{verb} needs a container")))?;
    let key = Chain::key_of(plugin_name, &conf, &attachment);
    let prev = conf.json.get(recorded::PREV_RESULT).cloned();
    let known = Finder::new(settings, machine, &NoCluster).default_conf(&conf, prev);
    let is_known = known.is_ok();
    let conf = known.unwrap_or(conf);
    Ok((
        DelRequest {
            key,
            attachment,
            conf,
            path: settings.path(path),
            netns_override,
        },
        is_known,
    ))
}

/// Fails if the default network is not ready or could not serve an ADD.
pub fn status(request: &Request, settings: &Settings, machine: &dyn Machine) -> Result<(), Error> {
    ready::check(settings, machine)?;
    let mut finder = Finder::new(settings, machine, &NoCluster);
    let conf = match finder.default_conf(&request.conf, None) {
        Ok(conf) => conf,
        // The API may have the network. STATUS does not query it: a failing API must not make the
        // node NotReady.
        Err(_) if finder.default_may_be_object() => {
            return machine
                .probe()
                .map_err(|err| of_network::not_available(&err));
        }
        Err(err) => return Err(Error::not_available(err.to_string())),
    };
    let chain = Chain::parse(BRAID, conf, "", &settings.path(request.path.clone()))?;
    of_network::status(&chain, machine)
}
