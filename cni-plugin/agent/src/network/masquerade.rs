//! Masquerading of this node's pods on their way out of the cluster.

use crate::cluster::node::Node;
use crate::error::Error;
use braid_node::effect::cluster_masquerade;
use ipnet::IpNet;

/// Ranges of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Masquerade {
    /// Ranges of this node's pods.
    pub pods: Vec<IpNet>,
    /// Destinations that see the addresses of pods: pods and nodes of the cluster.
    pub inside: Vec<IpNet>,
}

impl Masquerade {
    /// Returns the ranges for a node with the pod ranges `own`. `outside` are the ranges of other
    /// nodes, and configured ones.
    pub fn of<'a>(
        own: &[IpNet],
        outside: impl IntoIterator<Item = IpNet>,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Self {
        let mut inside = own.to_vec();
        inside.extend(outside);
        for node in nodes {
            for address in &node.addresses {
                inside.push(IpNet::from(*address));
            }
        }
        Self {
            pods: own.to_vec(),
            inside: IpNet::aggregate(&inside),
        }
    }
}

/// State of the table in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// It is as desired.
    Same,
    /// Another program has deleted it or rules of it, whatever is desired now.
    Lost,
    /// It has other ranges than desired, or another process wrote it.
    Other,
}

fn failed(err: braid_node::Error) -> Error {
    Error::new("masquerade pods", err)
}

/// The table in the kernel.
#[derive(Debug, Default)]
pub struct Table {
    /// Ranges that this process wrote.
    written: Option<Masquerade>,
}

impl Table {
    /// Compares the table with the desired one.
    pub fn compare(&self, desired: &Masquerade) -> Result<Comparison, Error> {
        let Some(written) = &self.written else {
            return Ok(Comparison::Other);
        };
        let is_present = cluster_masquerade::is_present(written.pods.len()).map_err(failed)?;
        Ok(match is_present {
            false => Comparison::Lost,
            true if written == desired => Comparison::Same,
            true => Comparison::Other,
        })
    }

    /// Writes the table.
    pub fn write(&mut self, desired: Masquerade) -> Result<(), Error> {
        // A failed write leaves the earlier table.
        self.written = None;
        cluster_masquerade::replace(&desired.pods, &desired.inside).map_err(failed)?;
        self.written = Some(desired);
        Ok(())
    }

    /// Deletes the table.
    pub fn delete(&mut self) -> Result<(), Error> {
        self.written = None;
        cluster_masquerade::delete().map_err(|err| Error::new("masquerade no pods", err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::flannel::Annotations;
    use std::net::IpAddr;

    /// Returns true if the address sees the addresses of pods.
    fn is_inside(masquerade: &Masquerade, address: IpAddr) -> bool {
        masquerade
            .inside
            .iter()
            .any(|range| range.contains(&address))
    }

    #[test]
    fn pods_and_nodes_of_the_cluster_see_the_addresses_of_pods() {
        let range = |text: &str| text.parse::<IpNet>().expect("a range");
        let node = Node {
            name: "a".into(),
            uid: "a".into(),
            created: 0,
            ranges: Vec::new(),
            addresses: vec!["192.0.2.7".parse().expect("an address")],
            is_network_unavailable: false,
            flannel: Annotations::default(),
        };
        let masquerade = Masquerade::of(
            &[range("10.244.1.0/24")],
            [range("10.244.2.0/24"), range("fd00:2::/64")],
            [&node],
        );
        assert_eq!(masquerade.pods, [range("10.244.1.0/24")]);
        for (address, expected) in [
            ("10.244.1.5", true),
            ("10.244.2.5", true),
            ("192.0.2.7", true),
            ("fd00:2::5", true),
            ("192.0.2.8", false),
            ("10.244.3.5", false),
        ] {
            let parsed = address.parse().expect("an address");
            assert_eq!(is_inside(&masquerade, parsed), expected, "{address}");
        }
    }
}
