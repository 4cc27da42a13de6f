//! Requests of the command `braid ipam`.

use super::requests::{failed, free_node};
use braid_core::cni::{Error, Kind};
use braid_core::ipam::whereabouts::api::Server;
use braid_core::ipam::whereabouts::fence::FoundNode;
use braid_core::ipam::whereabouts::inventory::{self, Assigned, Inventory, Refusal};
use braid_core::ipam::whereabouts::names;
use braid_core::ipam::whereabouts::pool::{ListedPool, Note};
use std::collections::BTreeMap;

pub use super::way::default_kubeconfig;

/// Largest number of rounds of a release. A node that runs writes its entries again.
const ROUNDS: usize = 5;

/// Reads all pools, and the Node objects of their nodes.
pub fn inventory(server: &mut dyn Server) -> Result<Inventory, Error> {
    let pools = pools(server)?;
    let mut found = BTreeMap::new();
    for name in inventory::nodes(&pools) {
        if let Some(node) = node(server, &name)? {
            found.insert(name, node);
        }
    }
    Ok(inventory::count(&pools, &found))
}

/// Reads the addresses in use, of one pool or of all.
pub fn assigned(server: &mut dyn Server, pool: Option<&str>) -> Result<Vec<Assigned>, Error> {
    let mut pools = pools(server)?;
    if let Some(name) = pool {
        pools.retain(|pool| pool.name == name);
        if pools.is_empty() {
            return Err(Error::internal(format!("there is no IPPool {name:?}")));
        }
    }
    Ok(inventory::assigned(&pools))
}

/// Releases the addresses of a node that is gone, or of any with `is_forced`, in all pools. Adds them
/// to `released`, also those before an error. Returns after the pools no longer have the entries.
pub fn release(
    server: &mut dyn Server,
    name: &str,
    is_forced: bool,
    released: &mut Vec<Assigned>,
) -> Result<(), Error> {
    for round in 0..ROUNDS {
        let pools = pools(server)?;
        let found = node(server, name)?;
        match inventory::releasable(&pools, name, found.as_ref(), is_forced) {
            Ok(notes) => {
                for (pool, text, note) in notes {
                    free(server, pool, (text, &note), released)?;
                }
            }
            Err(refusal) if round == 0 || is_back(&refusal, released) => {
                return Err(Error::internal(refusal.to_string()));
            }
            // No pool has an entry of the node any more, or those of its new machine alone.
            Err(_) => return Ok(()),
        }
    }
    let why = format!("node {name:?}: it still changes the pools, so it runs");
    Err(Error::new(Kind::TryAgain, why))
}

/// True if the node came back before an address was released.
fn is_back(refusal: &Refusal, released: &[Assigned]) -> bool {
    released.is_empty() && matches!(refusal, Refusal::Present(_))
}

fn free(
    server: &mut dyn Server,
    pool: &ListedPool,
    (text, note): (&str, &Note),
    released: &mut Vec<Assigned>,
) -> Result<(), Error> {
    let ListedPool { name, range, .. } = pool;
    let of = pool
        .net()
        .map(|net| (net, names::networks(name, net, &note.node.name)));
    let Some((net, networks)) = of.filter(|(_, networks)| !networks.is_empty()) else {
        let why = format!("IPPool {name}: it is not named for its range {range:?}");
        return Err(Error::internal(why));
    };
    let freed = free_node(server, (name, net, &networks), &pool.pool, (text, note))?;
    for (at, entry) in freed.into_iter().flatten() {
        let one = Assigned::new(pool, at, &entry, Some(&note.node));
        if !released.contains(&one) {
            released.push(one);
        }
    }
    Ok(())
}

/// Reads all pools.
pub(super) fn pools(server: &mut dyn Server) -> Result<Vec<ListedPool>, Error> {
    server
        .pools()
        .map_err(|err| failed("read", "all IPPools", &err))
}

fn node(server: &mut dyn Server, name: &str) -> Result<Option<FoundNode>, Error> {
    server
        .node(name)
        .map_err(|err| failed("read Node", name, &err))
}
