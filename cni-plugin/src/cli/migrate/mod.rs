//! `braid migrate`: plugins, networks and attachments of other programs on a node, the changes that
//! braid would make, and the commands in order. It changes nothing.
//!
//! ```text
//!  observe ─► Node ─► judge ─► Advice ─► text, or JSON
//! ```

mod judge;
mod observe;

use super::output::{self, TextFormat};
use super::{Outcome, install};
use clap::Args;
use judge::{Advice, Step};
use observe::Node;
use serde::Serialize;

/// Show other programs on this node, the changes by braid, and the commands; change nothing
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    output: TextFormat,
}

/// The output as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    node: &'a Node,
    #[serde(flatten)]
    advice: &'a Advice,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let node = observe::node()?;
    let changes = install::changes(node.plugins.folder.as_ref())
        .map_err(|err| format!("read {}: {err}", node.plugins.folder))?;
    let advice = judge::advice(&node, changes);
    let (node, advice) = (&node, &advice);
    Ok(output::print(&match arguments.output {
        TextFormat::Text => text(node, advice),
        TextFormat::Json => output::json(&Report { node, advice })?,
    }))
}

fn text(node: &Node, advice: &Advice) -> String {
    let mut lines = vec!["This node has".to_owned()];
    lines.extend(present(node));
    lines.push("\nbraid would".to_owned());
    for change in &advice.changes {
        lines.push(format!("  {change}"));
    }
    lines.push("\nCommands".to_owned());
    for Step { command, reason } in &advice.commands {
        lines.push(format!("  # {reason}\n  {command}"));
    }
    lines.join("\n") + "\n"
}

/// Returns a line for each thing that the node has.
fn present(node: &Node) -> Vec<String> {
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(" ")
        }
    };
    let plugins = &node.plugins;
    let mut lines = vec![
        format!("  plugins in {}: {}", plugins.folder, plugins.why),
        format!("    of braid: {}", list(&plugins.of_braid)),
        format!("    of others: {}", list(&plugins.of_others)),
    ];
    for network in &node.networks {
        let (file, name, types) = (&network.file, &network.name, network.types.join("+"));
        let default = if network.is_default {
            ", the default network"
        } else {
            ""
        };
        lines.push(format!("  {file}: {name} ({types}){default}"));
    }
    for it in &node.attachments {
        let (network, container, ifname) = (&it.network, &it.container_id, &it.ifname);
        lines.push(format!(
            "  attached by another program: {network} {container} {ifname}"
        ));
    }
    for trace in &node.traces {
        lines.push(format!("  {}: {}", trace.program, trace.detail));
    }
    lines
}
