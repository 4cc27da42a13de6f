//! `braid agent`: the agent of a node, in a program of its own.

use super::Outcome;
use braid_node::source::client::protocol::PROGRAM;
use braid_node::sys::executable;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Keep the default network of this node and its routes to other nodes right, until SIGTERM
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    /// Arguments of the agent; --help describes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the agent.
pub(super) fn run(arguments: Arguments) -> Outcome {
    let program = executable::beside(PROGRAM)?;
    let err = Command::new(&program).args(arguments.arguments).exec();
    Err(format!("start {}: {err}", program.display()).into())
}
