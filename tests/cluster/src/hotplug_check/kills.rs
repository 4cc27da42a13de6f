//! Agents that are killed while they change the networks of a pod: at each step, and after growing
//! delays. The next agent makes the last edit come true, with nothing left or doubled.
//!
//! ```text
//!  one edit under strace ─► calls of the thread that made it
//!  each call: strace kills the agent there ─► another agent ─► the pod has the networks of the edit
//! ```

use super::manifests::{APP, LAN, SERVED, WAN, WAN_GATEWAY};
use crate::agent::{self, Agent};
use crate::running::{IN_PLACE, Pod};
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// System calls of a change: requests to the kernel and to the API server, records and leases. A kill
/// between two of them is as good as one at the second.
const CALLS: [&str; 9] = [
    "sendmsg",
    "sendto",
    "openat",
    "write",
    "rename",
    "renameat2",
    "unlink",
    "unlinkat",
    "symlink",
];
/// Parts of calls that only read.
const READS: [&str; 5] = ["O_RDONLY", "O_PATH", "NLM_F_DUMP", "RTM_GET", "NFT_MSG_GET"];
/// Folder of the records, in which the thread that changes a pod renames files.
const RECORDS: &str = "/run/braid/attachments/";
/// Longest delay after an edit, and the step between delays.
const LONGEST: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(20);
/// Time until strace has attached, or the agent has reached a point.
const LIMIT: Duration = Duration::from_secs(10);
const DETACHED: Duration = Duration::from_secs(1);
/// Edits of which one must reach a point.
const TRIES: usize = 6;

/// One of two states of a pod. The change from one to the other attaches, detaches and adjusts.
struct State {
    networks: String,
    first: &'static str,
    /// Rate of the limit in Mbit/s.
    rate: u64,
    /// Interface of the default route.
    routed: &'static str,
}

fn states() -> [State; 2] {
    let served = |rate: u64| {
        let bandwidth = json!({"ingressRate": rate * 1_000_000, "ingressBurst": 800_000,
            "egressRate": rate * 1_000_000, "egressBurst": 800_000});
        let port = json!({"hostPort": 28_000 + rate, "containerPort": 80, "protocol": "TCP"});
        json!({"name": SERVED, "bandwidth": bandwidth, "portMappings": [port]})
    };
    [
        State {
            networks: json!([{"name": LAN}, served(20)]).to_string(),
            first: LAN,
            rate: 20,
            routed: "eth0",
        },
        State {
            networks: json!([{"name": WAN, "default-route": [WAN_GATEWAY]}, served(40)])
                .to_string(),
            first: WAN,
            rate: 40,
            routed: "net1",
        },
    ]
}

/// A pod that goes from one state to the other.
struct Toggled<'c> {
    cluster: &'c Cluster,
    node: Node,
    pod: Pod<'c>,
    states: [State; 2],
    edits: usize,
}

/// Kills the agent at each step of an edit.
pub(super) fn at_each_step(cluster: &Cluster, node: Node) -> Result<()> {
    let mut toggled = Toggled::start(cluster, node)?;
    let points = toggled.points()?;
    let total = points.len();
    println!("{total} points of an edit: {}", counted(&points));
    for (at, (call, nth)) in points.iter().enumerate() {
        if at % 10 == 0 {
            println!("point {at}: {call} {nth}");
        }
        // A thread may do other work first, or less in the other direction, and so not reach a point.
        let mut tries = 1;
        while !toggled
            .kill_at(call, *nth)
            .with_context(|| format!("killed at {call} {nth}"))?
        {
            ensure!(tries < TRIES, "no edit of {TRIES} reached {call} {nth}");
            tries += 1;
        }
    }
    println!("killed at each of {total} points of an edit, and each edit came true");
    Ok(())
}

/// Kills the agent after delays that cover the whole duration of an edit.
pub(super) fn after_delays(cluster: &Cluster, node: Node) -> Result<()> {
    let mut toggled = Toggled::start(cluster, node)?;
    let mut delay = Duration::ZERO;
    let mut slowest = Duration::ZERO;
    while delay <= LONGEST {
        let agent = agent::await_ready(cluster, node)?;
        toggled.edit()?;
        thread::sleep(delay);
        kill(&agent)?;
        let start = Instant::now();
        agent::replace(cluster, node)?;
        toggled
            .await_state()
            .with_context(|| format!("killed {delay:?} after the edit"))?;
        slowest = slowest.max(start.elapsed());
        delay += STEP;
    }
    println!(
        "each edit came true with an agent that was killed 0-{LONGEST:?} later, within {:.1} s",
        slowest.as_secs_f64()
    );
    Ok(())
}

impl<'c> Toggled<'c> {
    fn start(cluster: &'c Cluster, node: Node) -> Result<Self> {
        let states = states();
        let pod = Pod::start(cluster, node, ("plug-kill", APP), &states[0].networks)?;
        let toggled = Self {
            cluster,
            node,
            pod,
            states,
            edits: 0,
        };
        toggled.await_state()?;
        Ok(toggled)
    }

    fn edit(&mut self) -> Result<()> {
        self.edits += 1;
        self.pod.annotate(&self.state().networks)
    }

    fn state(&self) -> &State {
        &self.states[self.edits % 2]
    }

    /// Waits until the pod is as its last edit says, with nothing left of the one before.
    fn await_state(&self) -> Result<()> {
        let State {
            first,
            rate,
            routed,
            ..
        } = self.state();
        self.pod
            .await_networks(&[("net1", first), ("net2", SERVED)])?;
        wait::eventually(IN_PLACE, || {
            let routes = self.pod.default_routes()?;
            ensure!(routes == [*routed], "default routes by {routes:?}");
            let queues = self.pod.queues("net2")?;
            ensure!(
                queues.contains(&format!(" rate {rate}Mbit")),
                "no rate of {rate} Mbit/s: {queues}"
            );
            // A macvlan has no link on the node, and a limit may have one of its own.
            let links = self.pod.host_links()?;
            let count = |ifname: &str| links.get(ifname).map_or(0, Vec::len);
            let is_right = count("eth0") == 1
                && count("net1") == usize::from(*first != LAN)
                && (1..=2).contains(&count("net2"));
            ensure!(is_right, "links on the node: {links:?}");
            let own = self.host_ports()?;
            ensure!(
                own == [28_000 + rate],
                "host ports {own:?}, expected one for {rate}"
            );
            Ok(())
        })
    }

    /// Returns the host ports of the check in the node's rules.
    fn host_ports(&self) -> Result<Vec<u64>> {
        let list = ["nft", "list", "table", "inet", "braid"];
        let rules = sh::read(&mut self.cluster.on(self.node, list)?)?;
        let mut ports: Vec<u64> = rules
            .split(|char: char| !char.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .filter(|port| (28_000..28_100).contains(port))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        Ok(ports)
    }

    /// Returns the points of an edit: names of system calls, each with its number among the calls of
    /// this name.
    fn points(&mut self) -> Result<Vec<(String, usize)>> {
        let agent = agent::await_ready(self.cluster, self.node)?;
        let trace = tempfile::NamedTempFile::new().context("make a file for strace")?;
        let mut strace = attach(&agent, &format!("trace={}", CALLS.join(",")), trace.path())?;
        self.edit()?;
        self.await_state()?;
        detach(&mut strace)?;
        let points = points(&fs::read_to_string(trace.path())?);
        ensure!(!points.is_empty(), "the trace of an edit has no record");
        Ok(points)
    }

    /// Edits the pod, and kills the agent at the call with this number. Returns false if the edit was
    /// made without it.
    fn kill_at(&mut self, call: &str, nth: usize) -> Result<bool> {
        let agent = agent::await_ready(self.cluster, self.node)?;
        let trace = tempfile::NamedTempFile::new().context("make a file for strace")?;
        let inject = format!("inject={call}:signal=KILL:when={nth}");
        let mut strace = attach(&agent, &inject, trace.path())?;
        self.edit()?;
        let start = Instant::now();
        let is_killed = loop {
            if !is_running(&agent) {
                break true;
            }
            if start.elapsed() > Duration::from_secs(1) && self.await_state().is_ok() {
                break false;
            }
            ensure!(
                start.elapsed() < LIMIT + IN_PLACE,
                "neither killed nor done"
            );
            thread::sleep(Duration::from_millis(20));
        };
        detach(&mut strace)?;
        if is_killed {
            agent::replace(self.cluster, self.node)?;
        }
        self.await_state()?;
        Ok(is_killed)
    }
}

fn kill(agent: &Agent) -> Result<()> {
    sh::read(&mut sh::cmd("kill", ["-KILL", &agent.pid.to_string()])).map(drop)
}

fn is_running(agent: &Agent) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", agent.pid)).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Attaches strace to all threads of the agent, with this expression.
fn attach(agent: &Agent, expression: &str, trace: &Path) -> Result<Child> {
    let mut strace = sh::cmd("strace", ["-f", "-e", expression, "-o"]);
    strace.arg(trace).args(["-p", &agent.pid.to_string()]);
    let mut child = strace
        .stderr(Stdio::piped())
        .spawn()
        .context("start strace")?;
    // It tells when it has attached.
    let stderr = child
        .stderr
        .take()
        .context("strace has no standard error")?;
    let mut told = BufReader::new(stderr).lines();
    match told.next() {
        Some(Ok(line)) if line.contains("attached") => {}
        other => bail!("strace of the agent: {other:?}"),
    }
    // So strace never waits for a reader.
    thread::spawn(move || told.for_each(drop));
    Ok(child)
}

/// Ends strace. It may wait forever for a process that it has killed.
fn detach(strace: &mut Child) -> Result<()> {
    let interrupt = ["-INT", &strace.id().to_string()];
    // It may have ended already.
    let _ = sh::read(&mut sh::cmd("kill", interrupt));
    let ended = wait::eventually(DETACHED, || {
        strace.try_wait()?.context("strace still runs").map(drop)
    });
    if ended.is_err() {
        strace.kill()?;
        strace.wait()?;
    }
    Ok(())
}

/// Returns the calls of the thread that has renamed a record, up to its last one.
fn points(trace: &str) -> Vec<(String, usize)> {
    let lines: Vec<(&str, &str)> = trace
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(thread, call)| (thread, call.trim_start()))
        .collect();
    let is_record =
        |(_, call): &&(&str, &str)| call.starts_with("rename") && call.contains(RECORDS);
    let Some((its, _)) = lines.iter().find(is_record) else {
        return Vec::new();
    };
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut points = Vec::new();
    for (thread, call) in &lines {
        let Some((name, _)) = call.split_once('(').filter(|_| thread == its) else {
            continue;
        };
        if CALLS.contains(&name) {
            let number = numbers.entry(name).or_default();
            *number += 1;
            if !READS.iter().any(|read| call.contains(read)) {
                points.push((name.to_owned(), *number));
            }
        }
    }
    points
}

/// Returns the number of points of each system call.
fn counted(points: &[(String, usize)]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in points {
        *numbers.entry(name).or_default() += 1;
    }
    let shown: Vec<String> = numbers
        .iter()
        .map(|(name, number)| format!("{number} {name}"))
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_the_calls_of_the_thread_with_a_record() {
        let trace = "17    sendto(3, 4) = 4\n\
                     18    sendto(5, 4) = 4\n\
                     18    sendto(5, [{nlmsg_type=RTM_GETLINK}], 4) = 4\n\
                     18    rename(\"/run/braid/attachments/a/.x\", \"/run/braid/attachments/a/x\") = 0\n\
                     18    sendto(5, 4) = 4\n\
                     18    close(5) = 0\n\
                     18    <... sendto resumed>) = 4\n";
        let points = points(trace);
        let points: Vec<(&str, usize)> = points.iter().map(|(name, nth)| (&**name, *nth)).collect();
        assert_eq!(points, [("sendto", 1), ("rename", 1), ("sendto", 3)]);
    }
}
