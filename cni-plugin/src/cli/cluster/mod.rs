//! `kubectl braid`: all nodes of a cluster, from the agents' pods.
//!
//! ```text
//!  kubectl get pods, nodes ─► agents: the agent of each node
//!   status, doctor: collect ─► kubectl exec <pod> -- braid <verb> -o json ─► merge ─► tables, JSON
//!   top:            stream  ─► the same, and a line of JSON at each interval
//! ```

mod agents;
mod collect;
mod doctor;
mod kubectl;
mod status;
mod stream;
pub(super) mod text;
mod top;

use super::Outcome;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

/// Name under which kubectl starts the program.
pub(super) const CALLED_AS: &str = "kubectl-braid";

/// Shows braid on all nodes of a cluster
#[derive(Debug, Parser)]
#[command(
    name = "kubectl braid",
    bin_name = "kubectl braid",
    version,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::Arguments),
    Top(top::Arguments),
    Doctor(doctor::Arguments),
}

/// Runs the command of the command line.
pub(super) fn run(arguments: Vec<OsString>) -> Outcome {
    if arguments.len() <= 1 {
        let help = Arguments::command().render_help();
        return Ok(super::output::print(&help.to_string()));
    }
    match Arguments::parse_from(arguments).command {
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    }
}
