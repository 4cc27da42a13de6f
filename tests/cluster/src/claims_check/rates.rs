//! Rates of pods that share a link, all at once, in each direction.

use super::manifests::RATE;
use super::placement::names;
use crate::networks_check::attached;
use anyhow::{Context, Result, ensure};
use braid_testbed::{Cluster, Node};
use std::process::{Command, Stdio};

/// Share of TCP payload in a rate at an MTU of 1500: 1448 of 1514 bytes.
const SHARE: f64 = 1448.0 / 1514.0;
/// Measurements until one is accepted.
const TRIES: usize = 4;
/// Accepted difference from the claimed rate.
const WITHIN: f64 = 0.03;
/// Seconds before the measurement, in which the connections reach their rate.
const WARM_UP: u32 = 2;
/// Address of the router, in whose namespace the other ends of the connections are.
const ROUTER: &str = "198.18.1.1";
const PORT: &str = "9100";

/// Counts what each connection brings in a second. The clients name themselves, and the side that sends.
const SERVER: &str = "
import socket, sys, threading, time
count, warm, seconds, sends = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == 'server'
listener = socket.create_server(('0.0.0.0', int(sys.argv[5])))
connections = []
for _ in range(count):
    connection, _ = listener.accept()
    name = connection.recv(64).split(b'\\0')[0].decode()
    connections.append((name, connection))
start = time.monotonic() + warm
end = start + seconds
lines = []
def serve(name, connection):
    connection.settimeout(30)
    data = bytes(1 << 18)
    try:
        if sends:
            connection.sendall(b'%d %d' % (warm, seconds))
            while time.monotonic() < end + 1:
                connection.send(data)
            return
        received = 0
        while (now := time.monotonic()) < end:
            got = len(connection.recv(1 << 18))
            if not got:
                break
            if now >= start:
                received += got
        lines.append(f'{name} {received * 8 / seconds}')
    except OSError as error:
        lines.append(f'{name} {error}')
threads = [threading.Thread(target=serve, args=one) for one in connections]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*lines, sep='\\n')
";
const CLIENT: &str = "
import socket, sys, time
for _ in range(50):
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
connection.sendall(sys.argv[3].encode())
connection.settimeout(30)
if sys.argv[4] == 'client':
    data = bytes(1 << 18)
    try:
        while True:
            connection.send(data)
    except OSError:
        sys.exit(0)
warm, seconds = map(int, connection.recv(64).split(b'\\0')[0].split())
start = time.monotonic() + warm
end = start + seconds
received = 0
while (now := time.monotonic()) < end:
    got = len(connection.recv(1 << 18))
    if now >= start:
        received += got
print(sys.argv[3], received * 8 / seconds, flush=True)
";

/// Lets all pods send at the same time, and then receive. Each must reach its claimed rate. A busy machine
/// can slow down a connection, so one good measurement is enough.
pub(super) fn check(cluster: &Cluster, node: Node, seconds: u32) -> Result<()> {
    let directions = [("client", "sends"), ("server", "receives")];
    for (sender, does) in directions.into_iter().filter(|_| seconds > 0) {
        let mut is_reached = false;
        for _ in 0..TRIES {
            let shares = measure(cluster, node, sender, seconds)?;
            for (name, share) in &shares {
                println!("{name} {does} {:.2} % of its claim", share * 100.0);
                ensure!(
                    *share <= 1.0 + WITHIN,
                    "{name} {does} {share:.3} of its claim"
                );
            }
            is_reached = shares.iter().all(|(_, share)| *share >= 1.0 - WITHIN);
            if is_reached {
                break;
            }
        }
        ensure!(
            is_reached,
            "in {TRIES} measurements not every pod {does} its claim"
        );
    }
    Ok(())
}

/// Returns the rate of each pod as a share of its claim.
fn measure(
    cluster: &Cluster,
    node: Node,
    sender: &str,
    seconds: u32,
) -> Result<Vec<(String, f64)>> {
    let names = names();
    let count = names.len().to_string();
    let (warm, seconds) = (WARM_UP.to_string(), seconds.to_string());
    let arguments = [
        "python3", "-c", SERVER, &count, &warm, &seconds, sender, PORT,
    ];
    let mut server = braid_testbed::in_netns(braid_testbed::LAN, arguments[0]);
    let server = server.args(&arguments[1..]).stdout(Stdio::piped()).spawn();
    let server = server.context("start the server")?;
    let mut clients = Vec::new();
    for name in &names {
        let words = ["python3", "-c", CLIENT, ROUTER, PORT, name, sender];
        let mut client: Command = attached::command(cluster, node, name, &words)?;
        let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        clients.push(client.context("start a client")?);
    }
    let mut lines = String::new();
    let output = server.wait_with_output().context("wait for the server")?;
    lines.push_str(&String::from_utf8_lossy(&output.stdout));
    for client in clients {
        let output = client.wait_with_output().context("wait for a client")?;
        lines.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    let rate = |line: &str| {
        let (name, rate) = line.split_once(' ')?;
        let rate: f64 = rate.parse().ok()?;
        Some((name.to_owned(), rate / (f64::from(RATE.1) * SHARE)))
    };
    let rates: Vec<_> = lines.lines().filter_map(rate).collect();
    ensure!(rates.len() == names.len(), "rates of some pods: {lines}");
    Ok(rates)
}
