//! The CNI verbs. One process handles all networks of a container, and all plugins of each network.
//!
//! ```text
//!  request ─► invocation: networks, each with its chain: items, native or foreign, each with its IPAM
//!  add     ─► for each run of native plugins: observe, refuse, reserve, plan (planner) ─► one transaction
//!  preview ─► the same plans, with addresses looked up and not reserved: nothing is changed
//!  edit    ─► networks of a running container: ADD's run for the new ones, teardown of those that leave
//!  adjust  ─► changed requests to a running container's network, without a new interface
//!  del, gc ─► teardown: inverses of the recorded steps, newest first; from names alone without a record
//!  repair  ─► steps of running containers that no longer hold are applied again
//!  duplicates ─► addresses of running containers that another host has, read only
//!  garbage ─► teardown of containers that are gone, without a runtime's list
//!  check   ─► every recorded step still holds, and the container matches the result
//!  status  ─► store, kernel, parents, addresses: could an ADD work now?
//! ```

pub mod add;
pub mod adjust;
pub mod call_conf;
pub mod chain;
pub mod check;
pub mod counters;
pub mod del;
pub mod device_file;
pub mod duplicates;
pub mod edit;
mod flannel;
pub mod garbage;
pub mod gc;
pub mod invocation;
pub mod item;
mod last_mac;
mod lease_request;
pub mod leases;
pub mod liveness;
pub mod orphans;
pub mod planner;
pub mod pods;
pub mod preview;
pub mod receiver;
mod reconstruct;
pub mod recorded;
pub mod repair;
mod reserver;
mod routes;
mod run;
pub mod shaped;
pub mod status;
pub mod teardown;
#[cfg(test)]
mod tests;
mod unrecorded;
pub mod usage;

use crate::apply::delegate;
use crate::apply::host::Machine;
use crate::ipam;
use crate::source::cluster::Cluster;
use braid_core::cni::version::version_reply;
use braid_core::cni::{Command, Error, Owner, Request, Version};
use braid_core::k8s::settings::Settings;
use braid_core::plugins;
use chain::{BRAID, Chain};
use invocation::Invocation;
use receiver::DeliverBy;
use std::path::PathBuf;

/// Runs the CNI verb of a request on the node `machine` with the Kubernetes cluster `cluster`. ADD
/// passes its result to `deliver`, as text for the runtime. The other verbs have no output on
/// success.
pub fn answer(
    request: Request,
    plugin_name: &str,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
    deliver: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<Option<Done>, Error> {
    if Chain::plugin_name_of(plugin_name, &request.conf) == BRAID
        && let Some(settings) = Settings::of(&request.conf)?
    {
        return of_pods(request, plugin_name, &settings, machine, cluster, deliver);
    }
    let chain =
        |request: &Request| Chain::parse(plugin_name, request.conf.clone(), "", &request.path);
    match request.command {
        Command::Add => {
            let version = request.conf.version;
            let call = Invocation::of(request, plugin_name)?;
            let mut deliver = DeliverBy(&mut |results, _| {
                deliver(&add::stdout(results, version)?).map(|()| None)
            });
            let added = add::add(&call, machine, &mut deliver)?;
            return Ok(Some(Done {
                _call: Some(call),
                _added: added,
            }));
        }
        Command::Del => del::del(request, plugin_name, machine)?,
        Command::Check => check::check(Invocation::of(request, plugin_name)?, machine)?,
        Command::Gc => gc::gc(&request, &chain(&request)?, machine)?,
        Command::Status => status::status(&chain(&request)?, machine)?,
        Command::Version => {}
    }
    Ok(None)
}

/// Runs the CNI verb of a request for all networks of a pod.
#[cold]
fn of_pods(
    request: Request,
    plugin_name: &str,
    settings: &Settings,
    machine: &dyn Machine,
    cluster: &dyn Cluster,
    deliver: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<Option<Done>, Error> {
    match request.command {
        Command::Add => {
            let added = pods::add(&request, settings, machine, cluster, deliver)?;
            return Ok(Some(Done {
                _call: None,
                _added: added,
            }));
        }
        Command::Del => pods::del(request, settings, plugin_name, machine, cluster)?,
        Command::Check => pods::check(request, settings, plugin_name, machine)?,
        Command::Gc => pods::gc(&request, settings, plugin_name, machine, cluster)?,
        Command::Status => pods::status(&request, settings, machine)?,
        Command::Version => {}
    }
    Ok(None)
}

/// Values of a finished ADD. A process that is about to exit saves time if it forgets them
/// ([`std::mem::forget`]) instead of freeing and closing each of them.
#[derive(Debug)]
pub struct Done {
    _call: Option<Invocation>,
    _added: add::Added,
}

/// Returns the reply to VERSION. Fails if the program `plugin_name` in `path` is braid itself, but
/// braid does not implement a plugin of that name: no other verb would work under this name.
pub fn version(plugin_name: &str, path: &[PathBuf]) -> Result<String, Error> {
    let is_ours = plugin_name == BRAID
        || plugins::TYPES.contains(&plugin_name)
        || ipam::TYPES.contains(&plugin_name);
    let circle = if is_ours {
        None
    } else {
        delegate::circle(plugin_name, path, &Owner::default(), false)
    };
    circle.map_or_else(|| Ok(version_reply(&Version::ALL)), Err)
}
