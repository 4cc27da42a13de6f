//! Edits that are refused or fail: they change nothing, and are tried again.

use super::manifests::{self, APP, BROKEN, LAN, LATE, WAN};
use super::matching::ensure_same;
use crate::agent::events;
use crate::running::Pod;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node, wait};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until an edit is reported.
const REPORTED: Duration = Duration::from_secs(15);
/// Time in which a refused edit would take effect.
const WAIT: Duration = Duration::from_secs(2);
/// Longest time until a network is attached after its definition has appeared.
const APPEARED: Duration = Duration::from_secs(30);

/// A wrong annotation, and the reason and a part of the message of its event.
struct Wrong {
    networks: String,
    reason: &'static str,
    words: &'static str,
}

fn wrong(networks: String, reason: &'static str, words: &'static str) -> Wrong {
    Wrong {
        networks,
        reason,
        words,
    }
}

/// Gives a pod wrong annotations one after the other.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    let pod = Pod::start(cluster, node, ("plug-whole", APP), LAN)?;
    let attached = [("net1", LAN)];
    let mut before = pod.await_networks(&attached)?;
    let all = [
        wrong("[{\"name\":".to_owned(), "InvalidAnnotation", ""),
        wrong(format!("{LAN},{WAN}@a/b"), "InvalidAnnotation", "a/b"),
        wrong(
            format!(r#"[{{"name": "{WAN}", "ips": ["198.18.22.300"]}}]"#),
            "InvalidAnnotation",
            "198.18.22.300",
        ),
        wrong(format!("{WAN}@net7,{LAN}@net7"), "NetworkRefused", "net7"),
        wrong(
            format!(r#"[{{"name": "{LAN}"}}, {{"name": "{WAN}", "ips": ["203.0.113.9/24"]}}]"#),
            "FailedAddInterface",
            "203.0.113.9",
        ),
        // The first of the two could be attached, and the old one detached.
        wrong(
            format!("{WAN}@net5,{BROKEN}@net6"),
            "FailedAddInterface",
            "absent0",
        ),
        // The new one needs the interface of the old one, which comes back.
        wrong(format!("{WAN},{BROKEN}"), "FailedAddInterface", "absent0"),
        wrong(
            format!("{BROKEN},{LAN},{WAN}"),
            "FailedAddInterface",
            "absent0",
        ),
    ];
    for Wrong {
        networks,
        reason,
        words,
    } in all
    {
        pod.annotate(&networks)?;
        await_warning(cluster, &pod, reason, words)?;
        thread::sleep(WAIT);
        let mut after = pod.agreed(&attached)?;
        if networks == format!("{WAN},{BROKEN}")
            && let Some((before, after)) = before.get("net1").zip(after.get_mut("net1"))
        {
            after.index = before.index;
        }
        ensure_same(&before, &after, &["eth0", "net1"]).with_context(|| networks.clone())?;
        before = pod.links()?;
    }
    println!("an edit of several networks attaches all or none, and a wrong one changes nothing");
    late(cluster, &pod)?;
    // A failed edit is no obstacle to the next one.
    pod.edit(WAN, &[("net1", WAN)]).map(drop)
}

/// Selects a network before it is defined.
fn late(cluster: &Cluster, pod: &Pod<'_>) -> Result<()> {
    pod.annotate(&format!("{LAN},{LATE}"))?;
    await_warning(cluster, pod, "NoNetworkFound", LATE)?;
    pod.agreed(&[("net1", LAN)])?;
    // Pauses between attempts have grown by then.
    thread::sleep(Duration::from_secs(10));
    let start = Instant::now();
    cluster.create(&[manifests::late()])?;
    wait::eventually(APPEARED, || pod.agreed(&[("net1", LAN), ("net2", LATE)]))?;
    println!(
        "a missing network is attached {:.1} s after its definition has appeared",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn await_warning(cluster: &Cluster, pod: &Pod<'_>, reason: &str, words: &str) -> Result<()> {
    wait::eventually(REPORTED, || {
        let all = events(cluster, "Pod", &pod.name)?;
        let is_it = |event: &crate::agent::Event| {
            event.severity == "Warning" && event.reason == reason && event.message.contains(words)
        };
        ensure!(all.iter().any(is_it), "no {reason} {words:?} in {all:?}");
        Ok(())
    })
}
