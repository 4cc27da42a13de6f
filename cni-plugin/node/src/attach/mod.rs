//! Each verb of CNI for all networks of a container, and all plugins of their chains, in one
//! process.
//!
//! ```text
//!  request ─► invocation: networks, each with its chain: items, native or foreign, each with its IPAM
//!  add     ─► for each run of native plugins: observe, refuse, reserve, plan (planner) ─► one transaction
//!  preview ─► the same plans, with addresses looked up and not reserved: nothing is changed
//!  del, gc ─► take_back: inverses of the record, newest first; from names alone where no record is left
//!  check   ─► every step of the record holds, and what the result says is there
//!  status  ─► store, kernel, parents, addresses: could an ADD work now?
//! ```

pub mod add;
pub mod chain;
pub mod check;
pub mod del;
pub mod device_file;
mod flannel;
pub mod gc;
pub mod invocation;
mod last_mac;
mod lease_request;
pub mod leases;
pub mod liveness;
pub mod orphans;
pub mod planner;
pub mod pods;
pub mod preview;
mod reconstruct;
pub mod recorded;
mod reserver;
mod routes;
pub mod status;
pub mod teardown;
#[cfg(test)]
mod tests;
mod unrecorded;

use crate::apply::delegate;
use crate::apply::host::{Machine, This};
use crate::ipam;
use crate::log::Log;
use braid_core::cni::version::version_reply;
use braid_core::cni::{Command, Error, Owner, Request, Version};
use braid_core::k8s::settings::Settings;
use braid_core::plugins;
use chain::{BRAID, Chain};
use invocation::Invocation;
use std::path::PathBuf;

/// Answers a request: the result of ADD is delivered, the other verbs say nothing on success.
pub fn answer(
    request: Request,
    face: &str,
    log: Log,
    deliver: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<Option<Done>, Error> {
    let machine = This::new(log);
    if Chain::face_of(face, &request.conf) == BRAID
        && let Some(settings) = Settings::of(&request.conf)?
    {
        return of_pods(request, face, &settings, &machine, deliver);
    }
    let chain = |request: &Request| Chain::parse(face, request.conf.clone(), "", &request.path);
    match request.command {
        Command::Add => {
            let version = request.conf.version;
            let call = Invocation::of(request, face)?;
            let added = add::add(&call, &machine, &mut |results, _| {
                deliver(&add::stdout(results, version)?).map(|()| None)
            })?;
            return Ok(Some(Done {
                _call: Some(call),
                _added: added,
            }));
        }
        Command::Del => del::del(request, face, &machine)?,
        Command::Check => check::check(Invocation::of(request, face)?, &machine)?,
        Command::Gc => gc::gc(&request, &chain(&request)?, &machine)?,
        Command::Status => status::status(&chain(&request)?, &machine)?,
        Command::Version => {}
    }
    Ok(None)
}

/// Answers a request for a pod.
#[cold]
fn of_pods(
    request: Request,
    face: &str,
    settings: &Settings,
    machine: &dyn Machine,
    deliver: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<Option<Done>, Error> {
    match request.command {
        Command::Add => {
            let added = pods::add(&request, settings, machine, deliver)?;
            return Ok(Some(Done {
                _call: None,
                _added: added,
            }));
        }
        Command::Del => pods::del(request, settings, face, machine)?,
        Command::Check => pods::check(request, settings, face, machine)?,
        Command::Gc => pods::gc(&request, settings, face, machine)?,
        Command::Status => pods::status(&request, settings, machine)?,
        Command::Version => {}
    }
    Ok(None)
}

/// Values of an ADD that is done. A process that ends behind it saves time if it forgets them
/// ([`std::mem::forget`]): nothing is then freed or closed one by one.
#[derive(Debug)]
pub struct Done {
    _call: Option<Invocation>,
    _added: add::Added,
}

/// Answers VERSION. A name that leads to this program and is none of its types serves no other
/// verb.
pub fn version(face: &str, path: &[PathBuf]) -> Result<String, Error> {
    let is_ours = face == BRAID || plugins::TYPES.contains(&face) || ipam::TYPES.contains(&face);
    let circle = if is_ours {
        None
    } else {
        delegate::circle(face, path, &Owner::default(), false)
    };
    circle.map_or_else(|| Ok(version_reply(&Version::ALL)), Err)
}
