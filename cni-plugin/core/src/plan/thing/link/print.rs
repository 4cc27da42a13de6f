//! Prints links as `ip` commands.

use super::{Link, LinkKind, LinkRef, Tap};
use crate::name::Mac;
use std::fmt;

/// Writes the options that all kinds of links have.
pub(super) fn print_common(link: &Link, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(mac) = link.mac {
        write!(f, " address {mac}")?;
    }
    if let Some(mtu) = link.mtu {
        write!(f, " mtu {mtu}")?;
    }
    if let Some(master) = &link.master {
        write!(f, " master {master}")?;
    }
    f.write_str(if link.up { " up" } else { "" })
}

pub(super) fn print_add(link: &Link, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let LinkKind::Tap(tap) = &link.kind {
        return print_tap(link, tap, f);
    }
    f.write_str("ip link add")?;
    f.write_str(&link.kind.origin(link.at.ns))?;
    write!(f, " name {}", link.at.name)?;
    print_common(link, f)?;
    // Each end of a veth has a single queue per direction: see `rtnl::link`.
    let queues = " numtxqueues 1 numrxqueues 1";
    if matches!(link.kind, LinkKind::Veth { .. }) {
        f.write_str(queues)?;
    }
    write!(f, " type {}", link.kind.name())?;
    for word in link.kind.words() {
        write!(f, " {word}")?;
    }
    if let LinkKind::Veth { peer, peer_mac } = &link.kind {
        print_peer(link, peer, *peer_mac, queues, f)?;
    }
    if let LinkKind::Netkit { peer, peer_mac, .. } = &link.kind {
        print_peer(link, peer, *peer_mac, "", f)?;
    }
    Ok(())
}

/// Writes the commands that create a tap.
fn print_tap(link: &Link, tap: &Tap, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(context) = &tap.context {
        write!(f, "runcon {context} ")?;
    }
    let (name, options) = (&link.at.name, tap.options().join(" "));
    write!(f, "ip tuntap add name {name} {options}")?;
    if link.mac.is_some() || link.mtu.is_some() || link.master.is_some() {
        write!(f, "\n{:<5}ip link set {name}", link.at.ns.to_string())?;
        print_common(link, f)?;
    }
    Ok(())
}

fn print_peer(
    link: &Link,
    peer: &LinkRef,
    mac: Option<Mac>,
    queues: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, " name {}", peer.name)?;
    if let Some(mac) = mac {
        write!(f, " address {mac}")?;
    }
    if let Some(mtu) = link.mtu {
        write!(f, " mtu {mtu}")?;
    }
    f.write_str(queues)?;
    if peer.ns == link.at.ns {
        Ok(())
    } else {
        write!(f, " netns {}", peer.ns)
    }
}
