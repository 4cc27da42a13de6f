//! Shaped pods on a node of their own, and who is at the other end of their traffic.

use super::cell::{Direction, Family, Rate};
use crate::call::Call;
use crate::chain;
use crate::conflist::Conflist;
use crate::node::{Node, Pod};
use crate::outside::{addresses, has, move_outside, serve};
use crate::site;
use crate::traffic::{End, Way};
use crate::verify;
use anyhow::{Context, Result};
use ipnet::IpNet;
use serde_json::Value;
use std::path::Path;

/// A node with its attached pods.
pub(crate) struct Attached<'a> {
    node: Node,
    /// Behind the node's uplink.
    outside: Pod,
    dir: &'a Path,
    pods: Vec<ShapedPod>,
}

struct ShapedPod {
    pod: Pod,
    conflist: Conflist,
    id: String,
    result: Value,
}

impl<'a> Attached<'a> {
    /// Attaches a pod for each rate.
    ///
    /// When an ADD fails, the pods get a DEL as a runtime would send it, before the failure is returned.
    pub(crate) fn new(conflist: &Conflist, dir: &'a Path, rates: &[Rate]) -> Result<Self> {
        let node = site::node_for(conflist, dir)?;
        let outside = move_outside(&node)?;
        let mut attached = Attached { node, outside, dir, pods: Vec::new() };
        match rates.iter().enumerate().try_for_each(|(slot, rate)| attached.add(conflist, slot, *rate)) {
            Ok(()) => Ok(attached),
            Err(err) => {
                // The failure of ADD is what counts.
                let _ = attached.del();
                Err(err)
            }
        }
    }

    fn add(&mut self, conflist: &Conflist, slot: usize, rate: Rate) -> Result<()> {
        let conflist = conflist.with_capability("bandwidth", &rate.limits());
        let pod = self.node.add_pod(&format!("pod{slot}"))?;
        self.pods.push(ShapedPod { pod, conflist, id: format!("{:064x}", slot + 1), result: Value::Null });
        let (Some(shaped), dir) = (self.pods.last_mut(), self.dir) else { return Ok(()) };
        shaped.result = self.node.run(|| Ok(chain::add(&shaped.conflist, shaped.call("ADD", dir))?.1))?;
        verify::added(&mut shaped.pod, &shaped.result, true)?;
        for (_, gateway) in addresses(&shaped.result) {
            serve(&self.node, &mut self.outside, gateway)?;
        }
        Ok(())
    }

    /// DEL for all pods.
    pub(crate) fn del(mut self) -> Result<()> {
        let (node, dir) = (&self.node, self.dir);
        let deleted = self.pods.iter_mut().map(|shaped| {
            node.run(|| chain::del(&shaped.conflist, shaped.call("DEL", dir), &shaped.result))?;
            verify::deleted(&mut shaped.pod)
        });
        deleted.fold(Ok(()), Result::and)
    }

    /// The way of the traffic of one pod.
    pub(crate) fn way(&self, slot: usize, direction: Direction, family: Family) -> Result<Way<'_>> {
        let shaped = self.pods.get(slot).context("no such pod")?;
        let of_family = |(address, _): &(IpNet, IpNet)| address.addr().is_ipv4() == (family == Family::V4);
        let (address, gateway) = addresses(&shaped.result)
            .find(of_family)
            .with_context(|| format!("ADD's result has no IPv{family} address with a gateway"))?;
        let near = End { netns: &shaped.pod.netns, address: address.addr() };
        let on_node = has(&self.node, gateway.addr())?;
        let far =
            End { netns: if on_node { &self.node.network } else { &self.outside.netns }, address: gateway.addr() };
        Ok(match direction {
            Direction::Ingress => Way { from: far, to: near, entrance: None },
            Direction::Egress => Way { from: near, to: far, entrance: None },
        })
    }
}

impl ShapedPod {
    fn call<'a>(&'a self, verb: &'a str, dir: &'a Path) -> Call<'a> {
        Call { verb, dir, container: &self.id, netns: &self.pod.path, trace: None }
    }
}
