//! Memory, processor time and requests of the agents.

use crate::agent::{self, Agent};
use anyhow::{Context, Result, ensure};
use braid_testbed::audit::Audit;
use braid_testbed::{Cluster, Node};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Budget of resident memory in KiB.
const RESIDENT_KIB: u64 = 20 * 1024;
/// Largest growth of the memory over that of the first minute.
const GROWTH: f64 = 1.1;
/// Budget of requests a minute, without the writes of pods.
const REQUESTS: f64 = 30.0;
const MINUTE: Duration = Duration::from_mins(1);
/// Requests of calls and agents that belong to one pod each.
const OF_PODS: [&str; 3] = [
    "patch /pods/status",
    "create events.k8s.io/events",
    "patch events.k8s.io/events",
];

/// Samples of the agents of some nodes.
pub(super) struct Usage<'c> {
    cluster: &'c Cluster,
    agents: Vec<Usages>,
    start: Instant,
}

/// Samples of one agent.
struct Usages {
    node: Node,
    agent: Agent,
    processor_before: f64,
    requests_before: BTreeMap<String, usize>,
    /// Resident memory in KiB, by minute.
    resident: Vec<Vec<u64>>,
}

impl<'c> Usage<'c> {
    pub(super) fn start(cluster: &'c Cluster, nodes: [Node; 2]) -> Result<Self> {
        let mut agents = Vec::new();
        for node in nodes {
            let agent = agent::await_ready(cluster, node)?;
            agents.push(Usages {
                node,
                processor_before: agent.processor_seconds()?,
                requests_before: requests(cluster, node)?,
                resident: Vec::new(),
                agent,
            });
        }
        let start = Instant::now();
        Ok(Self {
            cluster,
            agents,
            start,
        })
    }

    /// Notes the memory of each agent. Fails if one has ended.
    pub(super) fn sample(&mut self) -> Result<()> {
        let minute = usize::try_from(self.start.elapsed().as_secs() / MINUTE.as_secs())?;
        for Usages {
            node,
            agent,
            resident,
            ..
        } in &mut self.agents
        {
            let kib = agent
                .resident_kib()
                .with_context(|| format!("the agent of {node} has ended"))?;
            if resident.len() <= minute {
                resident.resize_with(minute + 1, Vec::new);
            }
            resident[minute].push(kib);
        }
        Ok(())
    }

    /// Prints the usage of each agent, and fails if it is above the budget.
    pub(super) fn ensure_within_budget(&self, pods: usize) -> Result<()> {
        let seconds = self.start.elapsed().as_secs_f64();
        for one in &self.agents {
            let node = one.node;
            let minutes: Vec<u64> = one.resident.iter().map(|all| median(all)).collect();
            let (first, last) = (minutes.first(), minutes.last());
            let (first, last) = first.zip(last).context("no samples of memory")?;
            let share = (one.agent.processor_seconds()? - one.processor_before) / seconds * 100.0;
            let mut others = 0;
            let mut of_pods = 0;
            let mut shown = Vec::new();
            for (right, count) in requests(self.cluster, node)? {
                let count = count - one.requests_before.get(&right).copied().unwrap_or(0);
                if OF_PODS.contains(&&*right) {
                    of_pods += count;
                } else {
                    others += count;
                }
                if count > 0 {
                    shown.push(format!("{count} {right}"));
                }
            }
            let a_minute = |count: usize| number(count) / seconds * MINUTE.as_secs_f64();
            println!(
                "{node}: {first} KiB resident in the first minute, {last} in the last; {share:.2} % of a \
                 processor; {:.1} requests a minute, and {:.1} for {pods} pods: {}",
                a_minute(others),
                a_minute(of_pods),
                shown.join(", ")
            );
            println!("{node}: medians of KiB by minute {minutes:?}");
            #[expect(clippy::cast_precision_loss, reason = "sizes of processes")]
            let growth = *last as f64 / *first as f64;
            ensure!(growth <= GROWTH, "{node}: the agent grew by {growth:.3}");
            ensure!(
                *last <= RESIDENT_KIB,
                "{node}: {last} KiB, and the budget is {RESIDENT_KIB}"
            );
            ensure!(
                a_minute(others) <= REQUESTS,
                "{node}: more than {REQUESTS} requests a minute"
            );
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Returns the number of requests of a node's agent and calls so far, by right.
fn requests(cluster: &Cluster, node: Node) -> Result<BTreeMap<String, usize>> {
    let audit = Audit::of(cluster)?.of_node(&node.to_string());
    Ok(audit.counts())
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_not_moved_by_one_sample() {
        assert_eq!(median(&[5, 900, 6, 7, 5]), 6);
        assert_eq!(median(&[]), 0);
    }
}
