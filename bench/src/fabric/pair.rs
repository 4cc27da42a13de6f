//! Two nodes of one network, with a pod on each.

use super::cli::Plan;
use super::iperf;
use super::lan::Lan;
use super::links::{self, Passed};
use crate::attached::Attached;
use crate::call::IFNAME;
use crate::conflist::Conflist;
use crate::daemon::Daemon;
use crate::node::Node;
use crate::traffic::Way;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a file of the daemon, and for the path between the pods.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);

/// A node with its daemon and its pod.
struct Member<'a> {
    /// Process of the daemon. This field is dropped before the node in which the daemon runs.
    daemon: Option<Daemon>,
    attached: Attached<'a>,
}

/// Two nodes, with a server in the pod of the second.
pub(super) struct Pair<'a> {
    _server: Daemon,
    members: [Member<'a>; 2],
    is_vxlan: bool,
}

/// Counters of both nodes.
pub(super) type Counters = [Passed; 2];

impl<'a> Pair<'a> {
    /// Creates the nodes of the directory with this index, attaches their pods, and waits until one
    /// reaches the other.
    pub(super) fn new(plan: &'a Plan<'_>, lan: &Lan, index: usize) -> Result<Self> {
        let first = u8::try_from(2 * index + 1)?;
        let members = [
            Member::new(plan, lan, first)?,
            Member::new(plan, lan, first + 1)?,
        ];
        let (pod, _) = members[1].attached.pod_and_gateway(0, true)?;
        let pair = Self {
            _server: iperf::serve(&pod)?,
            members,
            is_vxlan: plan.is_vxlan,
        };
        pair.reach()?;
        Ok(pair)
    }

    /// Returns the path from the first node's pod to the second's.
    pub(super) fn way(&self) -> Result<Way<'_>> {
        let [client, server] = &self.members;
        Ok(Way {
            from: client.attached.pod_and_gateway(0, true)?.0,
            to: server.attached.pod_and_gateway(0, true)?.0,
            entrance: None,
        })
    }

    /// Returns the MTU of the pods, which must be the same.
    pub(super) fn mtu(&self) -> Result<u32> {
        let Way { from, to, .. } = self.way()?;
        let (from, to) = (
            links::mtu(from.netns, IFNAME)?,
            links::mtu(to.netns, IFNAME)?,
        );
        if from != to {
            bail!("the pods have different MTUs: {from} and {to}");
        }
        Ok(from)
    }

    /// Reads the counters of both nodes.
    pub(super) fn counters(&self) -> Result<Counters> {
        let [client, server] = &self.members;
        Ok([
            Passed::read(&client.attached.node.network)?,
            Passed::read(&server.attached.node.network)?,
        ])
    }

    /// Fails unless this payload took the path of the network since `earlier`, on both nodes.
    pub(super) fn check(&self, earlier: Counters, payload: u64) -> Result<()> {
        for (now, earlier) in self.counters()?.into_iter().zip(earlier) {
            now.check(earlier, payload, self.is_vxlan)?;
        }
        Ok(())
    }

    /// Waits until the server answers.
    fn reach(&self) -> Result<()> {
        let (start, way) = (Instant::now(), self.way()?);
        loop {
            match iperf::measure(&way, 1) {
                Err(_) if start.elapsed() < PATIENCE => thread::sleep(POLL),
                done => return done.map(drop),
            }
        }
    }
}

impl<'a> Member<'a> {
    /// Creates a node of the LAN, starts the daemon, and attaches a pod by the conflist.
    fn new(plan: &'a Plan<'_>, lan: &Lan, number: u8) -> Result<Self> {
        let attached = Attached::to(Node::new(&[])?, &plan.dir)?;
        lan.join(&attached.node, number)?;
        let argument = number.to_string();
        let daemon = match plan.daemon {
            Some(program) => Some(Daemon::start(&attached.node, program, &[&argument])?),
            None => None,
        };
        let mut member = Self { daemon, attached };
        for file in plan.awaited.into_iter().chain([plan.conflist]) {
            let awaited = member.wait_for(file);
            awaited.with_context(|| format!("node {number}"))?;
        }
        let conflist = member.attached.node.run(|| Conflist::read(plan.conflist))?;
        member.attached.add(conflist)?;
        Ok(member)
    }

    /// Waits until a file exists on the node. Fails if the daemon ends before.
    fn wait_for(&mut self, file: &Path) -> Result<()> {
        let start = Instant::now();
        while !self.attached.node.run(|| Ok(file.exists()))? {
            if let Some(daemon) = &mut self.daemon
                && let Some(status) = daemon.ended()?
            {
                bail!("the daemon ended without {}: {status}", file.display());
            }
            if start.elapsed() > PATIENCE {
                bail!("no {} after {PATIENCE:?}", file.display());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}
