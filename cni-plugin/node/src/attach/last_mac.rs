//! The hardware address that a later plugin gives the interface. A DHCP server leases to a hardware
//! address. So the link gets this address before its IP addresses are requested.

use super::chain::Runner;
use super::invocation::Wanted;
use braid_core::name::Mac;
use braid_core::plan::thing::{Attr, LinkAttr, LinkRef, Thing};
use braid_core::plan::{Facts, Step};
use braid_core::plugins::Planned;

/// Returns the last hardware address that the plugins after `item` set; `None` if none of them sets
/// one.
pub(super) fn behind(wanted: &Wanted, item: usize) -> Option<Mac> {
    let mut behind = wanted.chain.items.iter().skip(item + 1).rev();
    behind.find_map(|item| {
        if let Runner::Native(plugin) = &item.work {
            plugin.mac()
        } else {
            None
        }
    })
}

/// Adds a step that sets the hardware address of the link `at`. It precedes the step that sets the
/// link up, if the plan has one.
pub(super) fn set(mac: Mac, at: &LinkRef, planned: &mut Planned, facts: &Facts) {
    let before = facts
        .clone()
        .after(&planned.steps)
        .link(at)
        .and_then(|link| link.mac);
    adopt(mac, at, planned);
    let (at, to) = (at.clone(), LinkAttr::Mac(mac));
    let is_up = |step: &Step| matches!(step, Step::Add(Thing::Attr(Attr { at: up, to: LinkAttr::Up(true) })) if *up == at);
    let place = planned
        .steps
        .iter()
        .position(is_up)
        .unwrap_or(planned.steps.len());
    let step = match before {
        Some(before) => Step::Set {
            at,
            to,
            from: LinkAttr::Mac(before),
        },
        None => Step::add(Attr { at, to }),
    };
    planned.steps.insert(place, step);
}

/// Changes the hardware address of the link `at` in the planned steps and the result.
pub(super) fn adopt(mac: Mac, at: &LinkRef, planned: &mut Planned) {
    for step in &mut planned.steps {
        if let Step::Add(Thing::Attr(Attr {
            at: named,
            to: LinkAttr::Announce(announced),
        })) = step
            && named == at
        {
            *announced = mac;
        } else if let Step::Add(Thing::MacCheck(check)) = step {
            check.mac = mac;
        }
    }
    for interface in &mut planned.result.interfaces {
        if !interface.sandbox.is_empty() && interface.name == at.name.as_str() {
            interface.mac = mac.to_string();
        }
    }
}
