//! Addresses that are unique in the cluster, in Whereabouts' objects.
//!
//! ```text
//!  WhereaboutsConfig ─► one Session per range: store (journal) + remote (API server) ─► Lease
//!  DEL, GC: the journals name pools and API server, so no configuration is needed
//! ```

pub mod session;
pub mod store;

use super::liveness::Netns;
use super::{Host, Ipam, Kept};
use crate::sys::boot;
use braid_core::cni::{AddResult, Error, IpConfig, Kind, Owner};
use braid_core::ipam::Lease;
use braid_core::ipam::whereabouts::api::{Failure, Server};
use braid_core::ipam::whereabouts::journal::{Journal, Own, Place, State};
use braid_core::ipam::whereabouts::pool::{Entry, Node};
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, names};
use ipnet::IpNet;
use session::Session;
use std::net::IpAddr;
use std::path::Path;
use std::time::UNIX_EPOCH;
use store::{FOLDER, JournalFile};

/// Returns the node's identity, which the API server tells once.
fn identity(
    boot: String,
    pod: Option<&(String, String)>,
    server: &mut dyn Server,
) -> Result<Node, Error> {
    let path = store::node(Path::new(FOLDER));
    if let Some(known) = store::read::<Node>(&path)? {
        server.act_for(&known.name);
        return Ok(Node { boot, ..known });
    }
    let (namespace, pod) =
        pod.ok_or_else(|| Error::env("CNI_ARGS has no pod name: K8S_POD_NAME"))?;
    let name = server.node_of(namespace, pod);
    let name = name.map_err(|err| failed("pod", &err))?;
    let uid = server.uid_of(&name).map_err(|err| failed("Node", &err))?;
    let node = Node { name, uid, boot };
    server.act_for(&node.name);
    crate::sys::private::make_folders(Path::new(FOLDER))
        .map_err(|err| Error::io(format!("create {FOLDER}: {err}")))?;
    store::write(&path, &node)?;
    Ok(node)
}

/// Returns the id of this boot. Without it, addresses of this boot would count as those of another.
fn this_boot() -> Result<String, Error> {
    boot::id().map_err(|err| Error::io(format!("read {}: {err}", boot::ID)))
}

fn failed(what: &str, err: &Failure) -> Error {
    let kind = match err {
        Failure::Passing(_) => Kind::TryAgain,
        Failure::Exists | Failure::Unfit | Failure::Missing | Failure::Lasting(_) => Kind::Internal,
    };
    Error::new(kind, format!("read the {what}: {err}"))
}

fn entry(owner: &Owner) -> Entry {
    Entry {
        id: owner.container_id.clone(),
        podref: String::new(),
        ifname: owner.ifname.clone(),
    }
}

trait Places {
    fn kubeconfig(&self) -> Result<&Path, Error>;
    fn place(&self, range: &PoolRange) -> Result<Place, Error>;
}

impl Places for WhereaboutsConfig {
    fn kubeconfig(&self) -> Result<&Path, Error> {
        self.kubeconfig.as_deref().ok_or_else(|| {
            let why = "whereabouts: neither the network nor a flat file has kubernetes.kubeconfig";
            Error::config(why).at_key("ipam")
        })
    }

    fn place(&self, range: &PoolRange) -> Result<Place, Error> {
        Ok(Place {
            name: names::pool(&self.network_name, range.net),
            net: range.net,
            network: self.network_name.clone(),
            has_reservations: self.has_reservations,
            kubeconfig: self.kubeconfig()?.to_owned(),
        })
    }
}

impl Ipam for WhereaboutsConfig {
    fn has_ipv6(&self) -> bool {
        self.ranges.iter().any(|range| range.first.is_ipv6())
            || self.fixed.iter().any(|ip| ip.address.addr().is_ipv6())
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        let mut config = self.clone();
        config.ranges.retain(|range| range.first.is_ipv4());
        config.requested.retain(IpAddr::is_ipv4);
        config.fixed.retain(|ip| ip.address.addr().is_ipv4());
        config.routes.retain(|route| route.dst.addr().is_ipv4());
        let is_empty = config.ranges.is_empty() && config.fixed.is_empty();
        (!is_empty).then(|| -> Box<dyn Ipam> { Box::new(config) })
    }

    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        let mut server = host.servers.open(self.kubeconfig()?);
        let node = identity(this_boot()?, self.pod.as_ref(), &mut *server)?;
        let entry = entry(owner);
        let mut ips = Vec::new();
        let mut full = None;
        for range in &self.ranges {
            let place = self.place(range)?;
            let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
            let mut session = Session::open(&place, &node, &mut *server, &mut journal)?;
            let requested = self.requested.iter().find(|ip| range.contains(**ip));
            let reserved = session.reserve((&entry, &owner.network), range, requested.copied());
            match reserved {
                Ok(address) => {
                    ips.push(in_range(range, address));
                    if self.is_first {
                        break;
                    }
                }
                Err(err) if self.is_first && err.kind == Kind::NoFreeAddress => full = Some(err),
                Err(err) => {
                    drop(session);
                    drop(journal);
                    // The journals owe what cannot be released now.
                    if let Err(left) = self.release(owner, host) {
                        host.log.warn(&left);
                    }
                    return Err(err);
                }
            }
        }
        if let Some(full) = full.filter(|_| ips.is_empty()) {
            return Err(full);
        }
        ips.extend(self.fixed.iter().cloned());
        Ok(Lease {
            ips,
            routes: self.routes.clone(),
            dns: self.dns.clone(),
        })
    }

    fn peek(&self, _host: Host<'_>) -> Result<Lease, Error> {
        let mut ips = Vec::new();
        for range in &self.ranges {
            let name = names::pool(&self.network_name, range.net);
            let journal = journal_of(&name)?;
            let free = range.free(|address| {
                names::offset(range.net, address).is_none_or(|at| journal.is_taken(at))
            });
            ips.extend(free.map(|address| in_range(range, address)));
        }
        ips.extend(self.fixed.iter().cloned());
        Ok(Lease {
            ips,
            routes: self.routes.clone(),
            dns: self.dns.clone(),
        })
    }

    fn check(
        &self,
        owner: &Owner,
        _prev_result: Option<&AddResult>,
        _host: Host<'_>,
    ) -> Result<(), Error> {
        let entry = entry(owner);
        for range in &self.ranges {
            let name = names::pool(&self.network_name, range.net);
            if journal_of(&name)?.used_by(&entry).is_some() {
                if self.is_first {
                    return Ok(());
                }
            } else if !self.is_first {
                let id = &owner.container_id;
                let why = format!("IPPool {name} has no address of container {id}");
                return Err(Error::internal(why));
            }
        }
        if self.is_first {
            let id = &owner.container_id;
            let why = format!("no IPPool has an address of container {id}");
            return Err(Error::internal(why));
        }
        Ok(())
    }

    /// Releases the addresses of `owner` in all pools. Without an answer of the API server, the journal
    /// owes them.
    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let entry = entry(owner);
        release_where(host, &|own| own.entry == entry)
    }

    fn gc(&self, kept: Kept<'_>, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let network = host.liveness.network();
        let is_gone = |own: &Own| {
            if own.network != network {
                return false;
            }
            let owner = Owner::new(network, &own.entry.id, &own.entry.ifname);
            match kept {
                Kept::Listed(owners) => !owners.contains(&owner),
                Kept::NotGone => host.liveness.netns_of(&owner, UNIX_EPOCH) == Netns::Gone,
            }
        };
        release_where(host, &is_gone)
    }
}

fn in_range(range: &PoolRange, address: IpAddr) -> IpConfig {
    let net = IpNet::new(address, range.net.prefix_len());
    IpConfig {
        address: net.unwrap_or_else(|_| IpNet::from(address)),
        gateway: range.gateway,
        interface: None,
    }
}

/// Reads the journal of a pool without its lock.
fn journal_of(pool: &str) -> Result<Journal, Error> {
    for path in store::journals(Path::new(FOLDER))? {
        let journal = store::peek(&path)?;
        if journal
            .place
            .as_ref()
            .is_some_and(|place| place.name == pool)
        {
            return Ok(journal);
        }
    }
    Ok(Journal::default())
}

/// Releases addresses in all pools, and pays the node's debts.
fn release_where(host: Host<'_>, is_gone: &dyn Fn(&Own) -> bool) -> Result<Vec<IpAddr>, Error> {
    let (mut released, mut errors) = (Vec::new(), Vec::new());
    for path in store::journals(Path::new(FOLDER))? {
        let seen = store::peek(&path)?;
        let Some(place) = &seen.place else { continue };
        let concerns = |own: &Own| own.state != State::Used || is_gone(own);
        if !seen.own.values().any(concerns) && !seen.is_behind() {
            continue;
        }
        let work = || -> Result<Vec<IpAddr>, Error> {
            let mut server = host.servers.open(&place.kubeconfig);
            let boot = this_boot()?;
            let known = identity(boot.clone(), None, &mut *server);
            // Without the node's name, the journal alone is written.
            let node = known.clone().unwrap_or_else(|_| Node {
                boot,
                ..Node::default()
            });
            let mut journal = JournalFile::lock(Path::new(FOLDER), &place.name)?;
            let mut session = Session::open(place, &node, &mut *server, &mut journal)?;
            let released = session.release_where(is_gone)?;
            if let Err(err) = known.and_then(|_| session.pay()) {
                // The next call pays, or the agent.
                host.log.warn(&err);
            }
            Ok(released)
        };
        match work() {
            Ok(some) => released.extend(some),
            Err(err) => errors.push(err),
        }
    }
    Error::joined(&errors).map(|()| released)
}

#[cfg(test)]
mod tests;
