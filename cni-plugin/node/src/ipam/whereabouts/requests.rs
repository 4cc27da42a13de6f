//! Requests about pools and reservations that need no journal: also about those of other nodes.

use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::{Api, Failure};
use braid_core::ipam::whereabouts::pool::{Entry, Node, Note, Pool};
use braid_core::ipam::whereabouts::{fence, names};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// Removes an annotation of a node from a pool, together with its entries, except those of claims.
/// Returns the removed ones; `None` if the node, or another one, has changed the pool meanwhile.
/// Reservations are of one of the `networks`.
pub(super) fn free_node(
    api: &mut dyn Api,
    (name, net, networks): (&str, IpNet, &[&str]),
    pool: &Pool,
    (text, note): (&str, &Note),
) -> Result<Option<BTreeMap<u128, Entry>>, Error> {
    let named = pool.entries_of(note);
    let of_pods = named.iter().filter(|(_, entry)| entry.claim().is_none());
    let entries: BTreeMap<u128, Entry> = of_pods.map(|(at, it)| (*at, it.clone())).collect();
    // Read first: the pool without these entries no longer tells of them.
    let mut reserved = Vec::new();
    for (at, entry) in &entries {
        let Some(address) = names::address(net, *at) else {
            continue;
        };
        for network in networks {
            let of = names::reservation(network, address);
            let uid = uid_of(api, &of, entry, (&note.node, name))?;
            reserved.extend(uid.map(|uid| (of, uid)));
        }
    }
    let patch = fence::patch(&pool.uid, &note.node, text, &entries);
    match api.change_pool(name, &patch) {
        // An entry that is still in use keeps its reservation. One that is left here is collected.
        Ok(_) => delete_reservations(api, &reserved).map(|()| Some(entries)),
        Err(Failure::Unfit | Failure::Missing) => Ok(None),
        Err(err) => Err(failed("change IPPool", name, &err)),
    }
}

/// Deletes reservations with these names and uids.
pub(super) fn delete_reservations(
    api: &mut dyn Api,
    all: &[(String, String)],
) -> Result<(), Error> {
    let deleted = api.unreserve_all(all);
    for ((name, _), deleted) in all.iter().zip(deleted) {
        deleted.map_err(|err| failed("delete reservation", name, &err))?;
    }
    Ok(())
}

/// Returns the uid of the reservation of a node's entry in a pool, if there is one.
pub(super) fn uid_of(
    api: &mut dyn Api,
    name: &str,
    entry: &Entry,
    (node, pool): (&Node, &str),
) -> Result<Option<String>, Error> {
    let found = api.reservation(name);
    let found = found.map_err(|err| failed("read reservation", name, &err))?;
    let found = found.filter(|found| found.is_of(entry, node, pool));
    Ok(found.map(|found| found.uid))
}

/// Returns the error of a request about an object.
pub(super) fn failed(doing: &str, name: &str, err: &Failure) -> Error {
    let kind = match err {
        Failure::Lasting(_) => Kind::Internal,
        Failure::Exists | Failure::Unfit | Failure::Missing | Failure::Passing(_) => Kind::TryAgain,
    };
    Error::new(kind, format!("{doing} {name}: {err}"))
}
