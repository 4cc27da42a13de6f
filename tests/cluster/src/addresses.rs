//! Addresses of a node's network namespaces: none may be in two of them.

use anyhow::{Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use std::collections::BTreeMap;

/// Lists the addresses of each network namespace of a node.
const ADDRESSES: &str = "for ns in $(ls /run/netns); do \
    ip -o -4 -n $ns addr show scope global 2>/dev/null | sed \"s/^/$ns /\"; done; true";

/// Fails if two network namespaces of a node have the same address.
pub(crate) fn ensure_none_twice(cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    for node in nodes {
        // A namespace may go between the two, so only a pair in two samples counts.
        let twice = twice(cluster, *node);
        if !twice.is_empty() {
            let again = self::twice(cluster, *node);
            let both: Vec<&String> = twice.iter().filter(|it| again.contains(it)).collect();
            ensure!(
                both.is_empty(),
                "{node}: addresses with two owners: {both:?}"
            );
        }
    }
    Ok(())
}

/// Returns the addresses that two namespaces of a node have; none while the node restarts.
fn twice(cluster: &Cluster, node: Node) -> Vec<String> {
    let listed = cluster.on(node, ["sh", "-c", ADDRESSES]);
    let listed = listed.and_then(|mut list| sh::read(&mut list));
    repeated(&listed.unwrap_or_default())
}

/// Returns the addresses that stand in two lines of a listing, with their namespaces.
fn repeated(listed: &str) -> Vec<String> {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let namespace = words.next().unwrap_or_default();
        if let Some(address) = words.skip_while(|word| *word != "inet").nth(1) {
            owners.entry(address).or_default().push(namespace);
        }
    }
    owners.retain(|_, owners| owners.len() > 1);
    owners
        .iter()
        .map(|(address, owners)| format!("{address} of {}", owners.join(" and ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_two_namespaces_is_repeated() {
        let listed = "cni-a 2: eth0    inet 10.244.1.2/24 scope global eth0\n\
                      cni-b 2: eth0    inet 10.244.1.3/24 scope global eth0\n\
                      cni-c 2: eth0    inet 10.244.1.2/24 scope global eth0\n";
        assert_eq!(repeated(listed), ["10.244.1.2/24 of cni-a and cni-c"]);
    }
}
