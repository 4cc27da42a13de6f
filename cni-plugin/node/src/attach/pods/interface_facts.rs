//! Interface properties read from the kernel, if the results omit them.

use super::network::AttachedNetwork;
use crate::apply::host::Host;
use braid_core::cni::AddResult;
use braid_core::k8s::default_route::{Families, families};
use braid_core::k8s::network::Network;
use braid_core::k8s::source::{Event, Severity};
use braid_core::k8s::status;
use braid_core::kernel_numbers::RT_TABLE_MAIN;
use braid_core::name::{IfName, Mac, Ns};
use braid_core::plan::Need;
use braid_core::plan::thing::LinkRef;

/// Returns a warning event if the pod has no default route.
pub(super) fn event(attached: &[AttachedNetwork<'_>], host: &mut dyn Host) -> Option<Event> {
    let message = "the pod has no default route: none of its networks provides one".to_owned();
    lacks_default_route(attached, host).then_some(Event {
        severity: Severity::Warning,
        reason: "NoDefaultRoute".into(),
        message,
        trace: None,
    })
}

/// Returns the hardware address of a network's interface from the kernel. `None` if `result`
/// already has the address.
pub(super) fn mac(network: &Network, result: &AddResult, host: &mut dyn Host) -> Option<Mac> {
    let ifname = match status::interface(result) {
        Some((_, interface)) if !interface.mac.is_empty() => return None,
        Some((_, interface)) => IfName::parse(&interface.name).ok()?,
        None => network.ifname.clone(),
    };
    host.link(&LinkRef::pod(ifname)).ok().flatten()?.mac
}

/// Returns the MTU of a network's interface from the kernel. `None` if `result` already has the
/// MTU.
pub(super) fn mtu(network: &Network, result: &AddResult, host: &mut dyn Host) -> Option<u32> {
    mtu_of(&network.ifname, result, host)
}

/// [`mtu`] of the interface `ifname`.
pub(super) fn mtu_of(ifname: &IfName, result: &AddResult, host: &mut dyn Host) -> Option<u32> {
    let at = without_mtu(ifname, result)?;
    host.link(&at).ok().flatten().map(|link| link.mtu)
}

/// Returns a network's interface if `result` omits its MTU.
pub(super) fn without_mtu(ifname: &IfName, result: &AddResult) -> Option<LinkRef> {
    let ifname = match status::interface(result) {
        Some((_, interface)) if interface.mtu.is_some() => return None,
        Some((_, interface)) => IfName::parse(&interface.name).ok()?,
        None => ifname.clone(),
    };
    Some(LinkRef::pod(ifname))
}

fn lacks_default_route(attached: &[AttachedNetwork<'_>], host: &mut dyn Host) -> bool {
    if attached
        .iter()
        .filter_map(|attachment| attachment.result)
        .any(|result| families(result) != Families::default())
    {
        return false;
    }
    // A plugin's result need not contain its routes.
    let Ok(facts) = host.observe(&[Need::Routes(Ns::Pod)]) else {
        return false;
    };
    let mut routes = facts.routes.get(&Ns::Pod).into_iter().flatten();
    !routes.any(|route| route.dst.prefix_len() == 0 && route.table == RT_TABLE_MAIN)
}
