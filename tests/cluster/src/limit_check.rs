//! Check that bandwidth annotations limit a pod's traffic, through the CNI capability `bandwidth`.

use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::Cluster;
use braid_testbed::sh;
use serde_json::{Value, json};

/// Egress limit of the pod: value of the annotation, and bits per second.
pub(crate) const EGRESS: (&str, u32) = ("10M", 10_000_000);
pub(crate) const INGRESS: (&str, u32) = ("20M", 20_000_000);
/// Size of a download in bytes. It takes several seconds at the limit, so the burst hardly counts.
const LOAD: u32 = 8 << 20;
/// Share of TCP payload in a rate at an MTU of 1500: 1448 of 1514 bytes.
const SHARE: f64 = 1448.0 / 1514.0;
/// Accepted range of a download's rate, as a share of the largest TCP payload rate within the
/// limit. The burst increases the rate, and connecting and slow start decrease it.
const SHARES: std::ops::RangeInclusive<f64> = 0.85..=1.06;
/// Largest number of downloads until one reaches the accepted rate.
const TRIES: usize = 4;

/// Creates a pod with limits and a pod without. Each pod downloads from the other one. Deletes both
/// pods.
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

/// Returns the spec of a pod that serves a file to download and its own name.
pub(crate) fn spec() -> Value {
    let load = format!("dd if=/dev/zero of=/tmp/load bs={LOAD} count=1");
    let mut spec = pods::spec(&format!(
        "{load}; hostname > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
    ));
    spec["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1});
    spec
}

/// Downloads from `server` to `client` several times. Fails if a download is faster than the limit
/// of `bps` bits per second, or if all are much slower. A busy machine can slow down a download, so
/// one good download is enough.
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
            "a pod limited to {text}bit/s {does} {:.1} % of TCP's maximum",
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

/// Downloads from the pod at `address` to `client`, and returns the rate in bits per second.
fn fetch(cluster: &Cluster, client: &str, address: &str) -> Result<f64> {
    let now = "read t _ < /proc/uptime; echo $t";
    let script = format!("{now}; timeout 60 wget -qO /dev/null http://{address}/load && {now}");
    let times = sh::read(&mut cluster.kubectl(["exec", client, "--", "/bin/sh", "-c", &script]))?;
    let times = times
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<f64>, _>>();
    let [start, end] = times.context("parse /proc/uptime")?[..] else {
        anyhow::bail!("{client} could not download")
    };
    Ok(f64::from(LOAD) * 8.0 / (end - start))
}
