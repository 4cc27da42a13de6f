//! `braid plan`: the commands of an attachment. Nothing is changed and no address is reserved.

use super::output::{self, TextFormat};
use super::pod::Networks;
use super::{Outcome, conf};
use braid_core::plan::Step;
use braid_node::apply::host::{Machine, This};
use braid_node::attach::add::open_host;
use braid_node::attach::preview::{Line, preview};
use braid_node::sys::netns::NetNs;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Show an attachment as commands; change nothing
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    networks: Networks,
    /// Network namespace of the container; by default an empty one
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// Container id, from which names are derived
    #[arg(long, value_name = "ID", default_value = "example")]
    container: String,
    /// Interface in the container
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    ifname: String,
    /// `CNI_ARGS` of the call
    #[arg(long, value_name = "K=V;…", default_value = "")]
    args: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,
}

/// A line of the plan as JSON.
#[derive(Debug, Serialize)]
struct PlanReport {
    /// `host` or `pod`; `None` for a note.
    ns: Option<String>,
    command: Option<String>,
    note: Option<String>,
    /// True if the node already has the state that the command creates. The command would not run.
    held: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let attachment = conf::attachment(
        &arguments.container,
        &arguments.ifname,
        arguments.netns.clone(),
        &arguments.args,
    )?;
    let machine = This::new(output::log());
    let mut host = match &arguments.netns {
        Some(_) => open_host(&attachment, false, &machine)?,
        None => machine.open(Some(NetNs::throw_away()?))?,
    };
    let (call, in_cluster) = arguments.networks.call(&attachment, &machine)?;
    let notes = in_cluster.map(|in_cluster| in_cluster.notes);
    let notes = notes.into_iter().flatten().map(Line::Note);
    let lines: Vec<Line> = notes.chain(preview(&call, &mut *host)?).collect();
    Ok(output::print(&match arguments.output {
        TextFormat::Text => lines.iter().map(text).collect(),
        TextFormat::Json => output::json(&lines.iter().map(shown).collect::<Vec<_>>())?,
    }))
}

fn text(line: &Line) -> String {
    match line {
        Line::Step(step) => format!("{step}\n"),
        Line::Held(step) => format!("# {step} (exists already)\n"),
        Line::Note(note) => format!("# {note}\n"),
    }
}

fn shown(line: &Line) -> PlanReport {
    let report = |step: &Step, held| PlanReport {
        ns: Some(step.ns().to_string()),
        command: Some(command(step)),
        note: None,
        held,
    };
    match line {
        Line::Step(step) => report(step, false),
        Line::Held(step) => report(step, true),
        Line::Note(note) => PlanReport {
            ns: None,
            command: None,
            note: Some(note.clone()),
            held: false,
        },
    }
}

/// Returns the command of a step, without its namespace.
fn command(step: &Step) -> String {
    let text = step.to_string();
    let ns = step.ns().to_string();
    text.strip_prefix(&ns)
        .unwrap_or(&text)
        .trim_start()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::name::IfName;
    use braid_core::plan::thing::{Link, LinkRef};

    #[test]
    fn a_step_is_its_namespace_and_its_command() {
        let step = Step::del(Link::any(LinkRef::host(
            IfName::parse("cni0").expect("a name"),
        )));
        let lines = [Line::Note("x".to_owned()), Line::Step(step)];
        assert_eq!(
            lines.iter().map(text).collect::<String>(),
            "# x\nhost ip link del cni0\n"
        );
        let json = serde_json::to_string(&shown(&lines[1])).expect("json");
        assert_eq!(
            json,
            r#"{"ns":"host","command":"ip link del cni0","note":null,"held":false}"#
        );
    }
}
