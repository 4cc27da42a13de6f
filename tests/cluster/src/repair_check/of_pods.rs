//! Objects of running pods on the node.

use super::breaks::{Of, World};
use super::manifests::{BRIDGE, MAKE_PARENT, PARENT};
use crate::running::{Link, Pod};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// True if a break leaves the interfaces of the pod as they are.
#[derive(Clone, Copy, PartialEq)]
enum Interface {
    Stays,
    /// It comes back with the same addresses and MAC.
    IsMadeAgain,
}

/// Breaks something of the first pod, and compares its interfaces.
fn breaks(
    world: &World<'_>,
    command: &str,
    show: &[&str],
    kinds: &[&str],
    (words, interface): (&str, Interface),
) -> Result<()> {
    let pod = &world.pods[0];
    let before = pod.links()?;
    world.breaks(command, show, kinds, (Of::Pods, words))?;
    let after = pod.links()?;
    let kept = |links: &BTreeMap<String, Link>| {
        let mut links = links.clone();
        if interface == Interface::IsMadeAgain {
            for link in links.values_mut() {
                link.index = 0;
            }
        }
        links
    };
    ensure!(
        kept(&before) == kept(&after),
        "{command}: {after:?}, before {before:?}"
    );
    Ok(())
}

/// The node's ends of a pod's pairs.
pub(super) fn ends(world: &World<'_>) -> Result<()> {
    let pod = &world.pods[0];
    let end = end_of(pod, "eth0")?;
    let show = format!("ip -j addr show dev {end} scope global");
    let routes = format!("ip -j route show dev {end}");
    let show = [show.as_str(), routes.as_str()];
    for command in [
        format!("ip link set {end} down"),
        format!("ip addr flush dev {end}"),
        format!("ip route flush dev {end}"),
    ] {
        breaks(
            world,
            &command,
            &show,
            &["link", "address", "route"],
            ("eth0", Interface::Stays),
        )?;
    }
    for ifname in ["eth0", "net1"] {
        let end = end_of(pod, ifname)?;
        breaks(
            world,
            &format!("ip link del {end}"),
            &[],
            &["attachment"],
            (ifname, Interface::IsMadeAgain),
        )?;
    }
    Ok(())
}

/// Returns the node's end of a pair.
fn end_of(pod: &Pod<'_>, ifname: &str) -> Result<String> {
    let links = pod.host_links()?;
    let link = links.get(ifname).and_then(|links| links.first());
    Ok(link
        .with_context(|| format!("{ifname} has no end on the node"))?
        .clone())
}

/// The bridge of a network.
pub(super) fn bridges(world: &World<'_>) -> Result<()> {
    let show = [
        format!("ip -j addr show dev {BRIDGE}"),
        format!("ip -j link show master {BRIDGE}"),
    ];
    let show = [show[0].as_str(), show[1].as_str()];
    for (command, interface) in [
        (format!("ip link set {BRIDGE} down"), Interface::Stays),
        (format!("ip -4 addr flush dev {BRIDGE}"), Interface::Stays),
        (format!("ip link del {BRIDGE}"), Interface::IsMadeAgain),
    ] {
        breaks(
            world,
            &command,
            if interface == Interface::Stays {
                &show[..1]
            } else {
                &[]
            },
            &["link", "address", "attachment"],
            ("net1", interface),
        )?;
    }
    Ok(())
}

/// The parent of macvlan interfaces, which is deleted and made again.
pub(super) fn parents(world: &World<'_>) -> Result<()> {
    breaks(
        world,
        &format!("ip link del {PARENT}; sleep 2; {MAKE_PARENT}"),
        &[],
        &["attachment"],
        ("net2", Interface::IsMadeAgain),
    )
}
