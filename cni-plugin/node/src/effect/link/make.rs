//! Creation of links: a veth or netkit pair, a bridge, or a child of another link, each in one
//! request.

use super::master::master_index;
use super::{parse, tap};
use crate::Cause;
use crate::effect::attr::set_attrs;
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, ECHO, EXCL, KernelError, Message};
use crate::sys::rtnl;
use crate::sys::rtnl::link::{NewKind, NewLink, by_name, new_link, rename};
use braid_core::name::{Mac, Ns};
use braid_core::plan::thing::link::{IpvlanMode, MacvlanMode, NetkitMode, Vxlan};
use braid_core::plan::thing::{Link, LinkAttr, LinkKind, LinkRef};
use netlink_packet_route::link as packet;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoVlan, InfoVrf, InfoVxlan,
    IpVlanMode, MacVlanMode,
};
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

/// Options for creating a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CreateOptions {
    /// True if attachments share the link, so another call may have created it meanwhile.
    pub(crate) shared: bool,
    /// Length of the transmit queue in packets; the kernel's default if unset.
    pub(crate) tx_queue_len: Option<u32>,
}

/// Creates `link`.
pub(crate) fn link(
    kernel: &mut Kernel,
    link: &Link,
    CreateOptions {
        shared,
        tx_queue_len,
    }: CreateOptions,
) -> Result<(), Cause> {
    if let LinkKind::Tap(made) = &link.kind {
        return tap::make(kernel, link, made);
    }
    let (mac, mtu, up) = (link.mac, link.mtu, link.up);
    let mut new = NewLink {
        name: Some(&link.at.name),
        mac,
        mtu,
        up,
        tx_queue_len,
        ..NewLink::default()
    };
    new.master = master_index(kernel, link)?;
    // A child is created in the parent's namespace, any other link in its own.
    let from = link.kind.made_in().unwrap_or(link.at.ns);
    new.netns = netns_of(kernel, link.at.ns, from);
    if let Some(parent) = link.kind.parent() {
        new.parent = Some(kernel.index(parent)?);
    }
    new.one_queue = matches!(link.kind, LinkKind::Veth { .. } | LinkKind::Ifb);
    let kind = kind(kernel, link, new.parent)?;
    match kernel
        .route(from)?
        .call(rtnl::NEWLINK, CREATE | EXCL | ECHO, |out| {
            new_link(&new, &kind, out);
        }) {
        Err(err) if err.errno == Errno::EEXIST && shared => adopt(kernel, link, err),
        Err(err) if err.errno == Errno::EEXIST && new.netns.is_some() => {
            renamed(kernel, link, from, &new, &kind)
        }
        made => {
            learn(kernel, link, &made?);
            Ok(())
        }
    }
}

/// Creates a child under a temporary name and renames it in its namespace. This is for kernels that
/// refuse the final name because a link in the parent's namespace has it (Linux 6.12 does, 6.18
/// does not). If another link in the container has the final name, the call fails and does not
/// change that link.
fn renamed(
    kernel: &mut Kernel,
    link: &Link,
    from: Ns,
    new: &NewLink<'_>,
    kind: &NewKind<'_>,
) -> Result<(), Cause> {
    let first = LinkRef {
        ns: link.at.ns,
        name: link.at.name.until_renamed(),
    };
    let made = NewLink {
        name: Some(&first.name),
        up: false,
        ..*new
    };
    kernel
        .route(from)?
        .call(rtnl::NEWLINK, CREATE | EXCL, |out| {
            new_link(&made, kind, out);
        })?;
    let index = kernel.index(&first);
    kernel.forget(&first);
    let socket = kernel.route(link.at.ns)?;
    let renamed = index.and_then(|index| {
        // A link that is up cannot be renamed before Linux 6.2. The kernel sets the flags last.
        socket.call(rtnl::SETLINK, 0, |out| {
            rename(index, &link.at.name, link.up, out);
        })?;
        Ok(index)
    });
    if renamed.is_err() {
        socket.call(rtnl::DELLINK, 0, |out| by_name(&first.name, out))?;
    }
    kernel.learn(link.at.clone(), renamed?);
    Ok(())
}

/// Returns the file descriptor of the container's namespace, for a request that creates a link in
/// `ns`. The request is sent in the namespace `from`. Returns `None` if `ns` is the host's
/// namespace, or if `ns` and `from` are the same.
fn netns_of(kernel: &Kernel, ns: Ns, from: Ns) -> Option<RawFd> {
    if ns != Ns::Pod || ns == from {
        return None;
    }
    kernel.netns().map(AsRawFd::as_raw_fd)
}

fn kind<'a>(kernel: &Kernel, link: &'a Link, parent: Option<u32>) -> Result<NewKind<'a>, Cause> {
    Ok(match &link.kind {
        LinkKind::Veth { peer, peer_mac } => NewKind::Veth(NewLink {
            one_queue: true,
            ..other_end(kernel, link, peer, *peer_mac)
        }),
        LinkKind::Netkit {
            peer,
            peer_mac,
            mode,
        } => NewKind::Netkit(other_end(kernel, link, peer, *peer_mac), netkit_mode(*mode)),
        LinkKind::Bridge { vlan_filtering } => {
            let data = InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]);
            NewKind::Single(InfoKind::Bridge, vlan_filtering.then_some(data))
        }
        LinkKind::Macvlan {
            mode, bc_queue_len, ..
        } => {
            let mut data = vec![InfoMacVlan::Mode(macvlan_mode(*mode))];
            data.extend(bc_queue_len.map(InfoMacVlan::BcQueueLen));
            NewKind::Single(InfoKind::MacVlan, Some(InfoData::MacVlan(data)))
        }
        LinkKind::Ipvlan { mode, .. } => {
            let data = vec![InfoIpVlan::Mode(ipvlan_mode(*mode))];
            NewKind::Single(InfoKind::IpVlan, Some(InfoData::IpVlan(data)))
        }
        LinkKind::Vlan { id, .. } => {
            let data = InfoData::Vlan(vec![InfoVlan::Id(*id)]);
            NewKind::Single(InfoKind::Vlan, Some(data))
        }
        LinkKind::Vxlan(made) => {
            let data = InfoData::Vxlan(vxlan(made, parent));
            NewKind::Single(InfoKind::Vxlan, Some(data))
        }
        LinkKind::Dummy => NewKind::Single(InfoKind::Dummy, None),
        LinkKind::Ifb => NewKind::Single(InfoKind::Ifb, None),
        LinkKind::Vrf { table } => {
            let data = InfoData::Vrf(vec![InfoVrf::TableId(*table)]);
            NewKind::Single(InfoKind::Vrf, Some(data))
        }
        LinkKind::Tap(_) | LinkKind::Other(_) => return Err(Errno::EOPNOTSUPP.into()),
    })
}

/// Builds the other end of a pair, with the same MTU as `link`.
fn other_end<'a>(kernel: &Kernel, link: &Link, peer: &'a LinkRef, mac: Option<Mac>) -> NewLink<'a> {
    let netns = netns_of(kernel, peer.ns, link.at.ns);
    NewLink {
        name: Some(&peer.name),
        mac,
        mtu: link.mtu,
        netns,
        ..NewLink::default()
    }
}

fn netkit_mode(mode: NetkitMode) -> packet::NetkitMode {
    match mode {
        NetkitMode::L2 => packet::NetkitMode::L2,
        NetkitMode::L3 => packet::NetkitMode::L3,
    }
}

fn macvlan_mode(mode: MacvlanMode) -> MacVlanMode {
    match mode {
        MacvlanMode::Private => MacVlanMode::Private,
        MacvlanMode::Vepa => MacVlanMode::Vepa,
        MacvlanMode::Bridge => MacVlanMode::Bridge,
        MacvlanMode::Passthru => MacVlanMode::Passthrough,
    }
}

fn ipvlan_mode(mode: IpvlanMode) -> IpVlanMode {
    match mode {
        IpvlanMode::L2 => IpVlanMode::L2,
        IpvlanMode::L3 => IpVlanMode::L3,
        IpvlanMode::L3s => IpVlanMode::L3S,
    }
}

/// Returns the attributes of a VXLAN on the underlay link with this index.
fn vxlan(made: &Vxlan, dev: Option<u32>) -> Vec<InfoVxlan> {
    let mut data = vec![
        InfoVxlan::Id(made.id),
        InfoVxlan::Port(made.port),
        InfoVxlan::Learning(made.learning),
    ];
    data.extend(dev.map(InfoVxlan::Link));
    if let Some(ip) = made.remote {
        data.push(match ip {
            IpAddr::V4(ip) => InfoVxlan::Group(ip),
            IpAddr::V6(ip) => InfoVxlan::Group6(ip),
        });
    }
    if let Some(ip) = made.local {
        data.push(match ip {
            IpAddr::V4(ip) => InfoVxlan::Local(ip),
            IpAddr::V6(ip) => InfoVxlan::Local6(ip),
        });
    }
    data.extend(made.ttl.map(InfoVxlan::Ttl));
    data
}

/// Accepts a shared link that another call created meanwhile, if it has the right kind. Otherwise
/// returns the error `refused`.
fn adopt(kernel: &mut Kernel, link: &Link, refused: KernelError) -> Result<(), Cause> {
    let fact = match kernel.link(&link.at)? {
        Some(fact) if fact.kind == link.kind.name() => fact,
        _ => return Err(refused.into()),
    };
    if link.up && !fact.up {
        let up = |out: &mut Vec<u8>| set_attrs(fact.index, [&LinkAttr::Up(true)], out);
        kernel.route(link.at.ns)?.call(rtnl::NEWLINK, 0, up)?;
    }
    Ok(())
}

/// Reads the index of a new link and of its peer from the kernel's echo.
fn learn(kernel: &mut Kernel, link: &Link, echo: &[Message]) {
    let Some((name, fact)) = echo.iter().find_map(|message| parse(&message.body)) else {
        return;
    };
    if name != link.at.name.as_str() {
        return;
    }
    kernel.learn(link.at.clone(), fact.index);
    if let (Some(peer), Some(index)) = (link.kind.peer(), fact.parent) {
        kernel.learn(peer.clone(), index);
    }
}
