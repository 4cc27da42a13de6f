//! Addresses that are unique in the cluster, in Whereabouts' objects.
//!
//! ```text
//!  WhereaboutsConfig ─► one Session per range: store (journal) + remote (API server) ─► Lease
//!  (assign: the ranges of one ADD)
//!  Lease ─► probed: without addresses of other hosts on the link, if the configuration requests it
//!  DEL, GC: the journals name pools and API server, so no configuration is needed
//!  agent ─► Tender ─► one Session per journal: debts paid, addresses held
//!  braid ipam ─► admin: pools listed, a node's addresses released; finish: the end of Whereabouts
//! ```

pub mod admin;
mod assign;
pub mod claims;
pub mod finish;
mod journaled;
mod probed;
mod release;
mod requests;
mod reservations;
mod reserve;
pub mod session;
pub mod store;
pub mod tender;
mod way;

use super::host_local::claimed;
use super::liveness::Netns;
use super::{Host, Ipam, Kept};
use assign::{Assigned, assign, give_back};
use braid_core::cni::{AddResult, Error, Owner};
use braid_core::ipam::whereabouts::journal::{Own, Place};
use braid_core::ipam::whereabouts::{PoolRange, WhereaboutsConfig, steps};
use braid_core::ipam::{Claim, Lease};
use braid_core::k8s::ipam_claim::uid_of_owner;
use journaled::{entry, in_range, journals_of, next, used_in};
use release::{Payer, is_known, release_in, release_known, release_where};
pub use release::{free, owners};
use std::net::IpAddr;
use std::time::UNIX_EPOCH;
use way::{kubeconfig, pool_of};

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

    fn probes(&self) -> bool {
        self.probes
    }

    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        let lease = assign(self, owner, host)?;
        let Some(prober) = host.prober.filter(|_| self.probes) else {
            return Ok(lease);
        };
        let mut pools = Assigned {
            config: self,
            owner,
            host,
        };
        let probed = probed::without_conflict(lease, prober, &mut pools, host.log);
        probed.inspect_err(|_| give_back(self, owner, host))
    }

    fn reserve_claimed(
        &self,
        claim: &Claim,
        owner: &Owner,
        host: Host<'_>,
    ) -> Result<Lease, Error> {
        // During a migration of a virtual machine, another host has the addresses of the claim.
        let mut config = Self {
            probes: false,
            ..self.clone()
        };
        let has = |ip: &IpAddr| self.ranges.iter().any(|range| range.contains(*ip));
        if let Some(ip) = claim.addresses.iter().find(|ip| !has(ip)) {
            let why = format!("address {ip} of claim {} is in no range", claim.owner);
            return Err(Error::config(why).at_key("ipam"));
        }
        if !claim.addresses.is_empty() {
            config.requested.clone_from(&claim.addresses);
        }
        config.reserve(&claimed::owner(&owner.network, &claim.owner), host)
    }

    fn owners(&self) -> Result<Vec<Owner>, Error> {
        owners()
    }

    fn keeps_claims(&self) -> bool {
        true
    }

    fn release_claimed(&self, owner: &Owner, host: Host<'_>) -> Result<(), Error> {
        match uid_of_owner(&owner.container_id) {
            Some(_) => self.release(owner, host).map(drop),
            None => Ok(()),
        }
    }

    fn peek(&self, _host: Host<'_>) -> Result<Lease, Error> {
        let journals = journals_of(self)?;
        let mut ips = Vec::new();
        for range in &self.ranges {
            let free = next(range, &journals);
            ips.extend(free.map(|address| in_range(range, address)));
            if self.is_first && !ips.is_empty() {
                break;
            }
        }
        Ok(self.lease(ips))
    }

    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        _host: Host<'_>,
    ) -> Result<(), Error> {
        let entry = entry(owner);
        let id = &owner.container_id;
        let held = used_in(&journals_of(self)?, &entry);
        let has_one = |range: &PoolRange| held.iter().any(|ip| range.net.contains(ip));
        let lacking = self.ranges.iter().find(|range| !has_one(range));
        if let Some(range) = lacking.filter(|_| !self.is_first || held.is_empty()) {
            let why = format!("no address of {} is reserved for container {id}", range.net);
            return Err(Error::internal(why));
        }
        let ips = prev_result.map_or(&[][..], |result| &result.ips);
        let has = |ip: &IpAddr| ips.iter().any(|one| one.address.addr() == *ip);
        match held.iter().find(|ip| prev_result.is_some() && !has(ip)) {
            Some(ip) => {
                let why = format!("address {ip} of container {id} is not in prevResult");
                Err(Error::internal(why))
            }
            None => Ok(()),
        }
    }

    /// Asks no API server: a runtime calls this every few seconds.
    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        let path = kubeconfig(self).map_err(|err| Error::not_available(err.to_string()))?;
        let opened = std::fs::File::open(&path);
        opened.map_err(|err| Error::not_available(format!("open {}: {err}", path.display())))?;
        let journals = journals_of(self)?;
        let mut ranges = self.ranges.iter();
        let full = ranges.find(|range| next(range, &journals).is_none());
        Ok(full.map(|range| format!("no address of {} is free", range.net)))
    }

    /// Releases the addresses of `owner` in all pools. Without an answer of the API server, the journal
    /// owes them. An owner that no journal knows may be one that Whereabouts attached, so it is looked
    /// for in the pools of this configuration.
    fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let entry = entry(owner);
        if is_known(&entry)? {
            return release_known(host, &entry);
        }
        if entry.claim().is_some() {
            return Ok(Vec::new());
        }
        let kubeconfig = match kubeconfig(self) {
            Ok(kubeconfig) => kubeconfig,
            // Without one, this node has never had an address of the network.
            Err(err) => {
                host.log.warn(&err);
                return Ok(Vec::new());
            }
        };
        let mut payer = Payer::new(host, self.pod.as_ref());
        let mut places = Vec::new();
        for range in &self.ranges {
            let way = payer.way(&kubeconfig)?;
            match pool_of(self, range, way) {
                Ok((place, _)) => places.push(place),
                Err(err) => host.log.warn(&err),
            }
        }
        let released = release_in(places, &mut payer, &|journal| {
            steps::release(journal, &entry)
        });
        if let Err(err) = released {
            host.log.warn(&err);
        }
        Ok(Vec::new())
    }

    fn gc(&self, kept: Kept<'_>, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        let network = host.liveness.network();
        let is_gone = |own: &Own| {
            // The caller knows the claims of its records.
            let is_its = own.network == network || own.network.is_empty();
            if !is_its || own.entry.claim().is_some() {
                return false;
            }
            let owner = Owner::new(network, &own.entry.id, &own.entry.ifname);
            match kept {
                // An attachment that was read back from the pool may be of another network.
                Kept::Listed(owners) if !own.network.is_empty() => !owners.contains(&owner),
                Kept::Listed(_) | Kept::NotGone => {
                    host.liveness.netns_of(&owner, UNIX_EPOCH) == Netns::Gone
                }
            }
        };
        let released = release_where(host, &is_gone)?;
        let places = journals_of(self)?.into_iter();
        let places: Vec<Place> = places.filter_map(|journal| journal.place).collect();
        Payer::new(host, self.pod.as_ref()).collect(&places);
        Ok(released)
    }
}

#[cfg(test)]
mod tests;
