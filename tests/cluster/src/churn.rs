//! Pods that come and go while the cluster is disturbed, and the rules that they follow at any time.

use crate::addresses;
use crate::pods;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of pods per node in each round.
const PODS: usize = 2;
/// Longest time until the pods of a round are Ready. The API server is away for a minute, a node restarts,
/// and the kubelet prepares claims again after more than a minute.
pub(crate) const LIMIT: Duration = Duration::from_mins(6);
const PAUSE: Duration = Duration::from_secs(1);
/// Start of the message of a container that lacks an interface at its start.
const LACKS: &str = "lacks ";

/// Creates and deletes pods until it is stopped.
pub(crate) struct Churn<'a> {
    cluster: &'a Cluster,
    app: &'a str,
    nodes: &'a [Node],
    pod: fn(&str, Node) -> Value,
    is_over: AtomicBool,
    pods: AtomicUsize,
    samples: AtomicUsize,
}

impl<'a> Churn<'a> {
    /// Returns the churn of pods with this label on these nodes. `pod` returns one by its name.
    pub(crate) fn new(
        cluster: &'a Cluster,
        (app, nodes): (&'a str, &'a [Node]),
        pod: fn(&str, Node) -> Value,
    ) -> Self {
        Self {
            cluster,
            app,
            nodes,
            pod,
            is_over: AtomicBool::new(false),
            pods: AtomicUsize::new(0),
            samples: AtomicUsize::new(0),
        }
    }

    /// Lets pods come and go while `work` runs. The work gets a function that is true after pods have
    /// stopped coming.
    pub(crate) fn during(&self, work: impl FnOnce(&dyn Fn() -> bool) -> Result<()>) -> Result<()> {
        thread::scope(|threads| {
            let churning = threads.spawn(|| self.run());
            let sampling = threads.spawn(|| self.sample());
            let done = work(&|| churning.is_finished());
            self.stop();
            for thread in [churning, sampling] {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(_) => bail!("a thread of the check panicked"),
                }
            }
            done
        })?;
        self.tell();
        Ok(())
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the number of pods that were Ready.
    pub(crate) fn count(&self) -> usize {
        self.pods.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn tell(&self) {
        println!(
            "{} pods came and went, each with all its interfaces from the start; no address twice in {} samples",
            self.pods.load(Ordering::Relaxed),
            self.samples.load(Ordering::Relaxed)
        );
    }

    /// Creates and deletes pods, round after round.
    fn run(&self) -> Result<()> {
        for round in 0.. {
            if self.is_over() {
                break;
            }
            self.round(round)
                .with_context(|| format!("round {round} of pods"))?;
        }
        Ok(())
    }

    fn round(&self, round: usize) -> Result<()> {
        let mut all = Vec::new();
        let mut names = Vec::new();
        for node in self.nodes {
            for number in 0..PODS {
                let name = format!("{}-{round}-{node}-{number}", self.app);
                all.push((self.pod)(&name, *node));
                names.push(name);
            }
        }
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": all});
        let list = list.to_string();
        // The API server may be away.
        wait::eventually(LIMIT, || {
            let mut apply = self.cluster.kubectl(["apply", "-f", "-"]);
            sh::feed(&mut apply, list.as_bytes())
        })?;
        self.await_ready(&names)?;
        self.pods.fetch_add(names.len(), Ordering::Relaxed);
        wait::eventually(LIMIT, || {
            let mut delete =
                self.cluster
                    .kubectl(["delete", "pod", "--ignore-not-found", "--timeout=60s"]);
            sh::read(delete.args(&names))
        })?;
        Ok(())
    }

    /// Waits until the pods are Ready. Fails if one ever lacked an interface.
    fn await_ready(&self, names: &[String]) -> Result<()> {
        let start = Instant::now();
        loop {
            let listed = pods::list(self.cluster, self.app).unwrap_or_default();
            let mut waiting = names.to_vec();
            for pod in &listed {
                ensure_complete(pod)?;
                if is_ready(pod) {
                    waiting.retain(|name| pod["metadata"]["name"] != **name);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if start.elapsed() > wait::on_this_machine(LIMIT) {
                bail!("not Ready after {LIMIT:?}: {}", waiting.join(" "));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads the addresses of all network namespaces once a second. Fails if two of a node have the
    /// same address.
    fn sample(&self) -> Result<()> {
        while !self.is_over() {
            addresses::ensure_none_twice(self.cluster, self.nodes)?;
            self.samples.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Returns the script of a container that ends with a message if one of these interfaces or its address
/// is missing.
pub(crate) fn script(links: &str) -> String {
    format!(
        "for link in {links}; do ip -o addr show dev $link 2>&1 | grep -q 'inet ' || \
         {{ echo \"{LACKS}$link\" > /dev/termination-log; exit 1; }}; done; exec sleep 1000000"
    )
}

fn ensure_complete(pod: &Value) -> Result<()> {
    let container = &pod["status"]["containerStatuses"][0];
    for state in ["state", "lastState"] {
        let message = container[state]["terminated"]["message"].as_str();
        let message = message.unwrap_or_default();
        ensure!(
            !message.starts_with(LACKS),
            "{} {}at its start",
            pod["metadata"]["name"],
            message
        );
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    pods::is_ready(&serde_json::json!({"object": pod}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_lacked_an_interface_is_not_complete() {
        let terminated = serde_json::json!({"terminated": {"message": "lacks net2\n"}});
        let status = serde_json::json!({"containerStatuses": [{"lastState": terminated}]});
        assert!(ensure_complete(&serde_json::json!({"status": status})).is_err());
        assert!(ensure_complete(&serde_json::json!({})).is_ok());
    }
}
