//! Address requests. On a node without IPv6 only the IPv4 part of a lease is requested.

use super::chain::AddressSource;
use super::invocation::PluginIndex;
use crate::ipam::Ipam;
use braid_core::cni::{AddResult, Error};
use braid_core::ipam::{Claim, Lease};

/// A request for addresses.
#[derive(Debug)]
pub struct LeaseRequest<'a> {
    /// Position of the requesting plugin in the call.
    pub place: PluginIndex,
    /// Result of the plugins before the request.
    pub prev: Option<&'a AddResult>,
    /// Reason why no IPv6 address is requested; `None` if IPv6 is requested too.
    pub no_ipv6: Option<String>,
    /// True if the container's link exists and is up.
    pub has_link: bool,
}

impl LeaseRequest<'_> {
    /// Calls `get` for a lease from `ipam`. If `no_ipv6` is set, the IPv6 ranges of `ipam` are
    /// removed first, so that no address in them is reserved.
    pub fn lease(
        &self,
        ipam: &dyn Ipam,
        get: impl FnOnce(&dyn Ipam) -> Result<Lease, Error>,
    ) -> Result<Lease, Error> {
        match &self.no_ipv6 {
            Some(why) => get(&*ipam.without_ipv6().ok_or_else(|| nothing_left(why))?),
            None => get(ipam),
        }
    }

    /// Returns a copy of `claim`, without IPv6 addresses if `no_ipv6` is set. Addresses may have
    /// been written to the claim on a node with IPv6.
    pub fn claim_of(&self, claim: &Claim) -> Claim {
        let mut claim = claim.clone();
        claim
            .addresses
            .retain(|ip| ip.is_ipv4() || self.no_ipv6.is_none());
        claim
    }

    /// Removes IPv6 addresses and routes from a lease if `no_ipv6` is set, because an IPAM that is
    /// another program may have assigned some. Also returns a warning for the operator if the lease
    /// lacks IPv6 for this reason.
    pub fn left_of(
        &self,
        from: &AddressSource,
        mut lease: Lease,
    ) -> Result<(Lease, Option<String>), Error> {
        let Some(why) = &self.no_ipv6 else {
            return Ok((lease, None));
        };
        let given = lease.ips.len();
        lease.ips.retain(|ip| ip.address.addr().is_ipv4());
        lease.routes.retain(|route| route.dst.addr().is_ipv4());
        if given > 0 && lease.ips.is_empty() {
            return Err(nothing_left(why));
        }
        let is_less = matches!(from, AddressSource::Ours(_)) || lease.ips.len() < given;
        let warning =
            || format!("this node has no IPv6 ({why}): the container gets only IPv4 addresses");
        Ok((lease, is_less.then(warning)))
    }
}

fn nothing_left(why: &str) -> Error {
    Error::internal(format!(
        "all addresses are IPv6, but this node has no IPv6 ({why})"
    ))
}
