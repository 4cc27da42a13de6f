//! The check that a pod is held to the limits of its annotations, by the runtime's own capability.

use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::Cluster;
use braid_testbed::sh;
use serde_json::{Value, json};

/// Bits per second, from the pod and to it.
pub(crate) const EGRESS: (&str, u32) = ("10M", 10_000_000);
pub(crate) const INGRESS: (&str, u32) = ("20M", 20_000_000);
/// Bytes that one pod fetches from the other: some seconds' worth, beside which a burst is nothing.
const LOAD: u32 = 8 << 20;
/// TCP's part of a rate at an MTU of 1500: 1448 of 1514 bytes.
const SHARE: f64 = 1448.0 / 1514.0;
/// The goodput's share of that: the burst adds to it; connecting, and finding the rate, take from
/// it.
const SHARES: std::ops::RangeInclusive<f64> = 0.85..=1.06;
/// How often it is fetched at most.
const TRIES: usize = 4;

/// Makes a pod with limits and one without, lets each fetch from the other, and deletes both.
pub(crate) fn run(cluster: &Cluster) -> Result<()> {
    pods::delete(cluster, "pod", pods::LIMIT)?;
    let limits = json!({"kubernetes.io/egress-bandwidth": EGRESS.0, "kubernetes.io/ingress-bandwidth": INGRESS.0});
    cluster.create(&[pod("limited", &limits), pod("free", &json!({}))])?;
    pods::await_ready(cluster, pods::LIMIT)?;
    let checked = check_both(cluster);
    pods::delete(cluster, "pod", pods::LIMIT)?;
    checked
}

fn check_both(cluster: &Cluster) -> Result<()> {
    let address = |server| {
        let address = sh::read(&mut cluster.kubectl([
            "get",
            "pod",
            server,
            "-o",
            "jsonpath={.status.podIP}",
        ]));
        address.map(|address| address.trim().to_owned())
    };
    check(
        cluster,
        "free",
        ("limited", address("limited")?.as_str()),
        "sends",
        EGRESS,
    )?;
    check(
        cluster,
        "limited",
        ("free", address("free")?.as_str()),
        "receives",
        INGRESS,
    )
}

fn pod(name: &str, annotations: &Value) -> Value {
    let mut pod = pods::pod(name, pods::LIMIT, &spec());
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// The spec of a pod that serves what is fetched, and its name.
pub(crate) fn spec() -> Value {
    let load = format!("dd if=/dev/zero of=/tmp/load bs={LOAD} count=1");
    let mut spec = pods::spec(&format!(
        "{load}; hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
    ));
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1});
    spec
}

/// Has `client` fetch from `server`, and fails unless the limited one of them is held to the limit.
/// No fetch is faster; a busy machine may make one slower, so the best of some counts.
pub(crate) fn check(
    cluster: &Cluster,
    client: &str,
    (server, address): (&str, &str),
    does: &str,
    (text, bps): (&str, u32),
) -> Result<()> {
    for _ in 0..TRIES {
        let share = fetch(cluster, client, address)? / (f64::from(bps) * SHARE);
        println!(
            "a pod held to {text}bit/s {does} {:.1} % of what TCP can get of it",
            share * 100.0
        );
        ensure!(
            share <= *SHARES.end(),
            "{client} fetched {LOAD} bytes from {server} faster than the limit"
        );
        if SHARES.contains(&share) {
            return Ok(());
        }
    }
    anyhow::bail!("{client} fetched {LOAD} bytes from {server} too slowly {TRIES} times")
}

/// Measures the bits per second that `client` gets of the pod at `address`.
fn fetch(cluster: &Cluster, client: &str, address: &str) -> Result<f64> {
    let now = "read t _ < /proc/uptime; echo $t";
    let script = format!("{now}; timeout 60 wget -qO /dev/null http://{address}/load && {now}");
    let times = sh::read(&mut cluster.kubectl(["exec", client, "--", "/bin/sh", "-c", &script]))?;
    let times = times
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<f64>, _>>();
    let [start, end] = times.context("parse /proc/uptime")?[..] else {
        anyhow::bail!("{client} could not fetch")
    };
    Ok(f64::from(LOAD) * 8.0 / (end - start))
}
