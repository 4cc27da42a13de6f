//! `kubectl braid doctor`: faults of all nodes.

use super::agents::{self, Agent, Node};
use super::collect;
use super::kubectl::{Answer, Kubectl};
use super::text::wrap;
use crate::cli::doctor::check::{Check, CheckState};
use crate::cli::outcome::{FAILURE, Outcome};
use crate::cli::output::{self, TextFormat};
use crate::entry::signal;
use clap::Args;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// List the faults of all nodes; fails if a node has no agent that works
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    kubectl: Kubectl,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,
}

/// Level of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// Pods can't be attached, or the node does not answer.
    Error,
    Warning,
}

/// A fault of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Fault {
    level: Level,
    /// `agent`, `version`, or the name of a check of `braid doctor`.
    subject: String,
    text: String,
}

/// A fault of several nodes.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Shared {
    #[serde(flatten)]
    fault: Fault,
    nodes: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    signal::note_instead()?;
    let kubectl = &arguments.kubectl;
    let nodes = agents::list(kubectl)?;
    let answers = collect::answers(kubectl, &nodes, &["doctor", "-o", "json"]);
    if let Some(signal) = signal::noted() {
        return Ok(128 + signal);
    }
    let mut faults = versions(&nodes);
    for (node, answer) in nodes.iter().zip(answers) {
        for fault in of_node(node, answer) {
            faults.push((node.name.clone(), fault));
        }
    }
    let shared = shared(faults);
    let is_bad = shared.iter().any(|one| one.fault.level == Level::Error);
    let printed = output::print(&match arguments.output {
        TextFormat::Text => text(&shared, nodes.len()),
        TextFormat::Json => output::json(&shared)?,
    });
    Ok(if is_bad { FAILURE } else { printed })
}

fn error(text: String) -> Fault {
    Fault {
        level: Level::Error,
        subject: "agent".to_owned(),
        text,
    }
}

/// Returns the faults of a node from its agent's pod and from the answer of `braid doctor`.
fn of_node(node: &Node, answer: Result<Answer, String>) -> Vec<Fault> {
    let Some(agent) = &node.agent else {
        return vec![error("no pod of the agent on the node".to_owned())];
    };
    let mut faults = Vec::new();
    let pod = format!("{}/{}", agent.namespace, agent.pod);
    if let Some(reason) = &agent.not_ready {
        faults.push(error(format!("{pod} is not ready: {reason}")));
    }
    match answer.and_then(|answer| parse(&answer)) {
        Ok(checks) => faults.extend(checks.iter().filter_map(of_check)),
        // The reason is known.
        Err(_) if !agent.is_running && agent.not_ready.is_some() => {}
        Err(words) => faults.push(error(format!("{pod} does not answer: {words}"))),
    }
    faults
}

/// Parses the checks. With a fatal check, the program fails and prints them, too.
fn parse(answer: &Answer) -> Result<Vec<Check>, String> {
    serde_json::from_str(&answer.stdout).map_err(|err| {
        if answer.has_succeeded {
            format!("not the checks of this version: {err}")
        } else {
            answer.words.clone()
        }
    })
}

fn of_check(check: &Check) -> Option<Fault> {
    let state = match check.state {
        CheckState::Ok | CheckState::Note => return None,
        CheckState::Missing => "missing",
        CheckState::Unknown => "unknown",
    };
    let level = if check.is_fatal() {
        Level::Error
    } else {
        Level::Warning
    };
    let said = check.text();
    let text = if said.is_empty() {
        state.to_owned()
    } else {
        format!("{state}: {said}")
    };
    Some(Fault {
        level,
        subject: check.name.clone(),
        text,
    })
}

/// Returns a fault for each node if the agents run different images.
fn versions(nodes: &[Node]) -> Vec<(String, Fault)> {
    let mut images: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut running: Vec<(&Node, &Agent)> = Vec::new();
    for node in nodes {
        if let Some(agent) = node.agent.as_ref().filter(|agent| agent.is_running) {
            images.insert((&agent.image, &agent.image_id));
            running.push((node, agent));
        }
    }
    if images.len() < 2 {
        return Vec::new();
    }
    let fault = |(node, agent): (&Node, &Agent)| {
        let text = format!(
            "agents of {} versions: this is {} ({})",
            images.len(),
            agent.image,
            agent.image_id
        );
        let fault = Fault {
            level: Level::Warning,
            subject: "version".to_owned(),
            text,
        };
        (node.name.clone(), fault)
    };
    running.into_iter().map(fault).collect()
}

/// Joins equal faults of several nodes.
fn shared(faults: Vec<(String, Fault)>) -> Vec<Shared> {
    let mut nodes: BTreeMap<Fault, BTreeSet<String>> = BTreeMap::new();
    for (node, fault) in faults {
        nodes.entry(fault).or_default().insert(node);
    }
    let mut shared = Vec::new();
    for (fault, nodes) in nodes {
        let nodes = nodes.into_iter().collect();
        shared.push(Shared { fault, nodes });
    }
    shared
}

/// Formats the faults by the nodes that have them: all of `count` nodes first, then single nodes.
fn text(shared: &[Shared], count: usize) -> String {
    if shared.is_empty() {
        return format!("nothing is wrong on {}\n", nodes_text(count));
    }
    let mut groups: BTreeMap<(usize, &[String]), Vec<&Fault>> = BTreeMap::new();
    for Shared { fault, nodes } in shared {
        // The most nodes first.
        let place = count.saturating_sub(nodes.len());
        groups.entry((place, nodes)).or_default().push(fault);
    }
    let mut text = String::new();
    for ((_, nodes), faults) in groups {
        let head = match nodes {
            [node] => wrap("", node, 0),
            _ if nodes.len() == count => format!("all {count} nodes\n"),
            _ => wrap(
                &format!("{}: ", nodes_text(nodes.len())),
                &nodes.join(" "),
                2,
            ),
        };
        text += &head;
        for fault in faults {
            let level = match fault.level {
                Level::Error => "error",
                Level::Warning => "warning",
            };
            text += &wrap(&format!("  {level}: {}: ", fault.subject), &fault.text, 4);
        }
    }
    text
}

fn nodes_text(count: usize) -> String {
    if count == 1 {
        "1 node".to_owned()
    } else {
        format!("{count} nodes")
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::WIDTH;
    use super::*;

    fn check(name: &str, state: CheckState, is_essential: bool) -> Check {
        Check {
            name: name.to_owned(),
            state,
            essential: is_essential,
            since: "".into(),
            needed_by: "".into(),
            without_it: "no such network".into(),
            detail: "EOPNOTSUPP".to_owned(),
        }
    }

    fn node(name: &str, image_id: &str) -> Node {
        let agent = Agent {
            namespace: "kube-system".to_owned(),
            pod: format!("braid-{name}"),
            image: "braid:1".to_owned(),
            image_id: image_id.to_owned(),
            is_running: true,
            not_ready: None,
        };
        Node {
            name: name.to_owned(),
            agent: Some(agent),
        }
    }

    fn answer(has_succeeded: bool, checks: &[Check]) -> Answer {
        Answer {
            has_succeeded,
            stdout: serde_json::to_string(checks).expect("json"),
            words: "command terminated with exit code 1".to_owned(),
        }
    }

    fn texts(faults: &[Fault]) -> Vec<(Level, &str, &str)> {
        faults
            .iter()
            .map(|fault| (fault.level, fault.subject.as_str(), fault.text.as_str()))
            .collect()
    }

    #[test]
    fn only_what_is_missing_or_unknown_is_a_fault() {
        let checks = [
            check("veth", CheckState::Missing, true),
            check("netkit", CheckState::Missing, false),
            check("fq", CheckState::Unknown, false),
            check("vlan", CheckState::Ok, true),
            check("kernel", CheckState::Note, false),
        ];
        let faults = of_node(&node("n1", ""), Ok(answer(false, &checks)));
        let expected = [
            (Level::Error, "veth", "missing: no such network: EOPNOTSUPP"),
            (
                Level::Warning,
                "netkit",
                "missing: no such network: EOPNOTSUPP",
            ),
            (Level::Warning, "fq", "unknown: EOPNOTSUPP"),
        ];
        assert_eq!(texts(&faults), expected);
    }

    #[test]
    fn an_agent_that_is_missing_not_ready_or_silent_is_an_error() {
        let mut ill = node("n1", "");
        let none = Node {
            agent: None,
            ..ill.clone()
        };
        let faults = of_node(&none, Err("no agent".to_owned()));
        let expected = (Level::Error, "agent", "no pod of the agent on the node");
        assert_eq!(texts(&faults), [expected]);
        if let Some(agent) = &mut ill.agent {
            agent.not_ready = Some("ContainersNotReady".to_owned());
        }
        let faults = of_node(&ill, Err("no answer within 20 s".to_owned()));
        let expected = [
            (
                Level::Error,
                "agent",
                "kube-system/braid-n1 is not ready: ContainersNotReady",
            ),
            (
                Level::Error,
                "agent",
                "kube-system/braid-n1 does not answer: no answer within 20 s",
            ),
        ];
        assert_eq!(texts(&faults), expected);
    }

    #[test]
    fn agents_of_several_images_are_told_apart() {
        let same = [node("n1", "sha256:1"), node("n2", "sha256:1")];
        assert_eq!(versions(&same), []);
        let faults = versions(&[node("n1", "sha256:1"), node("n2", "sha256:2")]);
        let text = "agents of 2 versions: this is braid:1 (sha256:2)";
        assert_eq!((faults.len(), faults[1].1.text.as_str()), (2, text));
    }

    #[test]
    fn faults_of_the_same_nodes_stand_together_and_those_of_all_nodes_come_first() {
        let fault = |subject: &str| Fault {
            level: Level::Warning,
            subject: subject.to_owned(),
            text: format!("missing: {}", "word ".repeat(20)),
        };
        let of = |node: &str, subject| (node.to_owned(), fault(subject));
        let faults = vec![
            of("n1", "netkit"),
            of("n2", "netkit"),
            of("n3", "netkit"),
            of("n2", "fq"),
            of("n3", "fq"),
            of("n3", "vlan"),
        ];
        let said = text(&shared(faults), 3);
        let heads: Vec<&str> = said.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(heads, ["all 3 nodes", "2 nodes: n2 n3", "n3"]);
        assert!(
            said.lines().all(|line| line.chars().count() <= WIDTH),
            "{said}"
        );
        assert_eq!(text(&[], 1), "nothing is wrong on 1 node\n");
    }
}
