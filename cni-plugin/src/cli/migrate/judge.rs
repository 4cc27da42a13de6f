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

/// Labels the node on which the advice is given. Its name in the cluster may not be its host name.
const LABEL: &str = "kubectl label node <name of this node> braid-agent=true";
/// Excludes nodes with the label from flannel's `DaemonSet`.
const EXCLUDE: &str = "kubectl -n kube-flannel patch daemonset kube-flannel-ds --type=json -p '[{\"op\": \"add\", \"path\": \
    \"/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/-\", \
    \"value\": {\"key\": \"braid-agent\", \"operator\": \"DoesNotExist\"}}]'";
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
    let distribution = distribution(&node.plugins.folder);
    let mut commands = if let Some(distribution) = distribution {
        with_chart(distribution, has("flannel"))
    } else if has("flannel") {
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
            "only when every node has braid, and attaches new pods by it: remove Multus; put its \
             configuration back if it deletes it at its end",
        ));
    }
    let mut types = node.networks.iter().flat_map(|network| &network.types);
    if types.any(|kind| kind == "cilium-cni") {
        let exclusive = "helm upgrade cilium cilium/cilium --namespace kube-system --reuse-values \
                         --set cni.exclusive=false";
        commands.insert(
            0,
            step(exclusive, "let Cilium leave the configurations of others"),
        );
    }
    if has("Whereabouts") {
        commands.push(step(
            "kubectl get ippools.whereabouts.cni.cncf.io --all-namespaces",
            "keep Whereabouts' DaemonSet: braid takes addresses from its pools with its credentials",
        ));
    }
    commands.push(step("braid doctor", "look for what the node lacks"));
    commands
}

/// True if a network of the node belongs to a cluster.
fn default_is_of_a_cluster(node: &Node) -> bool {
    node.networks.iter().any(|network| network.is_default)
}

/// Returns the chart's distribution with this plugin folder.
fn distribution(folder: &str) -> Option<&'static str> {
    ["k3s", "microk8s"]
        .into_iter()
        .find(|name| folder.split('/').any(|part| part == *name))
}

/// Returns the commands for a distribution with folders of its own, those of docs/migration.md for
/// k3s with its flannel.
fn with_chart(distribution: &str, has_flannel: bool) -> Vec<Step> {
    let install = format!(
        "helm install braid deploy/chart --namespace kube-system --set distribution={distribution}"
    );
    if !(has_flannel && distribution == "k3s") {
        return vec![
            step(&install, "install braid on all nodes"),
            step(ROLLOUT, "wait until every node has it"),
        ];
    }
    let values = "--set flannel.enabled=true,network.mode=flannel --set-string nodeSelector.braid-agent=true";
    vec![
        step(
            "kubectl -n kube-system create configmap kube-flannel-cfg --from-literal=net-conf.json=\
             '{\"Network\": \"10.42.0.0/16\", \"Backend\": {\"Type\": \"vxlan\"}}'",
            "the settings of k3s' flannel, with the server's --cluster-cidr",
        ),
        step(
            &format!("{install} {values}"),
            "an agent on nodes with the label braid-agent",
        ),
        step(LABEL, "an agent beside this node's flannel"),
        step(
            ROLLOUT,
            "wait until the agent is ready; docs/migration.md then restarts k3s without flannel",
        ),
    ]
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
            EXCLUDE,
            "flanneld leaves nodes with the label, and restarts on the others",
        ),
        step(LABEL, "this node leaves flanneld"),
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
        assert!(moved[3].contains("DoesNotExist"), "{moved:?}");
        assert!(moved[4].contains("braid-agent=true"), "{moved:?}");
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
    fn a_distribution_gets_the_chart_and_cilium_leaves_other_configurations() {
        let mut node = Node {
            networks: vec![network("/n/05-cilium.conflist", "cilium-cni")],
            ..Node::default()
        };
        assert!(commands_of(&node)[0].contains("cni.exclusive=false"));
        node.networks.clear();
        node.plugins.folder = "/var/lib/rancher/k3s/data/cni".to_owned();
        assert!(commands_of(&node)[0].ends_with("--set distribution=k3s"));
        node.traces.push(Trace {
            program: "flannel",
            detail: String::new(),
        });
        let moved = commands_of(&node);
        assert!(moved[0].contains("create configmap kube-flannel-cfg"));
        assert!(moved[1].contains("network.mode=flannel"), "{moved:?}");
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
