//! Kernel objects on the host by their owner, for GC without a record.

use crate::effect::firewall::{addrs, isolation};
use crate::effect::{host_ports, link, mac_check, masquerade, xsk_guard};
use crate::kernel::Kernel;
use crate::{Context, Error};
use braid_core::cni::Owner;
use braid_core::name::{IfName, Mac};
use braid_core::plan::step::{Legacy, OwnedKind, Step};
use braid_core::plan::thing::{Link, LinkRef, MacCheck};

/// Returns the steps that delete the links, masquerades, host ports, firewall objects, `AF_XDP`
/// guards and MAC checks of every owner that `is_lost` selects by its text.
pub(crate) fn steps(
    kernel: &mut Kernel,
    is_lost: &dyn Fn(&str) -> bool,
) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    for (name, fact) in link::list(kernel.host()).doing("list links of the host")? {
        let Ok(name) = IfName::parse(&name) else {
            continue;
        };
        if fact
            .alias
            .strip_prefix(Owner::ALIAS_PREFIX)
            .is_some_and(is_lost)
        {
            let at = LinkRef::host(name);
            let rules = Legacy::Rules {
                at: at.clone(),
                addrs: Vec::new(),
                table: None,
            };
            steps.push(Step::Legacy(rules));
            steps.push(Step::del(Link::any(at)));
        }
    }
    let masqueraded = kernel.nft().and_then(masquerade::list).unwrap_or_default();
    let mut forwarded = kernel.nft().and_then(addrs::owners).unwrap_or_default();
    forwarded.extend(kernel.nft().and_then(isolation::owners).unwrap_or_default());
    let owners = [
        (
            OwnedKind::Masquerades,
            masqueraded.into_iter().map(|(_, owner)| owner).collect(),
        ),
        (
            OwnedKind::HostPorts,
            host_ports::owners(kernel).unwrap_or_default(),
        ),
        (OwnedKind::Firewall, forwarded),
        (
            OwnedKind::XskGuards,
            xsk_guard::owners().unwrap_or_default(),
        ),
    ];
    for (kind, owners) in owners {
        steps.extend(
            owners
                .into_iter()
                .filter(|owner| is_lost(owner))
                .map(|owner| Step::Forget(kind, owner)),
        );
    }
    let held = kernel.nft().and_then(mac_check::owners).unwrap_or_default();
    let lost = held.into_iter().filter(|(_, owner)| is_lost(owner));
    steps.extend(lost.map(|(port, owner)| {
        Step::del(MacCheck {
            port,
            mac: Mac([0; 6]),
            owner,
        })
    }));
    Ok(steps)
}
