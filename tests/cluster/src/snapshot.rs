//! State of a node that a program for the network between nodes makes or that braid changes, as
//! lines of other tools.

use anyhow::{Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};

/// Lists of the kernel's state. A node that lacks a link has an empty list.
const LISTS: [&str; 15] = [
    "ip -br link",
    "ip -br addr",
    "ip route show table all",
    "ip -6 route show table all",
    "ip rule",
    "ip -6 rule",
    "ip neigh show nud permanent",
    "ip -6 neigh show nud permanent",
    "bridge fdb show dev flannel.1",
    "bridge fdb show dev flannel-v6.1",
    "nft list tables",
    "find /run/braid -mindepth 1 -not -path */attachments*",
    "find /var/lib/braid -mindepth 1",
    "find /etc/cni/net.d /opt/cni/bin -mindepth 1",
    "find /sys/fs/bpf -mindepth 1",
];
/// Files with their digests.
const FILES: &str = "find /run/flannel /etc/cni/net.d /opt/cni/bin -type f -exec sha256sum {} +";

/// State of a node.
pub(crate) struct Snapshot {
    node: Node,
    lines: Vec<String>,
}

impl Snapshot {
    pub(crate) fn of_all(cluster: &Cluster, nodes: &[Node]) -> Result<Vec<Self>> {
        nodes.iter().map(|node| Self::of(cluster, *node)).collect()
    }

    fn of(cluster: &Cluster, node: Node) -> Result<Self> {
        let mut lines = Vec::new();
        for list in LISTS.iter().chain([&FILES]) {
            let listed = sh::read(&mut cluster.on(node, list.split(' '))?).unwrap_or_default();
            let of_list = listed.lines().filter(|line| !is_of_pod_or_router(line));
            lines.extend(of_list.map(|line| format!("{list}: {}", line.trim())));
        }
        let name = node.to_string();
        let get = ["get", "node", &name, "-o=jsonpath={.metadata.annotations}"];
        let annotations = sh::read(&mut cluster.kubectl(get))?;
        let annotations: serde_json::Value = serde_json::from_str(&annotations)?;
        for (key, value) in annotations.as_object().into_iter().flatten() {
            if key.contains("flannel") || key.contains("braid") {
                lines.push(format!("annotation {key}: {value}"));
            }
        }
        lines.sort_unstable();
        Ok(Self { node, lines })
    }

    /// Removes the lines for which `is_expected` returns true.
    pub(crate) fn forget(&mut self, is_expected: fn(&str) -> bool) {
        self.lines.retain(|line| !is_expected(line));
    }
}

/// True if a line is about the host's end of a pod's link, or about an address that the kernel adds
/// while IPv6 is forwarded: sysctls stay after a removal.
fn is_of_pod_or_router(line: &str) -> bool {
    line.contains("veth") || line.starts_with("anycast ")
}

/// Fails if a node has changed.
pub(crate) fn compare(before: &[Snapshot], after: &[Snapshot]) -> Result<()> {
    let mut changes = Vec::new();
    for (before, after) in before.iter().zip(after) {
        for (sign, one, other) in [('-', before, after), ('+', after, before)] {
            for line in &one.lines {
                if !other.lines.contains(line) {
                    changes.push(format!("{}: {sign} {line}", one.node));
                }
            }
        }
    }
    ensure!(
        changes.is_empty(),
        "nodes are not as before:\n{}",
        changes.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_lines_that_came_and_went() {
        let node: Node = "n1".parse().expect("a node");
        let snapshot = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            vec![Snapshot { node, lines }]
        };
        let err = compare(&snapshot(&["a", "b"]), &snapshot(&["b", "c"])).expect_err("changes");
        assert_eq!(
            err.to_string(),
            "nodes are not as before:\nn1: - a\nn1: + c"
        );
        assert!(compare(&snapshot(&["a"]), &snapshot(&["a"])).is_ok());
    }
}
