//! Advice for a node, from its plugins, networks and attachments.

use super::observe::Node;
use serde::Serialize;

/// Changes and commands.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    pub(super) changes: Vec<String>,
    /// In the order in which an administrator types them.
    pub(super) commands: Vec<Step>,
}

/// A command with the reason for it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    pub(super) command: String,
    pub(super) reason: String,
}

fn step(command: &str, reason: &str) -> Step {
    Step {
        command: command.to_owned(),
        reason: reason.to_owned(),
    }
}

const ROLLOUT: &str = "kubectl -n kube-system rollout status daemonset/braid";

/// Returns the advice. `installation` are the changes of `braid install` in the plugin folder.
pub(super) fn advice(node: &Node, installation: Vec<String>) -> Advice {
    let folder = &node.plugins.folder;
    let mut changes = Vec::new();
    for change in installation {
        changes.push(format!("{change} in {folder}"));
    }
    let default = node.networks.iter().find(|network| network.is_default);
    if let Some(network) = default
        && !network.types.iter().any(|kind| kind == "braid")
    {
        let (name, file) = (&network.name, &network.file);
        changes.push(format!(
            "write 00-braid.conflist, whose default network is {name:?} of {file}, which stays"
        ));
    }
    if changes.is_empty() {
        changes.push("change nothing".to_owned());
    }
    if !node.attachments.is_empty() {
        let count = node.attachments.len();
        changes.push(format!(
            "detach the {count} attachments of other programs when their pods end, and leave them until then"
        ));
    }
    Advice {
        changes,
        commands: commands(node),
    }
}

fn commands(node: &Node) -> Vec<Step> {
    let has = |program| node.traces.iter().any(|trace| trace.program == program);
    let mut commands = if has("flannel") {
        with_flannel()
    } else if default_is_of_a_cluster(node) {
        vec![
            step(
                "kubectl apply -f deploy/braid.yaml",
                "install braid on all nodes",
            ),
            step(ROLLOUT, "wait until every node has it"),
        ]
    } else {
        vec![step(
            "braid install",
            "take the names of the reference plugins",
        )]
    };
    if has("Multus") {
        commands.push(step(
            "kubectl -n kube-system delete daemonset kube-multus-ds",
            "after braid attaches new pods: remove Multus, and keep its configuration",
        ));
    }
    if has("Whereabouts") {
        commands.push(step(
            "ls -l /opt/cni/bin/whereabouts",
            "keep Whereabouts: braid runs its program for the addresses",
        ));
    }
    commands.push(step("braid doctor", "look for what the node lacks"));
    commands
}

/// True if a network of the node belongs to a cluster.
fn default_is_of_a_cluster(node: &Node) -> bool {
    node.networks.iter().any(|network| network.is_default)
}

/// Returns the commands of docs/flannel.md.
fn with_flannel() -> Vec<Step> {
    vec![
        step(
            "kubectl apply -f deploy/braid.yaml -l 'app.kubernetes.io/component!=agent'",
            "rights and configuration, without an agent",
        ),
        step(
            "kubectl apply -f deploy/flannel.yaml",
            "rights of mode flannel",
        ),
        step(
            "kubectl create -f deploy/braid.yaml -l app.kubernetes.io/component=agent --dry-run=client -o yaml \
             | kubectl patch --local -f - --patch-file deploy/flannel-agent.yaml -o yaml | kubectl apply -f -",
            "an agent on nodes with the label braid-agent",
        ),
        step(
            "kubectl label node \"$(hostname)\" braid-agent=true",
            "this node leaves flanneld, after docs/flannel.md has excluded it from flannel's DaemonSet",
        ),
        step(ROLLOUT, "wait until the agent is ready"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::observe::{Attachment, Network, Trace};
    use super::*;

    fn network(file: &str, kind: &str) -> Network {
        Network {
            file: file.to_owned(),
            name: "n".to_owned(),
            types: vec![kind.to_owned()],
            is_default: true,
            ..Network::default()
        }
    }

    fn commands_of(node: &Node) -> Vec<String> {
        let commands = advice(node, Vec::new()).commands;
        commands.into_iter().map(|step| step.command).collect()
    }

    #[test]
    fn a_node_of_flannel_is_labelled_and_one_of_multus_keeps_its_configuration() {
        let mut node = Node {
            networks: vec![network("/n/10-flannel.conflist", "flannel")],
            ..Node::default()
        };
        let plain = commands_of(&node);
        assert_eq!(plain[..2], ["kubectl apply -f deploy/braid.yaml", ROLLOUT]);
        node.traces.push(Trace {
            program: "flannel",
            detail: String::new(),
        });
        let moved = commands_of(&node);
        assert_eq!(moved[1], "kubectl apply -f deploy/flannel.yaml");
        assert!(moved[3].contains("braid-agent=true"), "{moved:?}");
        node.traces.push(Trace {
            program: "Multus",
            detail: String::new(),
        });
        assert!(
            commands_of(&node)
                .iter()
                .any(|it| it.contains("kube-multus-ds"))
        );
    }

    #[test]
    fn a_node_without_a_network_gets_the_names_of_plugins_alone() {
        let node = Node::default();
        assert_eq!(commands_of(&node), ["braid install", "braid doctor"]);
        assert_eq!(advice(&node, Vec::new()).changes, ["change nothing"]);
    }

    #[test]
    fn changes_name_the_default_network_and_the_attachments_of_others() {
        let node = Node {
            networks: vec![network("/n/10-flannel.conflist", "flannel")],
            attachments: vec![Attachment {
                network: "n".to_owned(),
                container_id: "c".to_owned(),
                ifname: "eth0".to_owned(),
            }],
            ..Node::default()
        };
        let changes = advice(&node, vec!["copy braid".to_owned()]).changes;
        assert!(changes[0].starts_with("copy braid in "));
        assert!(changes[1].contains("/n/10-flannel.conflist"), "{changes:?}");
        assert!(changes[2].contains("the 1 attachments"), "{changes:?}");
    }
}
