//! The second program of braid, beside the plugin: the agent of a node, and the client that a plugin
//! call starts where no agent answers. Both need TLS and an async runtime, which a call does not load.

mod cli;

use braid_node::source::client::protocol::{ARGUMENT, PROGRAM};
use clap::Parser;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == ARGUMENT)
    {
        return told(braid_client::serve());
    }
    told(cli::run(cli::Arguments::parse()))
}

/// Returns the exit status of an outcome. Prints its error, if it failed.
fn told<E: Display>(outcome: Result<(), E>) -> ExitCode {
    let Err(err) = outcome else {
        return ExitCode::SUCCESS;
    };
    // The reader of standard error may have ended.
    let _ = writeln!(std::io::stderr(), "{PROGRAM}: {err}");
    ExitCode::FAILURE
}
