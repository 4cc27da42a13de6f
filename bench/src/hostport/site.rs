//! A node with ports forwarded to pods. One port is measured from outside.

use crate::attached::Attached;
use crate::conflist::Conflist;
use crate::node;
use crate::ports;
use crate::traffic::{Entrance, Way};
use anyhow::Result;
use std::net::SocketAddr;
use std::path::Path;

/// A node with its pods. When it is dropped, the kernel deletes its namespaces with everything in
/// them.
pub(crate) struct Site<'a> {
    pub(crate) attached: Attached<'a>,
    /// Number of forwarded ports.
    pub(crate) ports: u16,
    /// Index of the measured pod.
    measured: usize,
    /// Measured port; `None` if the pod has none.
    entrance: Option<Entrance>,
}

impl<'a> Site<'a> {
    /// Creates a node with `count` ports. The unmeasured ports belong to other pods. Half of these
    /// pods are attached before the measured pod, half after it.
    pub(crate) fn new(conflist: &Conflist, dir: &'a Path, count: u16) -> Result<Self> {
        let mut attached = Attached::new(conflist, dir)?;
        let others = count.saturating_sub(1);
        let port = ports::FIRST + others / 2;
        let own = if count > 0 {
            vec![ports::tcp(port), ports::mapping(port, "udp")]
        } else {
            Vec::new()
        };
        let lists = |range| ports::chunks(range).map(|range| range.map(ports::tcp).collect());
        let before: Vec<_> = lists(ports::FIRST..port).collect();
        let measured = before.len();
        for mappings in before
            .into_iter()
            .chain([own])
            .chain(lists(port + 1..ports::FIRST + others + 1))
        {
            attached.add(ports::lead(conflist, mappings)?)?;
        }
        let at = SocketAddr::new(node::UPLINK_ADDRESS.into(), port);
        let entrance = (count > 0).then_some(Entrance {
            at,
            port: ports::CONTAINER_PORT,
        });
        Ok(Site {
            attached,
            ports: count,
            measured,
            entrance,
        })
    }

    /// Returns the path from the client to the pod.
    pub(crate) fn way(&self) -> Result<Way<'_>> {
        let (pod, _) = self.attached.pod_and_gateway(self.measured, true)?;
        Ok(Way {
            from: self.attached.client(),
            to: pod,
            entrance: self.entrance,
        })
    }
}
