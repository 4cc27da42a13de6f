//! The effect of each kind of thing on the kernel: how it comes, how it goes, and how it is carried there.
//!
//! A new kind is a file here and a line in [`of`].

pub mod addr;
pub(crate) mod attr;
pub(crate) mod elements;
pub mod firewall;
pub mod host_ports;
pub mod link;
pub mod mac_check;
pub mod masquerade;
pub(crate) mod moved;
mod neigh;
mod no_route;
mod note;
pub mod packet_guard;
pub(crate) mod redirect;
mod reference;
mod reference_tuning;
mod request;
pub mod route;
mod rule;
mod rules;
pub mod shaping;
pub(crate) mod sysctl;
pub mod tables;
mod vlan;
mod vrf_member;
pub mod xsk_guard;

pub(crate) use request::{Request, is_only_elements, link_of};

use crate::apply::kernel::Kernel;
use crate::apply::{features, observe};
use crate::sys::nft::Spot;
use crate::{Cause, Error};
use braid_core::plan::facts::{Facts, Need};
use braid_core::plan::step::{Kind, Legacy};
use braid_core::plan::thing::{Link, LinkRef, Shaping, Sysctl, Thing, Verb};
use nix::errno::Errno;

/// Way of a thing to the kernel.
pub(crate) enum Carrier<'a> {
    /// As one request of the route family, sent with its neighbours ([`Effect::request`]).
    Request,
    /// A link, with what the next step says of a new one, and others that go as well.
    Link(&'a Link),
    /// A sysctl, written in one visit to its namespace with its neighbours.
    Sysctl(&'a Sysctl),
    /// Limits, with the redirect behind them.
    Shaping(&'a Shaping),
    /// Elements of nf_tables that go in one transaction with its neighbours.
    Elements,
    /// By itself ([`Effect::add`], [`Effect::del`]).
    Alone,
}

/// Type and flags of a request.
pub(crate) type Head = (u16, u16);

/// The effect of one thing.
pub(crate) trait Effect {
    /// Way to the kernel.
    fn carrier(&self, _verb: Verb) -> Carrier<'_> {
        Carrier::Alone
    }

    /// Has it come.
    fn add(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Has it go.
    fn del(&self, _kernel: &mut Kernel) -> Result<(), Cause> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// The link whose index its request carries.
    fn link(&self) -> Option<&LinkRef> {
        None
    }

    /// Writes the body of its request for the link of this index.
    fn request(&self, _verb: Verb, _index: u32, _body: &mut Vec<u8>) -> Option<Head> {
        None
    }

    /// Notes the elements of nf_tables that are still its owner's, to go with those of others.
    fn elements(&self, _kernel: &mut Kernel, _all: &mut Vec<Spot>) -> Result<(), Cause> {
        Ok(())
    }

    /// True if it comes by several requests, of which a failure leaves some done.
    fn is_several(&self) -> bool {
        false
    }

    /// True if a refusal means that it is gone.
    fn is_gone(&self, errno: Errno) -> bool {
        [Errno::ENOENT, Errno::ENODEV, Errno::EADDRNOTAVAIL, Errno::ESRCH, Errno::ENXIO].contains(&errno)
    }
}

/// The effect of a thing.
pub(crate) fn of(thing: &Thing) -> &dyn Effect {
    match thing {
        Thing::Link(link) => link,
        Thing::Moved(moved) => moved,
        Thing::Attr(attr) => attr,
        Thing::Vlan(vlan) => vlan,
        Thing::Addr(addr) => addr,
        Thing::Route(route) => route,
        Thing::NoRoute(absence) => absence,
        Thing::Neigh(neigh) => neigh,
        Thing::Rule(rule) => rule,
        Thing::VrfMember(member) => member,
        Thing::Sysctl(sysctl) => sysctl,
        Thing::Masquerade(masquerade) => masquerade,
        Thing::MacCheck(check) => check,
        Thing::HostPorts(ports) => ports,
        Thing::Firewall(firewall) => firewall,
        Thing::Shaping(shaping) => shaping,
        Thing::PacketGuard(guard) => guard,
        Thing::XskGuard(guard) => guard,
        Thing::XskLink(link) => link,
        Thing::Redirect(redirect) => redirect,
        Thing::Note(note) => note,
    }
}

/// Reads what is needed to judge things, or to plan them.
pub(crate) fn read(kernel: &mut Kernel, need: &Need, facts: &mut Facts) -> Result<(), Error> {
    match need {
        Need::Link(at) => link::read(kernel, at, facts),
        Need::NamedLink(ns, name) => link::read_named(kernel, *ns, name, facts),
        Need::DefaultLink(ns) => route::read_default_link(kernel, *ns, facts),
        Need::Addrs(at) => addr::read(kernel, at, facts),
        Need::Routes(ns) => route::read(kernel, *ns, facts),
        Need::Neighs(at) => neigh::read(kernel, at, facts),
        Need::Rules(ns) => rule::read(kernel, *ns, facts),
        Need::Vrfs => vrf_member::read(kernel, facts),
        Need::Sysctl(ns, key) => sysctl::read(kernel, *ns, key, facts),
        Need::Ipv6Forwarding => sysctl::read_ipv6_forwarding(kernel, facts),
        Need::File(path) => observe::read_file(path, facts),
        Need::BootIdWithout(link) => observe::read_boot_id_without(kernel, link, facts),
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
        Need::Features(wanted) => {
            facts.features.extend(features::known(wanted));
            Ok(())
        }
        Need::Device(device) => moved::device::read(kernel, device, facts),
        Need::MacChecks => mac_check::read(kernel, facts),
    }
}

/// `None` for what is not there. EINVAL: the root queue is built in, or there is no clsact.
pub(super) fn found<T>(result: Result<T, impl Into<Cause>>) -> Result<Option<T>, Cause> {
    match result.map_err(Into::into) {
        Err(cause) if cause.is(&[Errno::ENOENT, Errno::ENODEV, Errno::EINVAL]) => Ok(None),
        other => other.map(Some),
    }
}

/// Has all of a kind go that is of one owner.
pub(crate) fn forget(kernel: &mut Kernel, kind: Kind, owner: &str) -> Result<(), Cause> {
    match kind {
        Kind::Masquerades => Ok(masquerade::del_owner(kernel.nft()?, owner)?),
        Kind::HostPorts => host_ports::del_owner(kernel, owner),
        Kind::Firewall => firewall::del_owner(kernel, owner),
        Kind::XskGuards => xsk_guard::del_of_owner(owner),
    }
}

/// Has go what a reference plugin made.
pub(crate) fn end_legacy(kernel: &mut Kernel, legacy: &Legacy) -> Result<(), Cause> {
    match legacy {
        Legacy::Masquerade { network, container_id, ifname } => {
            let of = reference::Of { network, container_id, ifname: ifname.as_str() };
            Ok(reference::del_masquerade(kernel.nft()?, of)?)
        }
        Legacy::MacCheck { container_id, ifname } => Ok(reference::del_mac_check(kernel.nft()?, container_id, ifname)?),
        Legacy::HostPorts { network, container_id } => {
            let of = reference::Of { network, container_id, ifname: "" };
            Ok(reference::del_ports(kernel.nft()?, of)?)
        }
        Legacy::Firewall { addrs, zone } => firewall::del_reference(kernel, addrs, zone),
        Legacy::Rules { at, addrs, table } => rules::del(kernel, at, addrs, *table),
        Legacy::Tuning { at, file } => reference_tuning::restore(kernel, at, file),
    }
}
