//! Reconstructs the steps of an attachment without a record, from its configuration and result, for
//! CHECK.
//!
//! A reference plugin may have made the attachment. So this module reconstructs only steps that the
//! reference plugins perform in the same way: links, the node's addresses and routes, sysctls.
//! Rules and queues are left out, because the reference plugins create different ones. Addresses
//! and routes in the container are left out, because later plugins may have moved them.

use super::chain::{AddressSource, Runner};
use super::invocation::{self, Wanted};
use crate::apply::host::Host;
use braid_core::cni::{AddResult, Error, IpConfig};
use braid_core::ipam::Lease;
use braid_core::name::{IfName, Mac};
use braid_core::plan::step::Step;
use braid_core::plan::thing::{Attr, LinkAttr, LinkRef};

/// Returns the steps by which ADD made this attachment, if they can be checked without a record.
pub(super) fn steps(
    wanted: &Wanted,
    prev: &AddResult,
    host: &mut dyn Host,
) -> Result<Vec<Step>, Error> {
    let Wanted {
        attachment, chain, ..
    } = wanted;
    let sandbox = wanted.sandbox();
    let call = invocation::call(wanted, &sandbox, Some(prev)).with_told_host_end();
    let mut steps = Vec::new();
    for item in &chain.items {
        let Runner::Native(plugin) = &item.work else {
            continue;
        };
        if !plugin.is_reconstructible() {
            continue;
        }
        let lease = (!matches!(item.addresses, AddressSource::NoIpam))
            .then(|| lease(prev, &attachment.ifname));
        let mut needs = plugin.needs(&call);
        if let Some(lease) = &lease {
            needs.extend(plugin.needs_of(lease));
        }
        let facts = host.observe(&needs)?;
        steps.extend(plugin.plan(&call, &facts, lease)?.steps);
    }
    steps.retain(Step::is_as_reference);
    if chain.makes_interface() {
        push_host_macs(prev, &mut steps);
    }
    Ok(steps)
}

/// Returns the lease that the IPAM must have assigned.
fn lease(prev: &AddResult, ifname: &IfName) -> Lease {
    let is_own = |ip: &&IpConfig| {
        let at = ip.interface.and_then(|at| prev.interfaces.get(at));
        at.is_none_or(|interface| interface.name == ifname.as_str())
    };
    let ips = prev.ips.iter().filter(is_own).cloned().collect();
    Lease {
        ips,
        routes: prev.routes.clone(),
        dns: prev.dns.clone(),
    }
}

/// Adds a step for each hardware address of a host-side interface in the result.
fn push_host_macs(prev: &AddResult, steps: &mut Vec<Step>) {
    for interface in &prev.interfaces {
        if !interface.sandbox.is_empty() {
            continue;
        }
        if let Some(mac) = Mac::parse(&interface.mac)
            && mac.0 != [0; 6]
            && let Ok(name) = IfName::parse(&interface.name)
        {
            steps.push(Step::add(Attr {
                at: LinkRef::host(name),
                to: LinkAttr::Mac(mac),
            }));
        }
    }
}
