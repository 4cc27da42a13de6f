//! Reservation of addresses for the plugins of an ADD.

use super::chain::{AddressSource, ForeignCall};
use super::invocation::Wanted;
use super::item::lease_of;
use super::lease_request::LeaseRequest;
use super::liveness::NodeState;
use crate::apply::host::Host;
use crate::ipam::Ipam;
use crate::ipam::link_probe::LinkProber;
use braid_core::cni::{Command, Error};
use braid_core::ipam::Lease;

/// Reserves the addresses that a plugin requests; `None` if the plugin has no IPAM. Calls `holds`
/// as soon as addresses may be reserved. After this call, a failure of the ADD must release them.
pub(super) fn reserve(
    wanted: &Wanted,
    ask: &LeaseRequest<'_>,
    host: &mut dyn Host,
    mut holds: impl FnMut(),
) -> Result<Option<Lease>, Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    let at = ask.place.item;
    let lease = match &chain.items[at].addresses {
        AddressSource::NoIpam => return Ok(None),
        AddressSource::Ours(ipam) => ask.lease(&**ipam, |ipam| ours(wanted, ask, ipam, host))?,
        AddressSource::Foreign(ipam) => {
            holds();
            let call = ForeignCall {
                plugin: ipam,
                item: at,
                command: Command::Add,
                attachment: Some(attachment),
                prev: ask.prev,
            };
            let result = chain.delegate(&call, host.log())?;
            lease_of(result.unwrap_or_default())
        }
    };
    holds();
    Ok(Some(lease))
}

/// Reserves addresses from an IPAM that braid implements. If the IPAM reuses addresses of
/// terminated containers, the old rules for these addresses are deleted here, before new ones are
/// planned.
fn ours(
    wanted: &Wanted,
    ask: &LeaseRequest<'_>,
    ipam: &dyn Ipam,
    host: &mut dyn Host,
) -> Result<Lease, Error> {
    let Wanted {
        attachment,
        chain,
        claim,
        ..
    } = wanted;
    let owner = chain.owner(attachment);
    let node = NodeState::of(host.root(), chain.network(), host.log());
    let prober = LinkProber(attachment);
    let mut context = node.host_of(attachment);
    if ask.has_link {
        context.prober = Some(&prober);
    }
    let lease = match claim {
        Some(claim) => ipam.reserve_claimed(&ask.claim_of(claim), &owner, context),
        None => ipam.reserve(&owner, context),
    };
    node.take_reclaimed().end(host);
    lease
}
