//! Check that the keys of the agent's configuration apply to a running cluster: type, MTU and mode.
//! Packets of full size pass between pods of one node and of two, whatever the MTU of the uplinks.

use crate::networks_check::attached;
use crate::pods;
use crate::smoke;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, deploy, wait};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const APP: &str = pods::SETTINGS;
const CONFLIST: &str = "etc/cni/net.d/00-braid.conflist";
/// Longest time until the conflists of all nodes follow the configuration.
const LIMIT: Duration = Duration::from_secs(20);
const PODS: u32 = 8;
/// Bytes of the outer headers of VXLAN over IPv4.
const VXLAN: u64 = 50;
/// Bytes of the headers of IPv4 and ICMP.
const HEADERS: u64 = 28;

pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        ensure!(
            deploy::has_braid(cluster, node)?,
            "{node} has no braid: `cargo xtask cluster deploy` installs it"
        );
    }
    pods::delete(cluster, "pod", APP)?; // what an earlier run left to look at
    let checked = mtus(cluster)
        .and_then(|()| bridge(cluster))
        .and_then(|()| netkit(cluster));
    // This restores the cluster even after a failed check. The error of the check takes precedence.
    let restored = pods::delete(cluster, "pod", APP).and_then(|()| restore(cluster));
    checked.and(restored)
}

/// Checks the MTU of pods in each mode with packets of full size, and that a change of the key
/// `mtu` leaves running pods alone.
fn mtus(cluster: &Cluster) -> Result<()> {
    let [node, other, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let links = sh::read(&mut cluster.on(node, ["ip", "-j", "link", "show", "eth0"])?)?;
    let links: Value = serde_json::from_str(&links).context("parse the links")?;
    let uplink = links[0]["mtu"].as_u64().context("eth0 has no MTU")?;
    for (mode, mtu) in [
        ("direct", uplink),
        ("vxlan", uplink - VXLAN),
        ("auto", uplink - VXLAN),
    ] {
        configure(cluster, &format!("mode: {mode}"))?;
        await_conflists(cluster, |network| network["mtu"] == mtu)
            .with_context(|| format!("mode {mode}: MTU {mtu}"))?;
        full_size(cluster, [node, other], mtu).with_context(|| format!("mode {mode}"))?;
        println!("uplinks {uplink}, mode {mode}: pods have {mtu}, and full packets pass");
    }
    let before = create(cluster, "before", node)?;
    configure(cluster, "mtu: 1300")?;
    await_conflists(cluster, |network| network["mtu"] == 1300)?;
    let after = create(cluster, "after", node)?;
    let found = [
        mtu_of(cluster, node, &before)?,
        mtu_of(cluster, node, &after)?,
    ];
    ensure!(
        found == [uplink - VXLAN, 1300],
        "MTU of a pod before and of one after `mtu: 1300`: {found:?}"
    );
    println!("mtu: 1300 applies to new pods only");
    pods::delete(cluster, "pod", APP)
}

/// Creates two pods on a node and one on another. Fails unless they have the MTU and packets of
/// that size pass between them.
fn full_size(cluster: &Cluster, [node, other]: [Node; 2], mtu: u64) -> Result<()> {
    let from = create(cluster, "from", node)?;
    for (name, place) in [("near", node), ("far", other)] {
        let to = create(cluster, name, place)?;
        for (node, pod) in [(node, &from), (place, &to)] {
            let found = mtu_of(cluster, node, pod)?;
            ensure!(found == mtu, "{pod} on {node} has MTU {found}, not {mtu}");
        }
        let address = attached::address(cluster, &to, 0)?;
        let size = (mtu - HEADERS).to_string();
        let ping = [
            "ping", "-n", "-M", "do", "-s", &size, "-c", "5", "-i", "0.1", "-w", "15",
        ];
        let ping = [&ping[..], &[&address]].concat();
        sh::read(&mut attached::command(cluster, node, &from, &ping)?)
            .with_context(|| format!("{mtu} bytes from {node} to {place}"))?;
    }
    pods::delete(cluster, "pod", APP)
}

fn bridge(cluster: &Cluster) -> Result<()> {
    configure(cluster, "type: bridge")?;
    await_conflists(cluster, |network| network["type"] == "bridge")?;
    let options = smoke::Options {
        pods: PODS,
        lenient: false,
    };
    smoke::run_and_look(cluster, &options, |node, _| {
        let show = ["ip", "-j", "link", "show", "master", "braid0"];
        let ports = sh::read(&mut cluster.on(node, show)?)?;
        ensure!(ports.contains("ifname"), "{node}: no pod is on braid0");
        Ok(())
    })
    .context("with type: bridge")
}

/// Configures a type that the kernel may lack. Then pods must start with it, or an event has the
/// reason, and the network stays as it was.
fn netkit(cluster: &Cluster) -> Result<()> {
    let [node, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has no node")
    };
    configure(cluster, "type: netkit")?;
    let refusal = wait::eventually(LIMIT, || {
        if is_everywhere(cluster, "netkit")? {
            return Ok(None);
        }
        let about = "--field-selector=reason=InvalidConfiguration";
        let notes = "-o=jsonpath={.items[*].message}";
        let notes = sh::read(&mut cluster.kubectl(["get", "events", about, notes]))?;
        ensure!(
            notes.contains("netkit needs netkit"),
            "no reason in {notes:?}"
        );
        Ok(Some(notes))
    })?;
    if let Some(notes) = refusal {
        ensure!(is_everywhere(cluster, "bridge")?, "the network has changed");
        println!("type: netkit is refused: {notes}");
    }
    create(cluster, "netkit", node)?;
    wait::nodes(cluster)
}

/// True if the default network of each node has this type.
fn is_everywhere(cluster: &Cluster, kind: &str) -> Result<bool> {
    for node in cluster.nodes()? {
        let text = fs::read_to_string(cluster.root(node)?.join(CONFLIST))?;
        let list: Value = serde_json::from_str(&text).context("parse the conflist")?;
        if list["plugins"][0]["plugins"][0]["type"] != kind {
            return Ok(false);
        }
    }
    Ok(true)
}

fn configure(cluster: &Cluster, text: &str) -> Result<()> {
    let patch = json!({"data": {"config.yaml": text}}).to_string();
    let map = ["patch", "configmap", "braid", "-n", "kube-system", "-p"];
    sh::read(cluster.kubectl(map).arg(patch)).map(drop)
}

fn restore(cluster: &Cluster) -> Result<()> {
    configure(cluster, "mode: auto\ntype: ptp\nmtu: 0\n")?;
    await_conflists(cluster, |network| network["type"] == "ptp")?;
    wait::nodes(cluster)
}

/// Waits until `holds` is true of the first plugin in the conflist of each node.
fn await_conflists(cluster: &Cluster, holds: impl Fn(&Value) -> bool) -> Result<()> {
    for node in cluster.nodes()? {
        let path = cluster.root(node)?.join(CONFLIST);
        wait::eventually(LIMIT, || {
            let text = fs::read_to_string(&path)?;
            let list: Value = serde_json::from_str(&text).context("parse the conflist")?;
            ensure!(holds(&list["plugins"][0]["plugins"][0]), "{node}: {text}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Creates a pod, waits until it is Ready, and returns its name.
fn create(cluster: &Cluster, name: &str, node: Node) -> Result<String> {
    let name = format!("settings-{name}");
    let mut spec = pods::spec("exec sleep 1000000");
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": node.to_string()});
    cluster.create(&[pods::pod(&name, APP, &spec)])?;
    pods::await_ready(cluster, APP)?;
    Ok(name)
}

fn mtu_of(cluster: &Cluster, node: Node, pod: &str) -> Result<u64> {
    let show = ["ip", "-j", "link", "show", "eth0"];
    let links = attached::in_pod(cluster, node, pod, &show)?;
    links[0]["mtu"].as_u64().context("eth0 has no MTU")
}
