//! Whether a pod is held to the limits of its annotations, by the runtime's own capability.

use super::pods;
use super::state::Cluster;
use crate::sh;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::{Write, stdout};

/// Bits per second, from the pod and to it.
const EGRESS: (&str, f64) = ("10M", 10e6);
const INGRESS: (&str, f64) = ("20M", 20e6);
/// What one pod fetches from the other, in bytes: some seconds' worth, beside which a burst is nothing.
const LOAD: u32 = 8 << 20;
/// What TCP gets of a rate at an MTU of 1500: 1448 of 1514 bytes.
const SHARE: f64 = 1448.0 / 1514.0;
/// The goodput's share of that: the burst adds to it; connecting, and finding the rate, take from it.
const SHARES: std::ops::RangeInclusive<f64> = 0.85..=1.06;

/// Makes a pod with limits and one without, lets each fetch from the other, and deletes both.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    delete(cluster)?;
    let limits = json!({"kubernetes.io/egress-bandwidth": EGRESS.0, "kubernetes.io/ingress-bandwidth": INGRESS.0});
    pods::create(cluster, &[pod("limited", &limits), pod("free", &json!({}))])?;
    let wait = ["wait", "--for=condition=Ready", "--timeout=120s", "pod", "-l"];
    sh::read(cluster.kubectl(wait).arg(format!("app={}", pods::LIMIT)))?;
    let checked = check(cluster, "free", "limited", "sends", EGRESS)
        .and_then(|()| check(cluster, "limited", "free", "receives", INGRESS));
    delete(cluster)?;
    checked
}

fn pod(name: &str, annotations: &Value) -> Value {
    let script = format!("dd if=/dev/zero of=/tmp/load bs={LOAD} count=1; exec httpd -f -p 80 -h /tmp");
    let mut spec = pods::spec(&script);
    spec["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/load", "port": 80}, "periodSeconds": 1});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": pods::LIMIT}, "annotations": annotations},
        "spec": spec,
    })
}

/// Lets `client` fetch from `server`; what the limited one of them does is held to the limit.
fn check(cluster: &Cluster, client: &str, server: &str, does: &str, (text, bps): (&str, f64)) -> Result<()> {
    let address = sh::read(&mut cluster.kubectl(["get", "pod", server, "-o", "jsonpath={.status.podIP}"]))?;
    let now = "read t _ < /proc/uptime; echo $t";
    let script = format!("{now}; timeout 60 wget -qO /dev/null http://{}/load && {now}", address.trim());
    let times = sh::read(&mut cluster.kubectl(["exec", client, "--", "/bin/sh", "-c", &script]))?;
    let times = times.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    let [start, end] = times.context("parse /proc/uptime")?[..] else { anyhow::bail!("{client} could not fetch") };
    let share = f64::from(LOAD) * 8.0 / (end - start) / (bps * SHARE);
    writeln!(stdout(), "a pod held to {text}bit/s {does} {:.1} % of what TCP can get of it", share * 100.0)?;
    ensure!(SHARES.contains(&share), "{client} fetched {LOAD} bytes from {server} in {:.2} s", end - start);
    Ok(())
}

fn delete(cluster: &Cluster) -> Result<()> {
    let wait = ["--ignore-not-found", "--timeout=120s", "-l"];
    sh::read(cluster.kubectl(["delete", "pod"]).args(wait).arg(format!("app={}", pods::LIMIT))).map(drop)
}
