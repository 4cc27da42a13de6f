//! Requests that change without a new interface: limits, host ports, default routes.

use super::manifests::{APP, LAN, SERVED, WAN, WAN_GATEWAY};
use super::matching::ensure_same;
use crate::flows::{PORT, Ping, Stream};
use crate::running::{IN_PLACE, Pod};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::{CONTROL_PLANE, Cluster, Node, in_netns, sh, wait};
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// Gateway of the network with limits.
const GATEWAY: &str = "198.18.21.1";
/// Limits in Mbit/s, one after the other. The flow of packets uses most of the lowest.
const RATES: [u64; 6] = [6, 40, 8, 100, 7, 30];
/// Host ports before and after an edit. The first one stays.
const PORTS: [u64; 3] = [28_180, 28_181, 28_182];
/// Time over which a rate is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// Accepted share of a limit in TCP payload: headers take 4.4 %, and a busy machine is slow.
const SHARES: std::ops::RangeInclusive<f64> = 0.75..=1.06;
/// Reads a connection, and writes the number of bytes so far, ten times a second.
const SINK: &str = "
import socket, sys, time
listener = socket.create_server((sys.argv[1], 9100))
connection, _ = listener.accept()
total, due = 0, 0
while data := connection.recv(65536):
    total += len(data)
    if time.monotonic() >= due:
        due = time.monotonic() + 0.1
        print(time.monotonic(), total, flush=True)
";
/// Sends as much as it can.
const SOURCE: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], 9100), 10)
connection.settimeout(None)
while True:
    connection.sendall(bytes(65536))
";
/// Connects to an address and a port, and fails without an answer.
const CONNECT: &str = "
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)
";

fn request(mbit: Option<u64>, ports: &[u64]) -> Value {
    let mut mappings = Vec::new();
    for port in ports {
        mappings.push(json!({"hostPort": port, "containerPort": PORT, "protocol": "TCP"}));
    }
    let mut request = json!({"name": SERVED});
    if !mappings.is_empty() {
        request["portMappings"] = json!(mappings);
    }
    if let Some(mbit) = mbit {
        let (rate, burst) = (mbit * 1_000_000, 800_000);
        request["bandwidth"] = json!({"ingressRate": rate, "ingressBurst": burst,
            "egressRate": rate, "egressBurst": burst});
    }
    request
}

/// Changes limits under traffic, host ports under a connection, and the default route.
pub(super) fn check(cluster: &Cluster, node: Node) -> Result<()> {
    let first = json!([request(Some(RATES[0]), &[])]).to_string();
    let pod = Pod::start(cluster, node, ("plug-place", APP), &first)?;
    let expected = [("net1", SERVED)];
    let before = pod.await_networks(&expected)?;
    limits(&pod)?;
    flow(cluster, &pod)?;
    ports(&pod)?;
    ensure_same(&before, &pod.await_networks(&expected)?, &["eth0", "net1"])?;
    println!("limits and host ports changed on the same interface");
    routes(&pod)
}

/// Changes the limits while packets are on their way in both directions.
fn limits(pod: &Pod<'_>) -> Result<()> {
    // 5.2 Mbit/s in each direction.
    let ping = ["ping", "-n", "-i", "0.002", "-s", "1272", GATEWAY];
    let ping = Ping::run(pod.command(&ping)?)?;
    for mbit in RATES {
        pod.annotate(&json!([request(Some(mbit), &[])]).to_string())?;
        await_rate(pod, mbit)?;
    }
    let count = ping.end().context("while limits change")?;
    println!("no packet of {count} lost while limits change to {RATES:?} Mbit/s");
    Ok(())
}

fn await_rate(pod: &Pod<'_>, mbit: u64) -> Result<()> {
    wait::eventually(IN_PLACE, || {
        let queues = pod.queues("net1")?;
        let rate = format!(" rate {mbit}Mbit");
        ensure!(queues.contains(&rate), "no{rate}: {queues}");
        Ok(())
    })
}

/// A TCP connection from a pod to its gateway, as fast as possible.
struct Flow {
    sink: Child,
    source: Child,
    seen: tempfile::NamedTempFile,
}

impl Flow {
    fn start(cluster: &Cluster, pod: &Pod<'_>) -> Result<Self> {
        let seen = tempfile::NamedTempFile::new().context("make a file of numbers")?;
        let sink = cluster
            .on(pod.node, ["python3", "-c", SINK, GATEWAY])?
            .stdout(seen.reopen()?)
            .spawn()
            .context("start python3")?;
        thread::sleep(Duration::from_millis(500));
        let source = pod
            .command(&["python3", "-c", SOURCE, GATEWAY])?
            .stderr(Stdio::null())
            .spawn()
            .context("start python3")?;
        Ok(Self { sink, source, seen })
    }

    /// Measures the rate in Mbit/s from now on.
    fn rate(&mut self) -> Result<f64> {
        let before = self.last()?;
        thread::sleep(MEASURED);
        let after = self.last()?;
        ensure!(
            self.source.try_wait()?.is_none(),
            "the connection has ended"
        );
        Ok((after.1 - before.1) * 8.0 / 1e6 / (after.0 - before.0))
    }

    /// Returns the last time, in seconds, and the number of bytes until then.
    fn last(&self) -> Result<(f64, f64)> {
        let text = fs::read_to_string(self.seen.path())?;
        let line = text.trim_end().lines().last().unwrap_or_default();
        let numbers: Vec<f64> = line
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        match numbers[..] {
            [time, bytes] => Ok((time, bytes)),
            _ => bail!("no bytes have arrived: {line:?}"),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        for child in [&mut self.source, &mut self.sink] {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Changes the limit of one connection, which goes from one rate to the other.
fn flow(cluster: &Cluster, pod: &Pod<'_>) -> Result<()> {
    let mut flow = Flow::start(cluster, pod)?;
    let mut rates = Vec::new();
    for mbit in [40, 80, 20] {
        pod.annotate(&json!([request(Some(mbit), &[])]).to_string())?;
        await_rate(pod, mbit)?;
        // A busy machine slows a connection down.
        let rate = wait::eventually(IN_PLACE, || {
            let rate = flow.rate()?;
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let share = rate / mbit as f64;
            ensure!(SHARES.contains(&share), "{rate:.1} of {mbit} Mbit/s");
            Ok(rate)
        })?;
        rates.push(format!("{rate:.1} of {mbit}"));
    }
    pod.annotate(&json!([request(None, &[])]).to_string())?;
    let free = wait::eventually(IN_PLACE, || {
        let rate = flow.rate()?;
        ensure!(rate > 200.0, "{rate:.1} Mbit/s without a limit");
        Ok(rate)
    })?;
    println!(
        "one connection of {} Mbit/s, and {free:.0} without a limit",
        rates.join(", ")
    );
    Ok(())
}

/// Changes the host ports while a client uses one that stays.
fn ports(pod: &Pod<'_>) -> Result<()> {
    let [stays, goes, comes] = PORTS;
    pod.annotate(&json!([request(None, &[stays, goes])]).to_string())?;
    let address = pod.node.address().to_string();
    let client = |words: &[&str]| {
        let mut command = in_netns(CONTROL_PLANE, words[0]);
        command.args(&words[1..]);
        Ok(command)
    };
    let port = u16::try_from(stays)?;
    let mut stream = Stream::between(client, |words| pod.command(words), (&address, port))?;
    let answers = |port: u64| {
        let connect = ["python3", "-c", CONNECT, &address, &port.to_string()];
        client(&connect).is_ok_and(|mut connect| sh::read(&mut connect).is_ok())
    };
    ensure!(answers(goes), "host port {goes} does not answer");
    pod.annotate(&json!([request(Some(50), &[stays, comes])]).to_string())?;
    wait::until("the new host port answers", IN_PLACE, || Ok(answers(comes)))?;
    ensure!(!answers(goes), "host port {goes} still answers");
    ensure!(answers(stays), "host port {stays} does not answer");
    thread::sleep(Duration::from_secs(1));
    stream.ensure_alive().context("a host port that stays")?;
    println!("host ports change, and a connection of one that stays goes on");
    Ok(())
}

/// Moves the default route from one network to another, and back.
fn routes(pod: &Pod<'_>) -> Result<()> {
    let routed =
        json!([{"name": SERVED}, {"name": LAN}, {"name": WAN, "default-route": [WAN_GATEWAY]}]);
    let plain = json!([{"name": SERVED}, {"name": LAN}, {"name": WAN}]);
    let expected = [("net1", SERVED), ("net2", LAN), ("net3", WAN)];
    let before = pod.edit(&plain.to_string(), &expected)?;
    for (networks, link) in [
        (&routed, "net3"),
        (&plain, "eth0"),
        (&routed, "net3"),
        (&plain, "eth0"),
    ] {
        pod.annotate(&networks.to_string())?;
        wait::eventually(IN_PLACE, || {
            let routes = pod.default_routes()?;
            ensure!(routes == [link], "default routes by {routes:?}");
            Ok(())
        })?;
        let after = pod.await_networks(&expected)?;
        ensure_same(&before, &after, &["eth0", "net1", "net2", "net3"])?;
        let status = pod.status()?;
        let routed = status
            .iter()
            .find(|entry| entry["default-route"].is_array());
        let routed = routed.and_then(|entry| entry["interface"].as_str());
        let told = if link == "net3" { Some(link) } else { None };
        ensure!(
            routed == told || routed == Some(link),
            "default route of the status by {routed:?}, expected {link}"
        );
    }
    println!("the default route moves between networks, and no interface changes");
    Ok(())
}
