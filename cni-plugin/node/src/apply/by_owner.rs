//! Steps that delete kernel objects on the host by owner, for GC of attachments without a record.

use crate::effect::firewall::{addrs, isolation};
use crate::effect::{host_ports, link, mac_check, masquerade, xsk_guard};
use crate::kernel::Kernel;
use crate::sys::netlink::{KernelError, Socket};
use crate::{Context, Error};
use braid_core::cni::Owner;
use braid_core::name::{IfName, Mac};
use braid_core::plan::step::{Legacy, OwnedKind, Step};
use braid_core::plan::thing::{Link, LinkRef, MacCheck};

/// Returns the steps that delete the links, masquerades, host ports, firewall objects, `AF_XDP`
/// guards and MAC checks of every owner for which `is_lost` returns true. An owner is passed as the
/// text `<network> <container> <interface>`.
pub(crate) fn steps(
    kernel: &mut Kernel,
    is_lost: &dyn Fn(&str) -> bool,
) -> Result<Vec<Step>, Error> {
    let mut steps = links(kernel, is_lost)?;
    for kind in [
        OwnedKind::Masquerades,
        OwnedKind::HostPorts,
        OwnedKind::Firewall,
        OwnedKind::XskGuards,
    ] {
        for owner in owners(kernel, kind) {
            if is_lost(&owner) {
                steps.push(Step::Forget(kind, owner));
            }
        }
    }
    for (port, owner) in listed(kernel, mac_check::owners) {
        if is_lost(&owner) {
            steps.push(Step::del(MacCheck {
                port,
                mac: Mac([0; 6]),
                owner,
            }));
        }
    }
    Ok(steps)
}

/// Returns the steps that delete the links of every owner for which `is_lost` returns true. The
/// steps also delete the policy routing rules for the addresses of these links. A link's alias
/// contains its owner.
fn links(kernel: &mut Kernel, is_lost: &dyn Fn(&str) -> bool) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    for (name, fact) in link::list(kernel.host()).doing("list links of the host")? {
        let Ok(name) = IfName::parse(&name) else {
            continue;
        };
        let Some(owner) = fact.alias.strip_prefix(Owner::ALIAS_PREFIX) else {
            continue;
        };
        if is_lost(owner) {
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
    Ok(steps)
}

/// Returns the owners of all objects of this kind, or an empty list if the objects cannot be
/// listed.
fn owners(kernel: &mut Kernel, kind: OwnedKind) -> Vec<String> {
    match kind {
        OwnedKind::Masquerades => {
            let masquerades = listed(kernel, masquerade::list);
            masquerades.into_iter().map(|(_, owner)| owner).collect()
        }
        OwnedKind::HostPorts => host_ports::owners(kernel).unwrap_or_default(),
        OwnedKind::Firewall => {
            let mut owners = listed(kernel, addrs::owners);
            owners.extend(listed(kernel, isolation::owners));
            owners
        }
        OwnedKind::XskGuards => xsk_guard::owners().unwrap_or_default(),
    }
}

/// Calls `list` with the `nf_tables` socket. Returns an empty list if that fails.
fn listed<T: Default>(
    kernel: &mut Kernel,
    list: impl FnOnce(&mut Socket) -> Result<T, KernelError>,
) -> T {
    kernel.nft().and_then(list).unwrap_or_default()
}
