//! Other commands of `cargo xtask`, run in a separate process.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::process::Command;

/// Returns a command that runs this program with these arguments.
pub(crate) fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    Ok(sh::cmd(
        std::env::current_exe().context("find this program")?,
        args,
    ))
}
