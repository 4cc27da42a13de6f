//! Garbage of containers that are gone, and everything of those that live.

use super::breaks::World;
use super::manifests::{APP, SERVED};
use crate::agent;
use crate::running::{Pod, attachments};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::{Service, tools, wait};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longest time until the garbage of a container is collected.
const COLLECTED: Duration = Duration::from_mins(1);
/// Time in which two collections run.
const TWO: Duration = Duration::from_secs(65);
const KUBELET: Duration = Duration::from_mins(2);
/// Name of the container that only containerd knows.
const STRANGER: &str = "repair-stranger";

/// Ends containers without DEL, beside others that no cluster knows.
pub(super) fn check(world: &World<'_>) -> Result<()> {
    let conf = world.read("cat /etc/cni/net.d/00-braid.conflist")?;
    let conf: Value = serde_json::from_str(&conf).context("parse the conflist")?;
    let network = conf["name"].as_str().context("a conflist without a name")?;
    let cnitool = tools::cnitool()?;
    let cnitool = |verb: &str, netns: &str| {
        let call = format!(
            "NETCONFPATH=/etc/cni/net.d CNI_PATH=/opt/cni/bin {} {verb} {network} /run/netns/{netns}",
            cnitool.display()
        );
        world.read(&call)
    };
    for netns in ["repair-alive", "repair-gone"] {
        world.run(&format!("ip netns add {netns}"))?;
        cnitool("add", netns)?;
    }
    stranger(world)?;
    let dead = sandbox(world)?;
    let before = collected(world)?;
    let count = || attachments(world.cluster, world.node).map(|all| all.len());
    let alive = count()?;
    let start = Instant::now();
    world.run("ip netns del repair-gone")?;
    let lost = alive - 1 - dead.networks;
    let result = wait::eventually(COLLECTED, || {
        let now = count()?;
        ensure!(now == lost, "{now} attachments, expected {lost}");
        dead.pod.ensure_released()
    });
    // The kubelet goes on whatever happened.
    Service::Kubelet.signal(world.node, "CONT")?;
    result?;
    ensure!(
        collected(world)? > before,
        "the counter of collected attachments is {before}"
    );
    println!(
        "a container and a pod without DEL are collected after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    wait::eventually(KUBELET, || {
        let again = Pod::running(world.cluster, world.node, &dead.pod.name)?;
        ensure!(again.id != dead.pod.id, "the sandbox of before");
        again.agreed(&[("net1", SERVED)]).map(drop)
    })?;
    std::thread::sleep(TWO.saturating_sub(start.elapsed()));
    ensure_complete(world, "ip -n repair-alive")?;
    let pid = task(world)?;
    ensure_complete(world, &format!("nsenter -t {pid} -n ip"))?;
    println!("containers that Kubernetes does not know keep everything");
    cnitool("del", "repair-alive")?;
    world.run("ip netns del repair-alive")?;
    world.run(&format!(
        "ctr tasks kill --signal SIGKILL {STRANGER}; sleep 1; ctr containers rm {STRANGER}"
    ))?;
    Ok(())
}

/// A pod with a sandbox that has died without DEL, while the kubelet is stopped.
struct Dead<'c> {
    pod: Pod<'c>,
    networks: usize,
}

/// Kills the sandbox of a pod, and deletes its network namespace, as if the runtime had lost it.
fn sandbox<'c>(world: &World<'c>) -> Result<Dead<'c>> {
    let name = ("repair-dead", APP);
    let pod = Pod::start(world.cluster, world.node, name, SERVED)?;
    pod.await_networks(&[("net1", SERVED)])?;
    let all = attachments(world.cluster, world.node)?;
    let mut own = all
        .iter()
        .filter(|one| one["container_id"] == pod.id.as_str());
    let netns = own.next().and_then(|one| one["netns"].as_str());
    let Some(netns) = netns else {
        bail!("{} has no namespace in braid's status", pod.name)
    };
    Service::Kubelet.signal(world.node, "STOP")?;
    let kill = format!(
        "ctr -n k8s.io tasks kill --all --signal SIGKILL {}; sleep 1; umount {netns}; rm {netns}",
        pod.id
    );
    let killed = world.run(&kill);
    if killed.is_err() {
        Service::Kubelet.signal(world.node, "CONT")?;
    }
    killed?;
    Ok(Dead { pod, networks: 2 })
}

/// Starts a container that only containerd knows, with the node's network.
fn stranger(world: &World<'_>) -> Result<()> {
    let image = world.cluster.dir().join("busybox.tar");
    world.run(&format!(
        "ctr images import {} && ctr run -d --cni localhost/busybox:1 {STRANGER} /bin/sleep 1000000",
        image.display()
    ))
}

/// Returns the process ID of the container that only containerd knows.
fn task(world: &World<'_>) -> Result<String> {
    let tasks = world.read("ctr tasks ls")?;
    let line = tasks.lines().find(|line| line.starts_with(STRANGER));
    let pid = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(pid.context("the container has ended")?.to_owned())
}

/// Fails unless a container reaches the node by its default route, and its address has a lease. `ip`
/// is a command for its namespace.
fn ensure_complete(world: &World<'_>, ip: &str) -> Result<()> {
    let shown = world.read(&format!("{ip} -j -4 addr show scope global"))?;
    let shown: Value = serde_json::from_str(&shown).context("parse the addresses")?;
    let address = shown[0]["addr_info"][0]["local"].as_str();
    let address = address.with_context(|| format!("{ip}: no address: {shown}"))?;
    let lease = world.read(&format!("cat /var/lib/cni/networks/*/{address}"))?;
    ensure!(!lease.is_empty(), "{address} has no lease");
    world
        .run(&format!("ping -n -c 1 -W 2 {address}"))
        .with_context(|| format!("{ip}: {address}"))
}

/// Returns the number of collected attachments.
fn collected(world: &World<'_>) -> Result<u64> {
    let metrics = agent::metrics(world.cluster, world.node)?;
    let value = agent::value(&metrics, "braid_collected_total", &[("kind", "attachment")]);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a counter"
    )]
    Ok(value as u64)
}
