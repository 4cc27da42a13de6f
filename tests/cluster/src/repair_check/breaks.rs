//! A node with pods and objects of other programs, to delete and change objects on it.

use super::manifests::{self, APP, LAN, MAKE_PARENT, PARENT, SERVED};
use crate::agent::{self, events};
use crate::pods;
use crate::running::Pod;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest time until a broken object is restored.
const RESTORED: Duration = Duration::from_secs(10);
/// Longest time until a repair is counted and reported. A repeated event is a series after 10
/// seconds.
const REPORTED: Duration = Duration::from_secs(45);
/// Largest number of tries until the agent restores rules before a call does.
const TRIES: usize = 3;
/// Objects of other programs. Repairs leave them as they are.
const FOREIGN: [&str; 4] = [
    "ip route add blackhole 203.0.113.0/24 proto bird",
    "ip neigh add 10.99.0.99 lladdr 02:00:00:00:00:99 dev eth1 nud permanent",
    "ip rule add pref 1000 from 203.0.113.1 lookup 1000",
    "nft add table inet guard",
];
const FOREIGN_GONE: [&str; 4] = [
    "ip route del blackhole 203.0.113.0/24 proto bird",
    "ip neigh del 10.99.0.99 dev eth1",
    "ip rule del pref 1000",
    "nft delete table inet guard",
];
const SHOW_FOREIGN: [&str; 4] = [
    "ip -j route show proto bird",
    "ip -j neigh show 10.99.0.99",
    "ip -j rule show pref 1000",
    "nft -j list table inet guard",
];

/// Object that an event is about.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Node,
    /// Any of the pods: what they share is restored for the first one.
    Pods,
}

/// A node that is broken, and its pods.
pub(super) struct World<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) node: Node,
    /// Two pods of the node with three networks each.
    pub(super) pods: [Pod<'c>; 2],
    /// Addresses of pods of other nodes.
    others: Vec<String>,
    foreign: Vec<Value>,
}

impl<'c> World<'c> {
    /// Creates networks, pods and objects of other programs.
    pub(super) fn new(cluster: &'c Cluster, node: Node, nodes: &[Node]) -> Result<Self> {
        run(
            cluster,
            node,
            &format!("ip link del {PARENT} 2>/dev/null; {MAKE_PARENT}"),
        )?;
        for (command, undo) in FOREIGN.iter().zip(FOREIGN_GONE) {
            run(cluster, node, &format!("{undo} 2>/dev/null; {command}"))?;
        }
        cluster.create(&manifests::networks())?;
        let name = |node: Node, number: usize| format!("repair-{node}-{number}");
        let mut all = vec![];
        for number in 0..2 {
            let port = json!({"hostPort": 28_200 + number, "containerPort": 80, "protocol": "TCP"});
            let networks = json!([{"name": SERVED, "portMappings": [port]}, {"name": LAN}]);
            let name = name(node, number);
            all.push(pods::requesting(&name, APP, node, &networks.to_string()));
        }
        for other in nodes.iter().filter(|other| **other != node) {
            all.push(pods::requesting(&name(*other, 0), APP, *other, ""));
        }
        cluster.create(&all)?;
        pods::await_ready(cluster, APP)?;
        let mut others = Vec::new();
        for pod in pods::list(cluster, APP)? {
            if pod["spec"]["nodeName"] != node.to_string() {
                let address = pod["status"]["podIP"].as_str().context("no address")?;
                others.push(address.to_owned());
            }
        }
        let pods = [
            Pod::running(cluster, node, &name(node, 0))?,
            Pod::running(cluster, node, &name(node, 1))?,
        ];
        let mut world = Self {
            cluster,
            node,
            pods,
            others,
            foreign: Vec::new(),
        };
        world.foreign = world.shown(&SHOW_FOREIGN);
        world.ensure_traffic()?;
        Ok(world)
    }

    /// Removes the objects of other programs.
    pub(super) fn end(&self) -> Result<()> {
        for command in FOREIGN_GONE {
            self.run(command)?;
        }
        self.run(&format!("ip link del {PARENT}"))
    }

    /// Runs a command in the node's shell.
    pub(super) fn run(&self, command: &str) -> Result<()> {
        run(self.cluster, self.node, command)
    }

    /// Returns the output of a command in the node's shell.
    pub(super) fn read(&self, command: &str) -> Result<String> {
        sh::read(&mut self.cluster.on(self.node, ["sh", "-c", command])?)
    }

    /// Runs `command`. Waits until the objects in `show` are as before, the counter of one of `kinds`
    /// has grown, and an event with `words` is there.
    pub(super) fn breaks(
        &self,
        command: &str,
        show: &[&str],
        kinds: &[&str],
        (of, words): (Of, &str),
    ) -> Result<()> {
        let mut broken = self.try_breaks(command, show, kinds, (of, words));
        let mut tries = 1;
        while let Err(err) = &broken
            && kinds == ["table"]
            && tries < TRIES
        {
            // STATUS restores the rules as well, and the runtime calls it all the time.
            println!("once more, since a call may have been faster: {err:#}");
            broken = self.try_breaks(command, show, kinds, (of, words));
            tries += 1;
        }
        let seconds = broken.with_context(|| command.to_owned())?;
        self.ensure_traffic()
            .with_context(|| format!("after {command}"))?;
        println!("restored after {seconds:.1} s: {command}");
        Ok(())
    }

    /// Runs `command`. Waits until the objects in `show` are as before.
    pub(super) fn recovers(&self, command: &str, show: &[&str]) -> Result<()> {
        let before = self.shown(show);
        self.run(command)?;
        let start = Instant::now();
        wait::eventually(RESTORED, || {
            let after = self.shown(show);
            ensure!(after == before, "was {before:?} and is {after:?}");
            Ok(())
        })
        .with_context(|| command.to_owned())?;
        println!(
            "as before after {:.1} s: {command}",
            start.elapsed().as_secs_f64()
        );
        self.ensure_traffic()
            .with_context(|| format!("after {command}"))
    }

    fn try_breaks(
        &self,
        command: &str,
        show: &[&str],
        kinds: &[&str],
        (of, words): (Of, &str),
    ) -> Result<f64> {
        let before = self.shown(show);
        let (repairs, reports) = (self.repairs(kinds)?, self.reports(of, words)?);
        self.run(command)?;
        let start = Instant::now();
        wait::eventually(RESTORED, || {
            let after = self.shown(show);
            ensure!(after == before, "was {before:?} and is {after:?}");
            // The agent may not have seen it yet.
            ensure!(
                self.repairs(kinds)? > repairs,
                "the counter of {kinds:?} is {repairs}"
            );
            Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        wait::eventually(REPORTED, || {
            ensure!(
                self.reports(of, words)? > reports,
                "no new event with {words:?}"
            );
            Ok(())
        })?;
        let foreign = self.shown(&SHOW_FOREIGN);
        ensure!(
            foreign == self.foreign,
            "objects of others: {foreign:?}, before {:?}",
            self.foreign
        );
        Ok(seconds)
    }

    /// Returns the objects that commands list as JSON, without indices and counters.
    fn shown(&self, show: &[&str]) -> Vec<Value> {
        let mut shown = Vec::new();
        for command in show {
            // The link of the listed objects may be missing.
            let text = self.read(command).unwrap_or_default();
            shown.push(without_indices(&text));
        }
        shown
    }

    /// Returns the sum of the counters of these kinds of repairs.
    pub(super) fn repairs(&self, kinds: &[&str]) -> Result<u64> {
        let metrics = agent::metrics(self.cluster, self.node)?;
        let mut sum = 0.0;
        for kind in kinds {
            sum += agent::value(&metrics, "braid_repairs_total", &[("kind", kind)]);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a counter"
        )]
        Ok(sum as u64)
    }

    /// Returns how often an event with these words was reported.
    fn reports(&self, of: Of, words: &str) -> Result<u64> {
        let node = self.node.to_string();
        let objects = match of {
            Of::Node => vec![("Node", node.as_str())],
            Of::Pods => self.pods.each_ref().map(|pod| ("Pod", &*pod.name)).to_vec(),
        };
        let mut count = 0;
        for (kind, name) in objects {
            for event in events(self.cluster, kind, name)? {
                if event.reason == "Repaired" && event.message.contains(words) {
                    count += event.count;
                }
            }
        }
        Ok(count)
    }

    /// Fails unless the first pod reaches the second in all networks, the pods of other nodes and the
    /// gateway.
    pub(super) fn ensure_traffic(&self) -> Result<()> {
        let [pod, other] = &self.pods;
        let mut to = self.others.clone();
        to.push(manifests::GATEWAY.to_owned());
        for link in other.links()?.values() {
            to.extend(link.addresses.iter().map(ToString::to_string));
        }
        wait::eventually(RESTORED, || {
            for address in &to {
                let ping = ["ping", "-n", "-c", "1", "-W", "1", address];
                sh::read(&mut pod.command(&ping)?)
                    .with_context(|| format!("{} does not reach {address}", pod.name))?;
            }
            Ok(())
        })
    }
}

fn run(cluster: &Cluster, node: Node, command: &str) -> Result<()> {
    sh::read(&mut cluster.on(node, ["sh", "-c", command])?).map(drop)
}

/// Returns the JSON text without indices, handles and counters of the kernel.
fn without_indices(text: &str) -> Value {
    let mut value = serde_json::from_str(text).unwrap_or(Value::Null);
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        for key in [
            "ifindex",
            "link_index",
            "handle",
            "metainfo",
            "probes",
            "updated",
            "confirmed",
            "used",
            "state",
            "valid_life_time",
            "preferred_life_time",
            "packets",
            "bytes",
        ] {
            object.remove(key);
        }
        object.values_mut().for_each(strip);
    } else if let Some(array) = value.as_array_mut() {
        array.iter_mut().for_each(strip);
        // `ip` leaves an empty object for a hidden address.
        array.retain(|item| *item != json!({}));
        // Their order is that of their creation.
        array.sort_by_key(Value::to_string);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_was_made_again_is_the_same() {
        let before =
            r#"[{"ifindex": 3, "ifname": "a", "addr_info": [{"local": "1"}, {"local": "2"}]}]"#;
        let after =
            r#"[{"ifindex": 9, "ifname": "a", "addr_info": [{"local": "2"}, {"local": "1"}]}]"#;
        assert_eq!(without_indices(before), without_indices(after));
        assert_ne!(without_indices(before), without_indices("[]"));
    }
}
