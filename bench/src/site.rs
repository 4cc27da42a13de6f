//! One contender in one setting: its node, its pods, and a burst of ADDs and DELs on them.

use crate::call::{Call, IFNAME};
use crate::chain::{self, Timing};
use crate::conflist::Conflist;
use crate::floor::Floor;
use crate::lease;
use crate::node::{Node, Pod};
use crate::ports;
use crate::strace::Trace;
use crate::verify;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

/// Leases and ports of other containers on a node before the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Addresses.
    pub(crate) leases: usize,
    /// Ports of the host.
    pub(crate) ports: u16,
}

/// A way to attach pods.
pub(crate) enum Driver<'a> {
    /// The kernel alone.
    Floor(Floor),
    /// The plugins of a directory, called by a list.
    Chain { conflist: &'a Conflist, dir: &'a Path },
}

/// A node with its pods and their driver.
pub(crate) struct Site<'a> {
    node: Node,
    pods: Vec<Pod>,
    driver: Driver<'a>,
    rounds: u128,
}

/// Calls that were made at once.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    pub(crate) took: Vec<Duration>,
    /// Time from the first call's start to the last call's end.
    pub(crate) wall: Duration,
    /// The sum of all counts of strace, zero without strace.
    pub(crate) trace: Trace,
}

impl<'a> Site<'a> {
    /// A node for the kernel's floor.
    pub(crate) fn floor(pods: usize) -> Result<Self> {
        let node = Node::new(&[])?;
        let floor = node.run(Floor::new)?;
        Self::with_pods(node, Driver::Floor(floor), pods)
    }

    /// A node for the plugins in `dir`, of which other containers hold a part.
    pub(crate) fn chain(conflist: &'a Conflist, dir: &'a Path, held: Held, pods: usize) -> Result<Self> {
        let node = node_for(conflist, dir)?;
        node.run(|| match conflist.host_local() {
            Some(found) => lease::plant(&found, held.leases),
            None if held.leases > 0 => bail!("no host-local in which {} leases could be planted", held.leases),
            None => Ok(()),
        })?;
        if conflist.types().any(|kind| kind == "flannel") {
            node.run(flanneld).context("write what flanneld says of the node")?;
        }
        lead(&node, conflist, dir, held.ports)?;
        Self::with_pods(node, Driver::Chain { conflist, dir }, pods)
    }

    fn with_pods(node: Node, driver: Driver<'a>, pods: usize) -> Result<Self> {
        let pods = (0..pods).map(|slot| node.add_pod(&format!("pod{slot}"))).collect::<Result<_>>()?;
        Ok(Site { node, pods, driver, rounds: 0 })
    }

    /// Attaches so many more pods, which stay as long as the node. They have no ports of it: those are the measured pods'.
    pub(crate) fn settle(&self, beside: usize) -> Result<()> {
        let without_ports = self.driver.without_ports();
        let driver = match (&self.driver, &without_ports) {
            (Driver::Chain { dir, .. }, Some(conflist)) => &Driver::Chain { conflist, dir },
            (driver, _) => driver,
        };
        for slot in self.pods.len()..self.pods.len() + beside {
            let mut pod = self.node.add_pod(&format!("pod{slot}"))?;
            let attached = burst(&self.node, std::slice::from_mut(&mut pod), |_, pod| {
                driver.add(slot, pod, &id(u128::MAX, slot), None)
            });
            attached.into_iter().try_for_each(|added| added.map(drop))?;
        }
        Ok(())
    }

    /// ADD for all pods at once, then DEL for all at once, both verified outside the clock.
    ///
    /// If an ADD fails, all pods get a DEL as a runtime would send it, before the failure is returned.
    pub(crate) fn round(&mut self, strace: bool) -> Result<(Burst, Burst)> {
        self.rounds += 1;
        let Site { node, pods, driver, rounds } = self;
        let trace = strace.then_some(Path::new("/run/strace.log"));
        let id = |slot| id(*rounds, slot);
        let adds = burst(node, pods, |slot, pod| driver.add(slot, pod, &id(slot), trace));
        let results: Vec<Value> =
            adds.iter().map(|add| add.as_ref().map_or(Value::Null, |(_, result)| result.clone())).collect();
        let added = adds.into_iter().collect::<Result<Vec<_>>>().and_then(|adds| {
            for (pod, (_, result)) in pods.iter_mut().zip(&adds) {
                verify::added(pod, result, driver.wants_address())?;
            }
            Ok(Burst::of(adds.into_iter().map(|(timing, _)| timing)))
        });
        let dels = burst(node, pods, |slot, pod| {
            driver.del(slot, pod, &id(slot), results.get(slot).unwrap_or(&Value::Null), trace)
        });
        let added = added?;
        let deleted = Burst::of(dels.into_iter().collect::<Result<Vec<_>>>()?);
        pods.iter_mut().try_for_each(verify::deleted)?;
        Ok((added, deleted))
    }
}

/// Stands in for flanneld, which says once which addresses the node has.
fn flanneld() -> Result<()> {
    let lines = "FLANNEL_NETWORK=10.212.0.0/16\nFLANNEL_SUBNET=10.212.0.1/17\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    std::fs::create_dir_all("/run/flannel")?;
    Ok(std::fs::write("/run/flannel/subnet.env", lines)?)
}

impl Driver<'_> {
    /// The list, if it has ports, for a pod that has none.
    fn without_ports(&self) -> Option<Conflist> {
        match self {
            Driver::Floor(_) => None,
            Driver::Chain { conflist, .. } => ports::lead(conflist, Vec::new()).ok(),
        }
    }

    fn wants_address(&self) -> bool {
        match self {
            Driver::Floor(_) => true,
            Driver::Chain { conflist, .. } => conflist.wants_address(),
        }
    }

    fn add(&self, slot: usize, pod: &mut Pod, container: &str, trace: Option<&Path>) -> Result<(Timing, Value)> {
        match self {
            Driver::Floor(floor) => Ok((floor.add(slot, pod, IFNAME)?, Value::Null)),
            Driver::Chain { conflist, dir } => {
                chain::add(conflist, Call { verb: "ADD", dir, container, netns: &pod.path, trace })
            }
        }
    }

    fn del(&self, slot: usize, pod: &Pod, container: &str, result: &Value, trace: Option<&Path>) -> Result<Timing> {
        match self {
            Driver::Floor(_) => Floor::del(slot),
            Driver::Chain { conflist, dir } => {
                chain::del(conflist, Call { verb: "DEL", dir, container, netns: &pod.path, trace }, result)
            }
        }
    }
}

impl Burst {
    fn of(timings: impl IntoIterator<Item = Timing>) -> Self {
        let timings: Vec<_> = timings.into_iter().collect();
        let start = timings.iter().map(|timing| timing.start).min();
        let end = timings.iter().map(|timing| timing.end).max();
        Burst {
            took: timings.iter().map(|timing| timing.took).collect(),
            wall: start.zip(end).map_or(Duration::ZERO, |(start, end)| end.duration_since(start)),
            trace: timings.iter().fold(Trace::default(), |sum, timing| sum.add(timing.trace)),
        }
    }
}

/// Leads so many ports of the node to pods, which are there as long as the node.
fn lead(node: &Node, conflist: &Conflist, dir: &Path, count: u16) -> Result<()> {
    let end = ports::FIRST.checked_add(count).context("too many ports")?;
    for (slot, range) in ports::chunks(ports::FIRST..end).enumerate() {
        let list = ports::lead(conflist, range.map(ports::tcp).collect())?;
        let pod = node.add_pod(&format!("led{slot}"))?;
        let call = Call { verb: "ADD", dir, container: &id(u128::MAX - 1, slot), netns: &pod.path, trace: None };
        node.run(|| chain::add(&list, call))?;
    }
    Ok(())
}

/// A node in which the conflist's leases start empty and the plugins in `dir` can be seen.
pub(crate) fn node_for(conflist: &Conflist, dir: &Path) -> Result<Node> {
    let node = Node::new(&conflist.host_local().iter().map(|found| found.dir.clone()).collect::<Vec<_>>())?;
    node.run(|| match conflist.types().find(|plugin| !dir.join(plugin).is_file()) {
        Some(missing) => {
            bail!("no plugin \"{missing}\" in {} (the node hides /run and /var/lib/cni)", dir.display())
        }
        None => Ok(()),
    })?;
    Ok(node)
}

/// 64 hexadecimal digits as runtimes make them, and never a planted lease's.
fn id(round: u128, slot: usize) -> String {
    format!("{round:032x}{slot:032x}")
}

/// Runs `work` for all pods at once, each on a thread of its own in the node; none starts before all are there.
fn burst<T: Send>(node: &Node, pods: &mut [Pod], work: impl Fn(usize, &mut Pod) -> Result<T> + Sync) -> Vec<Result<T>> {
    let (work, gate) = (&work, &Barrier::new(pods.len()));
    std::thread::scope(|scope| {
        let start = |(slot, pod)| {
            scope.spawn(move || {
                let entered = node.enter();
                gate.wait();
                entered?;
                work(slot, pod)
            })
        };
        let threads: Vec<_> = pods.iter_mut().enumerate().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_panic| Err(anyhow!("a call panicked"))))
            .collect()
    })
}
