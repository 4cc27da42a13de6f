//! Things in a plan, such as links, addresses and routes. The code here creates, deletes and reads
//! each kind of thing in the kernel.
//!
//! Each kind is a file or folder here, and a line in the table `for_each_thing` of braid-core.

pub mod addr;
pub(crate) mod attr;
mod claim;
pub mod cluster_forward;
pub mod cluster_masquerade;
pub(crate) mod elements;
mod fdb;
pub mod firewall;
pub mod host_ports;
pub mod link;
pub mod mac_check;
pub mod masquerade;
pub(crate) mod moved;
pub(crate) mod neigh;
mod no_route;
mod note;
pub mod packet_guard;
mod programs;
pub(crate) mod redirect;
mod reference;
mod reference_tuning;
pub(crate) mod request;
pub mod route;
pub(crate) mod rule;
mod rules;
pub mod shaping;
pub(crate) mod shared;
pub(crate) mod sysctl;
pub mod tables;
mod verbs;
pub(crate) mod vlan;
pub(crate) mod vrf_member;
pub mod xsk_guard;

use verbs::Head;
pub(crate) use verbs::{Effect, Transport, found};

use crate::kernel::Kernel;
use crate::{Cause, Context, Error};
use braid_core::for_each_thing;
use braid_core::plan::facts::{Facts, Need};
use braid_core::plan::step::{Legacy, OwnedKind};
use braid_core::plan::thing::{LinkRef, Thing};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Defines [`of`] from the table of kinds.
macro_rules! effects {
    ($($kind:ident($of:ty), $doc:literal;)*) => {
        /// Returns the effect of a thing.
        pub(crate) fn of(thing: &Thing) -> &dyn Effect {
            match thing {
                $(Thing::$kind(it) => it,)*
            }
        }
    };
}

for_each_thing!(effects);

/// Reads the facts for a need into `facts`.
pub(crate) fn read(kernel: &mut Kernel, need: &Need, facts: &mut Facts) -> Result<(), Error> {
    match need {
        Need::Link(at) => link::read(kernel, at, facts),
        Need::NamedLink(ns, name) => link::read_named(kernel, *ns, name, facts),
        Need::DefaultLink(ns) => route::read_default_link(kernel, *ns, facts),
        Need::Addrs(at) => addr::read(kernel, at, facts),
        Need::Routes(ns) => route::read(kernel, *ns, facts),
        Need::Neighs(at) => neigh::read(kernel, at, facts),
        Need::Fdb(at) => fdb::read(kernel, at, facts),
        Need::Rules(ns) => rule::read(kernel, *ns, facts),
        Need::Vrfs => vrf_member::read(kernel, facts),
        Need::Sysctl(ns, key) => sysctl::read(kernel, *ns, key, facts),
        Need::Ipv6Forwarding => sysctl::read_ipv6_forwarding(kernel, facts),
        Need::File(path) => read_file(path, facts),
        Need::BootIdWithout(link) => read_boot_id_without(kernel, link, facts),
        Need::Vlans => vlan::read(kernel, facts),
        Need::Masquerades => masquerade::read(kernel, facts),
        Need::HostPort(at) => host_ports::read(kernel, at, facts),
        Need::Firewalld => firewall::read_firewalld(facts),
        Need::Firewall(what) => firewall::read(kernel, what, facts),
        Need::EbpfPort(at) => host_ports::ebpf::read(kernel, at, facts),
        Need::EbpfCounts => host_ports::read_ebpf_counts(facts),
        Need::HostPortHook(at) => host_ports::ebpf::read_hook(kernel, at, facts),
        Need::LoopbackPort(at) => host_ports::loopback::read(kernel, at, facts),
        Need::LoopbackPrograms => host_ports::loopback::read_programs(facts),
        Need::Shaped(at) => shaping::read(kernel, at, facts),
        Need::PacketGuard(at) => packet_guard::read(kernel, at, facts),
        Need::XskGuards => xsk_guard::read(facts),
        Need::Peer(at) => shaping::read_peer(kernel, at, facts),
        Need::Netns => {
            facts.netns = kernel.pod_cookie();
            Ok(())
        }
        // Features are probed instead (`apply::features`).
        Need::Features(_) => Ok(()),
        Need::Device(device) => moved::device::read(kernel, device, facts),
        Need::MacChecks => mac_check::read(kernel, facts),
    }
}

fn read_boot_id_without(
    kernel: &mut Kernel,
    link: &LinkRef,
    facts: &mut Facts,
) -> Result<(), Error> {
    link::read(kernel, link, facts)?;
    if facts.link(link).is_none_or(|fact| fact.mac.is_none()) {
        read_boot_id(facts)
    } else {
        Ok(())
    }
}

/// Reads a text file into `facts`. A missing file has no entry.
#[cold]
fn read_file(path: &str, facts: &mut Facts) -> Result<(), Error> {
    match std::fs::read_to_string(path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
        read => drop(
            facts
                .files
                .insert(path.to_owned(), read.doing(format_args!("read {path}"))?),
        ),
    }
    Ok(())
}

fn read_boot_id(facts: &mut Facts) -> Result<(), Error> {
    let found = std::fs::read_to_string(BOOT_ID).doing(format_args!("read {BOOT_ID}"))?;
    found.trim().clone_into(&mut facts.boot_id);
    Ok(())
}

/// Deletes every object of a kind that belongs to `owner`.
pub(crate) fn forget(kernel: &mut Kernel, kind: OwnedKind, owner: &str) -> Result<(), Cause> {
    match kind {
        OwnedKind::Masquerades => Ok(masquerade::del_owner(kernel.nft()?, owner)?),
        OwnedKind::HostPorts => host_ports::del_owner(kernel, owner),
        OwnedKind::Firewall => firewall::del_owner(kernel, owner),
        OwnedKind::XskGuards => xsk_guard::del_of_owner(owner),
    }
}

/// Deletes kernel objects that a reference plugin left.
pub(crate) fn end_legacy(kernel: &mut Kernel, legacy: &Legacy) -> Result<(), Cause> {
    match legacy {
        Legacy::Masquerade {
            network,
            container_id,
            ifname,
        } => {
            let attachment = reference::Of {
                network,
                container_id,
                ifname: ifname.as_str(),
            };
            Ok(reference::del_masquerade(kernel.nft()?, attachment)?)
        }
        Legacy::MacCheck {
            container_id,
            ifname,
        } => Ok(reference::del_mac_check(
            kernel.nft()?,
            container_id,
            ifname,
        )?),
        Legacy::HostPorts {
            network,
            container_id,
        } => {
            let attachment = reference::Of {
                network,
                container_id,
                ifname: "",
            };
            Ok(reference::del_ports(kernel.nft()?, attachment)?)
        }
        Legacy::Firewall { addrs, zone } => firewall::del_reference(kernel, addrs, zone),
        Legacy::Rules { at, addrs, table } => rules::del(kernel, at, addrs, *table),
        Legacy::Tuning { at, file } => reference_tuning::restore(kernel, at, file),
    }
}
