//! Another verb of this program, in a process of its own.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::process::Command;

/// The command of the verb and its arguments.
pub(crate) fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    Ok(sh::cmd(
        std::env::current_exe().context("find this program")?,
        args,
    ))
}
