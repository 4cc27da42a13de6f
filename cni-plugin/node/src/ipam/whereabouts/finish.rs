//! Requests of `braid ipam finish`: pools of Whereabouts become braid's alone.

use super::admin::pools;
use super::requests::{delete_reservations, failed, uid_of};
use super::reservations::reservations;
use super::session::TRIES;
use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Failure, Reserved, Server};
use braid_core::ipam::whereabouts::finish::{self, Foreign, Next, Progress};
use braid_core::ipam::whereabouts::inventory::Assigned;
use braid_core::ipam::whereabouts::names;
use braid_core::ipam::whereabouts::pods::FoundPod;
use braid_core::ipam::whereabouts::pool::{ListedPool, Node};
use std::collections::BTreeSet;
use std::time::Duration;

/// Marks all pools as braid's alone, after it has removed the entries of Whereabouts without a pod. Writes
/// the progress to `progress`, also before an error. `now` is the time since 1970. With `is_forced`,
/// programs of Whereabouts may be in the cluster.
pub fn finish(
    server: &mut dyn Server,
    is_forced: bool,
    now: Duration,
    progress: &mut Progress,
) -> Result<(), Error> {
    if !is_forced {
        ensure_gone(server)?;
    }
    let found = pools(server)?;
    if found.is_empty() {
        let why = "there is no IPPool in the namespace of the kubeconfig's context";
        return Err(Error::internal(why));
    }
    // The pods are read after the entries: Whereabouts writes an entry of a pod that exists.
    let pods = server.pods();
    let pods = pods.map_err(|err| failed("read", "all pods", &err))?;
    progress.used = finish::used(&found, &pods);
    if !progress.used.is_empty() {
        let why =
            "Whereabouts attached pods that exist: make them again, with braid on their nodes";
        return Err(Error::internal(why));
    }
    for pool in found {
        finish_pool(server, pool, now, progress)?;
    }
    if !progress.waiting.is_empty() {
        let why = format!(
            "entries of Whereabouts have no pod: run the command again in {} minutes, to see whether \
             they are still the same",
            progress.wait_seconds.div_ceil(60)
        );
        return Err(Error::new(Kind::TryAgain, why));
    }
    collect_reservations(server, &pods)?;
    progress.exclusive = finish::exclusive(&pools(server)?).map_err(|name| {
        let why = format!("IPPool {name} was changed meanwhile: run the command again");
        Error::new(Kind::TryAgain, why)
    })?;
    progress.finished = true;
    Ok(())
}

/// Fails if a program of Whereabouts is in the cluster.
fn ensure_gone(server: &mut dyn Server) -> Result<(), Error> {
    let programs = server.programs().map_err(|err| {
        let why = format!(
            "can't see whether Whereabouts is still in the cluster: {err} (--force skips this check)"
        );
        Error::internal(why)
    })?;
    if programs.is_empty() {
        return Ok(());
    }
    let why = format!(
        "Whereabouts is still in the cluster: {}; delete it first",
        programs.join(", ")
    );
    Err(Error::internal(why))
}

fn finish_pool(
    server: &mut dyn Server,
    mut pool: ListedPool,
    now: Duration,
    progress: &mut Progress,
) -> Result<(), Error> {
    for _ in 0..TRIES {
        let mut reserved = Vec::new();
        let (patch, released) = match finish::next(&pool, now) {
            Next::Nothing => return Ok(()),
            Next::Wait {
                note: Some(note), ..
            } => (finish::look(&pool, &note), Vec::new()),
            Next::Wait {
                entries,
                left,
                note: None,
            } => {
                progress.wait_seconds = progress.wait_seconds.max(left.as_secs());
                progress.waiting.extend(assigned(&pool, &entries));
                return Ok(());
            }
            Next::End(entries) => {
                reserved = reservations_of(server, &pool, &entries)?;
                (finish::end(&pool, &entries), assigned(&pool, &entries))
            }
        };
        let name = &pool.name;
        match server.change_pool(name, &patch) {
            // An entry that is in use again keeps its reservation.
            Ok(changed) => {
                progress.released.extend(released);
                delete_reservations(server, &reserved)?;
                pool.pool = changed;
            }
            // A node has changed the pool.
            Err(Failure::Unfit | Failure::Missing) => {
                let read = server.pool(name);
                match read.map_err(|err| failed("read IPPool", name, &err))? {
                    Some(read) => pool.pool = read,
                    None => return Ok(()),
                }
            }
            Err(err) => return Err(failed("change IPPool", name, &err)),
        }
    }
    let name = &pool.name;
    let why = format!("IPPool {name}: nodes changed it during each of {TRIES} attempts");
    Err(Error::new(Kind::TryAgain, why))
}

/// Returns name and uid of the reservations of entries.
fn reservations_of(
    server: &mut dyn Server,
    pool: &ListedPool,
    entries: &Foreign<'_>,
) -> Result<Vec<(String, String)>, Error> {
    let Some(net) = pool.net() else {
        return Ok(Vec::new());
    };
    let networks = names::all_networks(&pool.name, net);
    let mut reserved = Vec::new();
    for (at, entry) in entries {
        let Some(address) = names::address(net, *at) else {
            continue;
        };
        for network in &networks {
            let name = names::reservation(network, address);
            // No node of braid has the entry, so its reservation names the pod.
            let uid = uid_of(server, &name, entry, (&Node::default(), &pool.name))?;
            reserved.extend(uid.map(|uid| (name, uid)));
        }
    }
    Ok(reserved)
}

/// Deletes reservations of Whereabouts without a pod and without an entry: those of entries that a
/// command removed before it was killed, and those that Whereabouts has left.
fn collect_reservations(server: &mut dyn Server, pods: &[FoundPod]) -> Result<(), Error> {
    let all = reservations(server)?;
    let mut kept = BTreeSet::new();
    // Read after the reservations: Whereabouts writes an entry first.
    for pool in pools(server)? {
        if let Some(net) = pool.net() {
            for network in names::all_networks(&pool.name, net) {
                let offsets = pool.pool.entries.keys();
                let addresses = offsets.filter_map(|at| names::address(net, *at));
                kept.extend(addresses.map(|address| names::reservation(network, address)));
            }
        }
    }
    let has_pod = |found: &Reserved| pods.iter().any(|pod| pod.name == found.podref);
    let mut left = Vec::new();
    for found in all {
        if found.is_foreign() && !has_pod(&found) && !kept.contains(&found.name) {
            left.push((found.name, found.uid));
        }
    }
    delete_reservations(server, &left)
}

fn assigned(pool: &ListedPool, entries: &Foreign<'_>) -> Vec<Assigned> {
    let entries = entries.iter();
    entries
        .map(|(at, entry)| Assigned::new(pool, *at, entry, None))
        .collect()
}
