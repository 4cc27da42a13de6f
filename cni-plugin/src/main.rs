//! The one binary: which face it shows.
//!
//! A call with `CNI_COMMAND` is a plugin call, and is looked for before anything else is touched. `argv[0]` picks the
//! plugin, so that a link named `bridge` is the bridge plugin.

use braid::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::var_os("CNI_COMMAND") {
        Some(command) if !command.is_empty() => cli::cni::run(),
        _ => cli::run(),
    }
}
