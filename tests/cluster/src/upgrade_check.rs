//! Check of the upgrade from an installation without an agent to deploy/braid.yaml: no packet of
//! running pods is lost, and the removal afterwards leaves nothing.

use crate::flows::{End, Ping, Stream};
use crate::{pods, smoke};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, deploy, wait};

const APP: &str = pods::CHAOS;
const BEFORE: &str = "tests/cluster/src/upgrade_check/before.yaml";
const PODS: u32 = 6;

pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes()? {
        ensure!(
            !deploy::has_braid(cluster, node)?,
            "{node} has braid already, so its upgrade cannot be checked"
        );
    }
    let checked = before(cluster)
        .and_then(|()| upgrade(cluster))
        .and_then(|()| pods::delete(cluster, "pod", APP));
    // This restores the cluster even after a failed check. The error of the check takes precedence.
    let taken_off = deploy::take_off(cluster);
    checked.and(taken_off)
}

/// Installs braid without an agent, and checks it.
fn before(cluster: &Cluster) -> Result<()> {
    deploy::prepare(cluster)?;
    let kinds = ["-l", "app.kubernetes.io/component=crd"];
    sh::read(
        cluster
            .kubectl(["apply", "-f", deploy::MANIFEST])
            .args(kinds),
    )?;
    sh::read(&mut cluster.kubectl(["apply", "-f", BEFORE]))?;
    deploy::roll_out(cluster)?;
    wait::nodes(cluster)?;
    check(cluster).context("without an agent")?;
    println!("braid is installed without an agent");
    Ok(())
}

/// Applies the manifest while traffic flows between pods that were attached before.
fn upgrade(cluster: &Cluster) -> Result<()> {
    let [client, server, ..] = cluster.nodes()?[..] else {
        bail!("the cluster has one node, and this check needs two")
    };
    let [client, server] = [client, server].map(|node| End { app: APP, node });
    cluster.create(&[client, server].map(End::pod))?;
    pods::await_ready(cluster, APP)?;
    let mut stream = Stream::start(cluster, client, server)?;
    let ping = Ping::start(cluster, client, server)?;
    let upgraded = deploy::bring(cluster);
    let checked = check(cluster).context("after the upgrade");
    let count = ping.end().context("during the upgrade")?;
    stream.ensure_alive().context("during the upgrade")?;
    upgraded?;
    checked?;
    println!("upgraded: no packet of {count} lost, no connection broken");
    Ok(())
}

fn check(cluster: &Cluster) -> Result<()> {
    let options = smoke::Options {
        pods: PODS,
        lenient: true, // the ends of the traffic are not leftovers
    };
    smoke::run(cluster, &options)
}
