//! qemu-user, which runs programs of another architecture on this machine's kernel.

use anyhow::{Context, Result};
use braid_testbed::{Arch, sh};
use std::path::PathBuf;

/// Returns the path of the emulator for programs of `arch`, and installs it if it is missing.
pub(crate) fn install(arch: Arch) -> Result<PathBuf> {
    let program = format!("qemu-{}-static", arch.rust());
    sh::apt(&[(&program, "qemu-user-static")])
        .with_context(|| format!("programs for {arch} need {program} of qemu-user-static"))?;
    Ok(program.into())
}
