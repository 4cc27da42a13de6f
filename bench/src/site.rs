//! A plugin directory in one setting: its node, its pods, and bursts of ADD and DEL for them.

use crate::call::{Call, IFNAME};
use crate::chain::{self, Timing};
use crate::conflist::Conflist;
use crate::daemon::Daemon;
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

/// Leases and ports held by other containers on a node before the run.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    /// Number of leased addresses.
    pub(crate) leases: usize,
    /// Number of forwarded host ports.
    pub(crate) ports: u16,
}

/// A directory of plugins, with the conflist and the arguments for their calls.
#[derive(Clone, Copy)]
pub(crate) struct Plugins<'a> {
    pub(crate) conflist: &'a Conflist,
    pub(crate) dir: &'a Path,
    /// `CNI_ARGS`.
    pub(crate) args: &'a str,
}

/// Method of attaching pods.
pub(crate) enum Driver<'a> {
    /// Netlink requests, without any plugin.
    Floor(Floor),
    Plugins(Plugins<'a>),
}

/// A node with its pods and their driver.
pub(crate) struct Site<'a> {
    /// Daemon of the plugins. This field is dropped before the node in which the daemon runs.
    daemon: Option<Daemon>,
    pub(crate) node: Node,
    pods: Vec<Pod>,
    driver: Driver<'a>,
    /// Names of the interfaces that ADD creates in a pod.
    ifnames: Vec<String>,
    rounds: u128,
}

/// Times of concurrent calls of one verb.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    pub(crate) took: Vec<Duration>,
    /// Time from the first call's start to the last call's end.
    pub(crate) wall: Duration,
    /// Sum of all counts of strace, zero without strace.
    pub(crate) trace: Trace,
}

impl<'a> Site<'a> {
    /// Creates a node for the kernel's floor.
    pub(crate) fn floor(pods: usize) -> Result<Self> {
        let node = Node::new(&[])?;
        let floor = node.run(Floor::new)?;
        Self::with_pods(node, Driver::Floor(floor), pods)
    }

    /// Creates a node for plugins, with the leases and ports of other containers.
    pub(crate) fn plugins(plugins: Plugins<'a>, held: Held, pods: usize) -> Result<Self> {
        let Plugins { conflist, dir, .. } = plugins;
        let node = node_for(conflist, dir)?;
        node.run(|| match conflist.host_local() {
            Some(found) => lease::plant(&found, held.leases),
            None if held.leases > 0 => bail!(
                "no host-local in which {} leases could be planted",
                held.leases
            ),
            None => Ok(()),
        })?;
        if conflist.types().any(|kind| kind == "flannel") {
            node.run(flanneld)
                .context("write what flanneld says of the node")?;
        }
        lead(&node, conflist, dir, held.ports)?;
        Self::with_pods(node, Driver::Plugins(plugins), pods)
    }

    fn with_pods(node: Node, driver: Driver<'a>, pods: usize) -> Result<Self> {
        let pods = (0..pods)
            .map(|slot| node.add_pod(&format!("pod{slot}")))
            .collect::<Result<_>>()?;
        Ok(Site {
            daemon: None,
            node,
            pods,
            driver,
            ifnames: vec![IFNAME.to_owned()],
            rounds: 0,
        })
    }

    /// Starts the plugins' daemon, which runs as long as the node.
    pub(crate) fn start(&mut self, daemon: &Path) -> Result<()> {
        self.daemon = Some(Daemon::start(&self.node, daemon, &[])?);
        Ok(())
    }

    /// Adds interfaces that each pod must have.
    pub(crate) fn expect<'b>(&mut self, ifnames: impl IntoIterator<Item = &'b str>) {
        self.ifnames.extend(ifnames.into_iter().map(str::to_owned));
    }

    /// Uses another conflist for the following calls.
    pub(crate) fn call_by(&mut self, list: &'a Conflist) {
        if let Driver::Plugins(Plugins { conflist, .. }) = &mut self.driver {
            *conflist = list;
        }
    }

    /// Attaches this number of additional pods, which stay as long as the node. They have no host
    /// ports, because the ports belong to the measured pods.
    pub(crate) fn settle(&self, beside: usize) -> Result<()> {
        let without_ports = self.driver.without_ports();
        let driver = match (&self.driver, &without_ports) {
            (Driver::Plugins(plugins), Some(conflist)) => &Driver::Plugins(Plugins {
                conflist,
                ..*plugins
            }),
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

    /// Runs ADD for all pods concurrently, then DEL, and verifies both outside the measured time.
    ///
    /// If an ADD fails, all pods still get a DEL, as a runtime would send it. Then the failure is
    /// returned.
    pub(crate) fn round(&mut self, strace: bool) -> Result<(Burst, Burst)> {
        self.rounds += 1;
        let Site {
            node,
            pods,
            driver,
            ifnames,
            rounds,
            ..
        } = self;
        let trace = strace.then_some(Path::new("/run/strace.log"));
        let id = |slot| id(*rounds, slot);
        let adds = burst(node, pods, |slot, pod| {
            driver.add(slot, pod, &id(slot), trace)
        });
        let results: Vec<Value> = adds
            .iter()
            .map(|add| {
                add.as_ref()
                    .map_or(Value::Null, |(_, result)| result.clone())
            })
            .collect();
        let added = adds
            .into_iter()
            .collect::<Result<Vec<_>>>()
            .and_then(|adds| {
                for (pod, (_, result)) in pods.iter_mut().zip(&adds) {
                    verify::added(pod, ifnames.as_slice(), result, driver.wants_address())?;
                }
                Ok(Burst::of(adds.into_iter().map(|(timing, _)| timing)))
            });
        let dels = burst(node, pods, |slot, pod| {
            driver.del(
                slot,
                pod,
                &id(slot),
                results.get(slot).unwrap_or(&Value::Null),
                trace,
            )
        });
        let added = added?;
        let deleted = Burst::of(dels.into_iter().collect::<Result<Vec<_>>>()?);
        pods.iter_mut()
            .try_for_each(|pod| verify::deleted(pod, ifnames.as_slice()))?;
        Ok((added, deleted))
    }
}

/// Writes flanneld's file with the addresses of the node.
fn flanneld() -> Result<()> {
    let lines = "FLANNEL_NETWORK=10.212.0.0/16\nFLANNEL_SUBNET=10.212.0.1/17\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
    std::fs::create_dir_all("/run/flannel")?;
    Ok(std::fs::write("/run/flannel/subnet.env", lines)?)
}

impl Driver<'_> {
    /// Returns the conflist for a pod without host ports; `None` if the conflist does not support
    /// host ports.
    fn without_ports(&self) -> Option<Conflist> {
        match self {
            Driver::Floor(_) => None,
            Driver::Plugins(Plugins { conflist, .. }) => ports::lead(conflist, Vec::new()).ok(),
        }
    }

    fn wants_address(&self) -> bool {
        match self {
            Driver::Floor(_) => true,
            Driver::Plugins(Plugins { conflist, .. }) => conflist.wants_address(),
        }
    }

    fn add(
        &self,
        slot: usize,
        pod: &mut Pod,
        container: &str,
        trace: Option<&Path>,
    ) -> Result<(Timing, Value)> {
        match self {
            Driver::Floor(floor) => Ok((floor.add(slot, pod, IFNAME)?, Value::Null)),
            Driver::Plugins(Plugins {
                conflist,
                dir,
                args,
            }) => chain::add(
                conflist,
                Call {
                    verb: "ADD",
                    dir,
                    container,
                    netns: &pod.path,
                    args,
                    trace,
                },
            ),
        }
    }

    fn del(
        &self,
        slot: usize,
        pod: &Pod,
        container: &str,
        result: &Value,
        trace: Option<&Path>,
    ) -> Result<Timing> {
        match self {
            Driver::Floor(_) => Floor::del(slot),
            Driver::Plugins(Plugins {
                conflist,
                dir,
                args,
            }) => chain::del(
                conflist,
                Call {
                    verb: "DEL",
                    dir,
                    container,
                    netns: &pod.path,
                    args,
                    trace,
                },
                result,
            ),
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
            wall: start
                .zip(end)
                .map_or(Duration::ZERO, |(start, end)| end.duration_since(start)),
            trace: timings
                .iter()
                .fold(Trace::default(), |sum, timing| sum.add(timing.trace)),
        }
    }
}

/// Attaches pods with `count` host ports in total. The pods stay as long as the node.
fn lead(node: &Node, conflist: &Conflist, dir: &Path, count: u16) -> Result<()> {
    let end = ports::FIRST.checked_add(count).context("too many ports")?;
    for (slot, range) in ports::chunks(ports::FIRST..end).enumerate() {
        let list = ports::lead(conflist, range.map(ports::tcp).collect())?;
        let pod = node.add_pod(&format!("led{slot}"))?;
        let container = id(u128::MAX - 1, slot);
        let call = Call {
            verb: "ADD",
            dir,
            container: &container,
            netns: &pod.path,
            args: "",
            trace: None,
        };
        node.run(|| chain::add(&list, call))?;
    }
    Ok(())
}

/// Creates a node without leases in the conflist's folder. Fails if a plugin of the conflist is not
/// visible in `dir` on the node.
pub(crate) fn node_for(conflist: &Conflist, dir: &Path) -> Result<Node> {
    let node = Node::new(
        &conflist
            .host_local()
            .iter()
            .map(|found| found.dir.clone())
            .collect::<Vec<_>>(),
    )?;
    node.run(
        || match conflist.types().find(|plugin| !dir.join(plugin).is_file()) {
            Some(missing) => {
                bail!(
                    "no plugin \"{missing}\" in {} (the node hides /run and /var/lib/cni)",
                    dir.display()
                )
            }
            None => Ok(()),
        },
    )?;
    Ok(node)
}

/// Returns a container ID of 64 hexadecimal digits, like a runtime's. It differs from the IDs in
/// planted leases.
fn id(round: u128, slot: usize) -> String {
    format!("{round:032x}{slot:032x}")
}

/// Runs `work` for all pods concurrently, each on a separate thread in the node. All threads start
/// together.
fn burst<T: Send>(
    node: &Node,
    pods: &mut [Pod],
    work: impl Fn(usize, &mut Pod) -> Result<T> + Sync,
) -> Vec<Result<T>> {
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
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_panic| Err(anyhow!("a call panicked")))
            })
            .collect()
    })
}
