//! Reservation of addresses for one call.

use super::chain::{AddressSource, lease_of};
use super::invocation::Wanted;
use super::lease_request::LeaseRequest;
use super::liveness::{NodeState, Reclaimed};
use crate::apply::host::Host;
use crate::ipam::Ipam;
use crate::log::Log;
use crate::store::root::Root;
use braid_core::cni::{Command, Error};
use braid_core::ipam::Lease;

/// Reserves addresses, and collects the leases of terminated containers that were released for
/// them.
pub(super) struct Reserver {
    root: Root,
    log: Log,
    reclaimed: Vec<Reclaimed>,
}

impl Reserver {
    pub(super) fn of(host: &dyn Host) -> Self {
        Self {
            root: host.root().clone(),
            log: host.log().clone(),
            reclaimed: Vec::new(),
        }
    }

    /// Reserves addresses. Calls `holds` as soon as a failure requires a release.
    pub(super) fn reserve(
        &mut self,
        wanted: &Wanted,
        ask: &LeaseRequest<'_>,
        mut holds: impl FnMut(),
    ) -> Result<Option<Lease>, Error> {
        let Wanted {
            attachment, chain, ..
        } = wanted;
        let at = ask.place.item;
        let lease = match &chain.items[at].addresses {
            AddressSource::NoIpam => return Ok(None),
            AddressSource::Ours(ipam) => ask.lease(&**ipam, |ipam| self.ours(wanted, ask, ipam))?,
            AddressSource::Foreign(ipam) => {
                holds();
                let result = chain.delegate(ipam, at, Command::Add, Some(attachment), ask.prev)?;
                lease_of(result.unwrap_or_default())
            }
        };
        holds();
        Ok(Some(lease))
    }

    /// Reserves addresses of an IPAM in this process.
    fn ours(
        &mut self,
        wanted: &Wanted,
        ask: &LeaseRequest<'_>,
        ipam: &dyn Ipam,
    ) -> Result<Lease, Error> {
        let Wanted {
            attachment,
            chain,
            claim,
            ..
        } = wanted;
        let owner = chain.owner(attachment);
        let node = NodeState::of(&self.root, chain.network(), &self.log);
        let host = node.host_of(attachment);
        let lease = match claim {
            Some(claim) => ipam.reserve_claimed(&ask.claim_of(claim), &owner, host),
            None => ipam.reserve(&owner, host),
        };
        self.reclaimed.push(node.into_reclaimed());
        lease
    }

    /// Reports the freed leases, and deletes the rules of their owners.
    pub(super) fn end_reclaimed(&mut self, host: &mut dyn Host) {
        for reclaimed in self.reclaimed.drain(..) {
            reclaimed.end(host);
        }
    }
}
