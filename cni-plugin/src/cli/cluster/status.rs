//! `kubectl braid status`: networks, addresses and limits of all nodes.

use super::agents::{self, Node};
use super::collect;
use super::kubectl::{Answer, Kubectl};
use super::text::{self, wrap};
use crate::cli::outcome::{FAILURE, Outcome};
use crate::cli::output::{self, Format};
use crate::cli::shaped::short;
use crate::cli::status::report::{AttachmentStatus, NetworkStatus, NodeStatus};
use crate::entry::signal;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;

/// Show networks, addresses and limits of all nodes
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    kubectl: Kubectl,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Status of a cluster.
#[derive(Debug, Serialize)]
struct Report {
    nodes: Vec<NodeReport>,
}

/// Status of a node, with the keys of `braid status -o json`.
#[derive(Debug, Serialize)]
struct NodeReport {
    node: String,
    /// `<namespace>/<name>` of the agent's pod.
    agent: Option<String>,
    /// Reason why there is no status.
    error: Option<String>,
    version: Option<String>,
    attachments: Vec<AttachmentStatus>,
    networks: Vec<NetworkStatus>,
    warnings: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    signal::note_instead()?;
    let kubectl = &arguments.kubectl;
    let nodes = agents::list(kubectl)?;
    let answers = collect::answers(kubectl, &nodes, &["status", "-o", "json"]);
    if let Some(signal) = signal::noted() {
        return Ok(128 + signal);
    }
    let mut reports = Vec::new();
    for (node, answer) in nodes.into_iter().zip(answers) {
        reports.push(report(node, answer));
    }
    let has_failed = reports.iter().any(NodeReport::has_failed);
    let report = Report { nodes: reports };
    let printed = output::print(&match arguments.output {
        Format::Table => tables(&report.nodes),
        Format::Json => output::json(&report)?,
    });
    Ok(if has_failed { FAILURE } else { printed })
}

impl NodeReport {
    /// True if the node has an agent without an answer. A node may have no agent on purpose.
    fn has_failed(&self) -> bool {
        self.agent.is_some() && self.error.is_some()
    }

    fn state(&self) -> &'static str {
        match (&self.agent, &self.error) {
            (None, _) => "no agent",
            (_, Some(_)) => "no answer",
            (_, None) if self.warnings.is_empty() => "ok",
            (_, None) => "warning",
        }
    }
}

/// Joins a node and its answer.
fn report(node: Node, answer: Result<Answer, String>) -> NodeReport {
    let mut report = NodeReport {
        node: node.name,
        agent: None,
        error: None,
        version: None,
        attachments: Vec::new(),
        networks: Vec::new(),
        warnings: Vec::new(),
    };
    if let Some(agent) = node.agent {
        report.agent = Some(format!("{}/{}", agent.namespace, agent.pod));
    }
    match answer.and_then(|answer| parse(&answer)) {
        Ok(status) => {
            report.version = Some(status.version);
            report.attachments = status.attachments;
            report.networks = status.networks;
            report.warnings = status.warnings;
        }
        Err(words) => report.error = Some(words),
    }
    report
}

fn parse(answer: &Answer) -> Result<NodeStatus, String> {
    if !answer.has_succeeded {
        return Err(answer.words.clone());
    }
    serde_json::from_str(&answer.stdout)
        .map_err(|err| format!("not the status of this version: {err}"))
}

fn tables(nodes: &[NodeReport]) -> String {
    let mut tables = vec![nodes_table(nodes)];
    tables.extend(networks_table(nodes));
    tables.extend(claims_table(nodes));
    tables.extend(limits_table(nodes));
    let mut sentences = String::new();
    for node in nodes {
        let error = node.error.iter().filter(|_| node.agent.is_some());
        for sentence in error.chain(&node.warnings) {
            sentences += &wrap(&format!("{}: ", node.node), sentence, 2);
        }
    }
    tables.push(sentences);
    tables.retain(|table| !table.is_empty());
    tables.join("\n")
}

fn nodes_table(nodes: &[NodeReport]) -> String {
    let mut rows = Vec::new();
    for node in nodes {
        let count = |count: usize| match node.version {
            Some(_) => count.to_string(),
            None => String::new(),
        };
        rows.push(vec![
            node.node.clone(),
            node.version.clone().unwrap_or_default(),
            count(node.networks.len()),
            count(node.attachments.len()),
            node.state().to_owned(),
        ]);
    }
    let header = ["NODE", "VERSION", "NETWORKS", "ATTACHED", "STATE"];
    text::table(&header, rows, &[0])
}

/// Addresses of a network in one family, on all nodes.
#[derive(Debug, Default)]
struct Family {
    used: u64,
    free: u64,
    /// Node with the fewest free addresses in a range, and that number.
    fullest: Option<(u64, String)>,
}

/// A network on all nodes.
#[derive(Debug, Default)]
struct Network {
    nodes: usize,
    attachments: u64,
    families: BTreeMap<&'static str, Family>,
}

/// Adds up the networks of all nodes. Each node has its own addresses, also in ranges that are the
/// same.
fn merged(nodes: &[NodeReport]) -> BTreeMap<&str, Network> {
    let mut networks: BTreeMap<&str, Network> = BTreeMap::new();
    for node in nodes {
        for one in &node.networks {
            let network = networks.entry(&one.network).or_default();
            network.nodes += 1;
            network.attachments = network.attachments.saturating_add(one.attachments);
            for range in &one.ranges {
                let name = if range.range.contains(':') {
                    "IPv6"
                } else {
                    "IPv4"
                };
                let family = network.families.entry(name).or_default();
                family.used = family.used.saturating_add(range.used);
                family.free = family.free.saturating_add(range.free);
                let fullest = (range.free, node.node.clone());
                let known = family.fullest.get_or_insert_with(|| fullest.clone());
                if fullest.0 < known.0 {
                    *known = fullest;
                }
            }
        }
    }
    networks
}

fn networks_table(nodes: &[NodeReport]) -> Option<String> {
    let mut rows = Vec::new();
    for (name, network) in merged(nodes) {
        let (nodes, attached) = (network.nodes.to_string(), network.attachments.to_string());
        let mut names = vec![name.to_owned(), nodes, attached];
        for (family, addresses) in &network.families {
            let mut row = names.clone();
            row.extend([
                (*family).to_owned(),
                addresses.used.to_string(),
                addresses.free.to_string(),
            ]);
            if let Some((free, node)) = &addresses.fullest {
                row.push(format!("{free} free on {node}"));
            }
            rows.push(row);
            names.fill(String::new());
        }
        if network.families.is_empty() {
            names.resize(7, String::new());
            rows.push(names);
        }
    }
    let header = [
        "NETWORK", "NODES", "ATTACHED", "IP", "USED", "FREE", "FULLEST",
    ];
    (!rows.is_empty()).then(|| text::table(&header, rows, &[0, 6]))
}

fn claims_table(nodes: &[NodeReport]) -> Option<String> {
    let mut rows = Vec::new();
    for node in nodes {
        for one in &node.attachments {
            if let Some(claim) = &one.claim {
                rows.push(vec![
                    claim.name.clone(),
                    claim.request.clone(),
                    claim.rate.clone().unwrap_or_default(),
                    one.pod.clone().unwrap_or_else(|| one.container_id.clone()),
                    one.ifname.clone(),
                    claim.device.clone(),
                    node.node.clone(),
                ]);
            }
        }
    }
    rows.sort();
    let header = [
        "CLAIM",
        "REQUEST",
        "RATE",
        "NAMESPACE/POD",
        "IF",
        "DEVICE",
        "NODE",
    ];
    (!rows.is_empty()).then(|| text::table(&header, rows, &[0, 1, 3, 6]))
}

fn limits_table(nodes: &[NodeReport]) -> Option<String> {
    let mut rows = Vec::new();
    for node in nodes {
        for one in &node.attachments {
            for direction in &one.bandwidth {
                let passed = direction.passed;
                let count = |count: Option<u64>| count.map(short).unwrap_or_default();
                rows.push(vec![
                    one.pod.clone().unwrap_or_else(|| one.container_id.clone()),
                    one.ifname.clone(),
                    direction.toward.name().to_owned(),
                    short(direction.rate),
                    count(passed.map(|passed| passed.delayed)),
                    count(passed.map(|passed| passed.dropped)),
                    node.node.clone(),
                ]);
            }
        }
    }
    rows.sort();
    let header = [
        "NAMESPACE/POD",
        "IF",
        "DIRECTION",
        "LIMIT",
        "DELAYED",
        "DROPPED",
        "NODE",
    ];
    (!rows.is_empty()).then(|| text::table(&header, rows, &[0, 1, 6]))
}

#[cfg(test)]
mod tests;
