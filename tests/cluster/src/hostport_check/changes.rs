//! A Service that changes its type and its session affinity while it lives.

use super::ask::{Asker, Question};
use super::kinds::{ask, at, service};
use super::{Protocol, manifests};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::thread::sleep;
use std::time::Duration;

const NAME: &str = "changing";
/// Longest time until kube-proxy has changed its rules.
const SYNC: Duration = Duration::from_secs(20);
/// Time without requests after which another pod may answer a client.
const AFFINITY: Duration = Duration::from_secs(2);
/// Attempts to see another pod. Each shows the same pod with a probability of 1/4.
const ATTEMPTS: usize = 16;

/// Creates a Service that is only a name, changes it, and sends requests after each change.
pub(super) fn check(cluster: &Cluster, nodes: [Node; 2]) -> Result<()> {
    let name = json!({"type": "ExternalName", "externalName": "braid.example", "ports": null});
    cluster.create(&[service(NAME, &name)])?;
    let ports = manifests::service(NAME, &[])["spec"]["ports"].take();
    change(
        cluster,
        &json!({"type": "NodePort", "externalName": null, "ports": ports}),
    )?;
    let to = at(cluster, NAME)?;
    let port = sh::read(&mut cluster.kubectl([
        "get",
        "service",
        NAME,
        "-o",
        "jsonpath={.spec.ports[0].nodePort}",
    ]))?;
    let port = port
        .parse()
        .with_context(|| format!("node port {port:?}"))?;
    let at_node = SocketAddrV4::new(nodes[1].address(), port);
    let client = manifests::client(nodes[0]);
    let from_pod = Asker::Pod(&client);
    for (asker, to) in [
        (from_pod, to),
        (Asker::Node(nodes[0]), to),
        (Asker::Outside, at_node),
    ] {
        expect(cluster, asker, to, 4)?;
    }
    change(cluster, &affinity(AFFINITY))?;
    wait::eventually(SYNC, || expect(cluster, from_pod, to, 1))?;
    expires(cluster, from_pod, to)?;
    change(
        cluster,
        &json!({"sessionAffinity": "None", "sessionAffinityConfig": null}),
    )?;
    wait::eventually(SYNC, || expect(cluster, from_pod, to, 4))?;
    change(
        cluster,
        &json!({"type": "ExternalName", "externalName": "braid.example", "clusterIP": null, "clusterIPs": null}),
    )?;
    wait::eventually(SYNC, || {
        let answers = question(from_pod, to).ask(cluster, 1);
        ensure!(answers.is_err(), "{NAME} still answers at {to}");
        Ok(())
    })?;
    println!(
        "a Service changes from ExternalName to NodePort and back, and its session affinity comes, expires and goes"
    );
    Ok(())
}

fn affinity(timeout: Duration) -> Value {
    json!({
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout.as_secs()}},
    })
}

fn change(cluster: &Cluster, spec: &Value) -> Result<()> {
    let patch = format!("--patch={}", json!({"spec": spec}));
    let patch = ["patch", "service", NAME, "--type=merge", &patch];
    sh::read(&mut cluster.kubectl(patch)).map(drop)
}

fn question(asker: Asker<'_>, to: SocketAddrV4) -> Question<'_> {
    Question {
        asker,
        source: None,
        protocol: Protocol::Tcp,
        to,
    }
}

/// Fails unless so many pods answer.
fn expect(cluster: &Cluster, asker: Asker<'_>, to: SocketAddrV4, pods: usize) -> Result<()> {
    let answers = ask(cluster, asker, Protocol::Tcp, to)?;
    let names: BTreeSet<String> = answers.into_iter().map(|answer| answer.pod).collect();
    ensure!(
        names.len() == pods,
        "{asker} to {NAME} at {to}: {names:?} answered, not {pods}"
    );
    Ok(())
}

/// Checks that another pod answers some time after the affinity expired.
fn expires(cluster: &Cluster, asker: Asker<'_>, to: SocketAddrV4) -> Result<()> {
    let mut seen = BTreeSet::new();
    for _ in 0..ATTEMPTS {
        let answers = question(asker, to).ask(cluster, 1)?;
        seen.extend(answers.into_iter().map(|answer| answer.pod));
        if seen.len() > 1 {
            return Ok(());
        }
        sleep(2 * AFFINITY);
    }
    anyhow::bail!("{asker} to {NAME}: {seen:?} alone answers after {AFFINITY:?} without requests")
}
