//! Elements of the annotation and the attachments that they belong to.

use super::manifests::{APP, LAN, SERVED, WAN};
use crate::running::{Link, Pod};
use anyhow::{Result, ensure};
use braid_testbed::{Cluster, Node};
use std::collections::BTreeMap;

/// An annotation, the networks after the edit, and the interfaces that it leaves alone.
type Edit = (
    String,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

/// Edits a pod, and compares which interfaces stay.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    let pod = Pod::start(cluster, node, ("plug-match", APP), "")?;
    let mut before = pod.await_networks(&[])?;
    let edits: &[Edit] = &[
        (
            format!("{LAN},{SERVED},{WAN}"),
            &[("net1", LAN), ("net2", SERVED), ("net3", WAN)],
            &["eth0"],
        ),
        // The removal of one does not touch others.
        (
            format!("{SERVED},{WAN}"),
            &[("net2", SERVED), ("net3", WAN)],
            &["eth0", "net2", "net3"],
        ),
        // A new one gets the lowest free name.
        (
            format!("{SERVED},{WAN},{WAN}"),
            &[("net1", WAN), ("net2", SERVED), ("net3", WAN)],
            &["eth0", "net2", "net3"],
        ),
        // Two of one network match in the order in which they were attached: the later one goes.
        (
            format!("{WAN},{SERVED}"),
            &[("net2", SERVED), ("net3", WAN)],
            &["eth0", "net2", "net3"],
        ),
        // Elements with an interface match first, wherever they stand.
        (
            format!("{WAN}@net9,{WAN}@net3,{SERVED}"),
            &[("net2", SERVED), ("net3", WAN), ("net9", WAN)],
            &["eth0", "net2", "net3"],
        ),
        (
            format!("{WAN},{WAN}@net3"),
            &[("net3", WAN), ("net9", WAN)],
            &["eth0", "net3", "net9"],
        ),
        // Another network on an interface: detached and attached.
        (
            format!("{SERVED}@net3,{WAN}@net9"),
            &[("net3", SERVED), ("net9", WAN)],
            &["eth0", "net9"],
        ),
        (
            format!("{WAN}@net3,{SERVED}@net9"),
            &[("net3", WAN), ("net9", SERVED)],
            &["eth0"],
        ),
        (String::new(), &[], &["eth0"]),
    ];
    for (networks, expected, kept) in edits {
        let after = pod.edit(networks, expected)?;
        ensure_same(&before, &after, kept)?;
        before = after;
    }
    Ok(())
}

/// Fails unless these interfaces have the same index, MAC and addresses.
pub(super) fn ensure_same(
    before: &BTreeMap<String, Link>,
    after: &BTreeMap<String, Link>,
    kept: &[&str],
) -> Result<()> {
    for ifname in kept {
        let (before, after) = (before.get(*ifname), after.get(*ifname));
        ensure!(
            before.is_some() && before == after,
            "{ifname} was {before:?} and is {after:?}"
        );
    }
    Ok(())
}
