//! Calls of both programs, each as one function.

use super::super::session::Session;
use super::peer;
use super::world::{Book, Seat, Shared};
use braid_core::ipam::whereabouts::api::{Api, Store};
use braid_core::ipam::whereabouts::journal::{Asker, Journal, Place};
use braid_core::ipam::whereabouts::pool::{Entry, Node};
use braid_core::ipam::whereabouts::{PoolRange, names, steps};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A call on a node.
#[derive(Debug, Clone)]
pub(super) enum Verb {
    Add(Entry),
    Del(Entry),
    /// Releases the addresses of all containers but these.
    Gc(Vec<String>),
    /// Compares the pool with the journal.
    Look,
    /// Holds so many addresses, as the agent does.
    Tend(usize),
    /// Frees the addresses of the claims with these uids.
    Free(BTreeSet<String>),
    /// Deletes reservations without an entry.
    Collect,
    /// ADD that takes a held address, or fails.
    Take(Entry),
    /// DEL that leaves the requests to the agent.
    Leave(Entry),
}

impl Verb {
    /// Returns the attachment that the call is for.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Add(entry) | Self::Del(entry) | Self::Take(entry) | Self::Leave(entry) => {
                Some(entry)
            }
            Self::Gc(_) | Self::Look | Self::Tend(_) | Self::Free(_) | Self::Collect => None,
        }
    }

    /// True if the call sends requests, one after the other in a node.
    pub(super) fn has_requests(&self) -> bool {
        !matches!(self, Self::Take(_) | Self::Leave(_))
    }
}

/// The program that serves a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Braid,
    Whereabouts,
}

/// Runs a call. Returns `None` if it was killed.
pub(super) fn work(
    seat: Seat,
    (by, verb): (By, &Verb),
    (node, range, has_reservations): (&Node, &PoolRange, bool),
) -> Option<Result<Option<IpAddr>, String>> {
    let seat = Arc::new(Mutex::new(seat));
    let name = names::pool("", range.net);
    let (mut api, mut store) = (Shared(Arc::clone(&seat)), Book(seat, name.clone()));
    if by == By::Whereabouts {
        let seat = &mut *api.seat();
        return Some(match verb {
            Verb::Add(entry) => match peer::add(seat, entry, range, has_reservations) {
                Some(address) => Ok(Some(address)),
                None => Err("no address".to_owned()),
            },
            Verb::Del(entry) => {
                peer::del(seat, entry, range, has_reservations);
                Ok(None)
            }
            Verb::Gc(_)
            | Verb::Look
            | Verb::Tend(_)
            | Verb::Free(_)
            | Verb::Collect
            | Verb::Take(_)
            | Verb::Leave(_) => Ok(None),
        });
    }
    let pool = Place {
        name,
        net: range.net,
        network: String::new(),
        has_reservations,
        kubeconfig: PathBuf::new(),
    };
    let view = api.clone();
    let (process, ended) = {
        let seat = view.seat();
        let ended = seat.world.lock().ended.clone();
        (u32::try_from(seat.call).unwrap_or(u32::MAX), ended)
    };
    let step = match verb {
        Verb::Take(entry) => Some(take(&mut store, (entry, node), range)),
        Verb::Leave(entry) | Verb::Del(entry) => Some(leave(&mut store, &|journal| {
            steps::release(journal, entry);
        })),
        Verb::Gc(kept) => Some(leave(&mut store, &|journal| {
            steps::release_where(journal, &|own| {
                own.network == "lan" && !kept.contains(&own.entry.id)
            });
        })),
        Verb::Add(entry) => Some(leave(&mut store, &|journal| {
            journal.waiting.add(entry, process);
        })),
        Verb::Look | Verb::Tend(_) | Verb::Free(_) | Verb::Collect => None,
    };
    if let Some(done) = step
        && (!verb.has_requests() || done.is_err())
    {
        return (!view.is_dead()).then_some(done);
    }
    let all = if matches!(verb, Verb::Collect) {
        api.reservations().unwrap_or_default()
    } else {
        Vec::new()
    };
    let done =
        Session::open(&pool, node, &mut api, &mut store).and_then(|mut session| match verb {
            Verb::Add(entry) => {
                let is_running = |call: u32| !ended.contains(&(call as usize));
                session.judge_waiting(&is_running, false)?;
                session.reserve(asker(entry), range, None).map(Some)
            }
            Verb::Del(_) | Verb::Gc(_) => {
                // What it cannot pay is owed.
                let _ = session.pay();
                Ok(None)
            }
            Verb::Look => session.look().map(|()| None),
            Verb::Tend(target) => session.tend(*target).map(|()| None),
            Verb::Collect => session.collect_reservations(&all).map(|()| None),
            Verb::Free(deleted) => session.free_claims(deleted).map(|_| None),
            Verb::Take(_) | Verb::Leave(_) => Ok(None),
        });
    if view.is_dead() {
        return None;
    }
    Some(done.map_err(|err| err.msg))
}

fn take(
    store: &mut Book,
    (entry, node): (&Entry, &Node),
    range: &PoolRange,
) -> Result<Option<IpAddr>, String> {
    let mut held = None;
    let taken = store.update(&mut |journal| {
        held = steps::take((journal, range, None), asker(entry), &node.boot);
    });
    taken.map_err(|err| err.msg)?;
    let address = held.and_then(|at| names::address(range.net, at));
    address.map(Some).ok_or_else(|| "none is held".to_owned())
}

fn leave(store: &mut Book, release: &dyn Fn(&mut Journal)) -> Result<Option<IpAddr>, String> {
    let left = store.update(&mut |journal| release(journal));
    left.map(|_| None).map_err(|err| err.msg)
}

fn asker(entry: &Entry) -> Asker<'_> {
    Asker {
        entry,
        network: "lan",
        pod: entry.id.strip_prefix("web-"),
        avoids_refused: false,
    }
}
