//! Another verb of this program, in a separate process.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::process::Command;

/// Returns the command of the verb with its arguments.
pub(crate) fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    Ok(sh::cmd(
        std::env::current_exe().context("find this program")?,
        args,
    ))
}
