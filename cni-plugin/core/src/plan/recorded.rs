//! Steps as stored in records of the present layout and of layout 1.

use super::step::OwnedKind;
use super::step::{Event, Legacy, Step};
use super::thing::vlan::Vlan;
use super::thing::{
    Addr, Attr, Firewall, HostPorts, Link, LinkAttr, LinkRef, MacCheck, Masquerade, PacketGuard,
    PortVlan, Redirect, Route, Shaping, Sysctl, Thing, XskGuard, XskLink,
};
use serde::Deserialize;

/// Steps of the present layout, then all steps that a record of layout 1 may contain.
#[derive(Deserialize)]
pub(super) enum Recorded {
    Add(Thing),
    Ensure(Thing),
    Del(Thing),
    Set {
        at: LinkRef,
        to: LinkAttr,
        from: LinkAttr,
    },
    Wait(Event),
    Forget(OwnedKind, String),
    Legacy(Legacy),
    AddLink(Link),
    EnsureLink(Link),
    SetLink {
        at: LinkRef,
        to: LinkAttr,
        #[serde(default)]
        from: Option<LinkAttr>,
    },
    EnsureAttr {
        at: LinkRef,
        to: LinkAttr,
    },
    EnsureVlan {
        at: LinkRef,
        vlan: Vlan,
    },
    DelVlan {
        at: LinkRef,
        vlan: Vlan,
    },
    AddAddr(Addr),
    DelAddr(Addr),
    EnsureAddr(Addr),
    AddRoute(Route),
    SetSysctl(Sysctl),
    EnsureSysctl(Sysctl),
    AddMasquerade(Masquerade),
    AddMacCheck(MacCheck),
    AddHostPorts(HostPorts),
    AddFirewall(Firewall),
    AddShaping(Shaping),
    AddPacketGuard(PacketGuard),
    AddXskGuard(XskGuard),
    NarrowXskGuard {
        guard: XskGuard,
        at: LinkRef,
        was_there: bool,
    },
    AddRedirect {
        from: LinkRef,
        to: LinkRef,
    },
    WaitUp(LinkRef),
    WaitDad(LinkRef),
}

impl From<Recorded> for Step {
    fn from(step: Recorded) -> Self {
        match step {
            Recorded::Add(thing) => Self::Add(thing),
            Recorded::Ensure(thing) => Self::Ensure(thing),
            Recorded::Del(thing) => Self::Del(thing),
            Recorded::Set { at, to, from }
            | Recorded::SetLink {
                at,
                to,
                from: Some(from),
            } => Self::Set { at, to, from },
            Recorded::Wait(event) => Self::Wait(event),
            Recorded::Forget(kind, owner) => Self::Forget(kind, owner),
            Recorded::Legacy(legacy) => Self::Legacy(legacy),
            Recorded::AddLink(link) => Self::add(link),
            Recorded::EnsureLink(link) => Self::ensure(link),
            Recorded::SetLink { at, to, from: None } => Self::add(Attr { at, to }),
            Recorded::EnsureAttr { at, to } => Self::ensure(Attr { at, to }),
            Recorded::EnsureVlan { at, vlan } => Self::ensure(PortVlan { at, vlan }),
            Recorded::DelVlan { at, vlan } => Self::del(PortVlan { at, vlan }),
            Recorded::AddAddr(addr) => Self::add(addr),
            Recorded::DelAddr(addr) => Self::del(addr),
            Recorded::EnsureAddr(addr) => Self::ensure(addr),
            Recorded::AddRoute(route) => Self::add(route),
            Recorded::SetSysctl(sysctl) => Self::add(sysctl),
            Recorded::EnsureSysctl(sysctl) => Self::ensure(sysctl),
            Recorded::AddMasquerade(masquerade) => Self::add(masquerade),
            Recorded::AddMacCheck(check) => Self::add(check),
            Recorded::AddHostPorts(ports) => Self::add(ports),
            Recorded::AddFirewall(firewall) => Self::add(firewall),
            Recorded::AddShaping(shaping) => Self::add(shaping),
            Recorded::AddPacketGuard(guard) => Self::add(guard),
            Recorded::AddXskGuard(guard) => Self::add(guard),
            Recorded::NarrowXskGuard {
                guard,
                at,
                was_there,
            } => Self::ensure(XskLink {
                guard,
                at,
                was_there,
            }),
            Recorded::AddRedirect { from, to } => Self::add(Redirect { from, to }),
            Recorded::WaitUp(at) => Self::Wait(Event::Up(at)),
            Recorded::WaitDad(at) => Self::Wait(Event::Dad(at)),
        }
    }
}
