//! `cargo xtask dist`: builds the shipped binaries, linked statically with musl: `braid`, and beside
//! it `braid-agent`.
//!
//! A plugin call takes two milliseconds, so start-up time counts. At its start glibc executes CPUID
//! forty times, which traps in a virtual machine each time. It also looks for libraries, which a
//! static binary does not use. Together this takes 0.3 ms.

use crate::build::{BRAID, COMPANION};
use crate::musl::Toolchain;
use crate::{build, order};
use anyhow::{Context, Result, anyhow};
use braid_testbed::Arch;
use std::fs;
use std::path::PathBuf;

pub(crate) fn run() -> Result<()> {
    let braid = braid()?;
    for program in [&braid, &braid.with_file_name(COMPANION)] {
        let size = fs::metadata(program)
            .with_context(|| format!("look at {}", program.display()))?
            .len();
        println!("{}  {} KiB", program.display(), size / 1024);
    }
    Ok(())
}

/// Builds braid with the functions of plugin calls side by side in the binary. Installs a missing
/// compiler if possible.
pub(crate) fn braid() -> Result<PathBuf> {
    let toolchain = Toolchain::find_or_install(Arch::native()?)?;
    toolchain.build(COMPANION, &[])?;
    // Builds the same code twice, except for the dependencies: first with symbols for the trace,
    // then with the list from the trace.
    let list = if nix::unistd::Uid::effective().is_root() {
        toolchain
            .build(BRAID, &["strip=none"])
            .and_then(|braid| order::list(&braid))
    } else {
        Err(anyhow!("tracing calls needs root"))
    };
    match list {
        Ok(list) => toolchain.build(BRAID, &[&format!("link-arg=-Wl,-T,{}", list.display())]),
        Err(err) => {
            eprintln!(
                "the functions of calls are not placed side by side, so an ADD takes a tenth longer: {err:#}"
            );
            toolchain.build(BRAID, &[])
        }
    }
}

/// Builds braid for tests, with functions in the compiler's order. Tests must use the same C
/// library as the shipped binary, so there is no fallback to glibc.
pub(crate) fn unordered() -> Result<PathBuf> {
    both(&Toolchain::find_or_install(Arch::native()?)?)
}

/// Builds braid for another architecture, with functions in the compiler's order: calls of it
/// cannot be traced on this machine.
pub(crate) fn foreign(arch: Arch) -> Result<PathBuf> {
    both(&Toolchain::find_or_install(arch)?)
}

/// Builds braid for a demonstration: with musl, or with this machine's C library if there is no
/// compiler for musl.
pub(crate) fn braid_or_glibc() -> Result<PathBuf> {
    if let Some(toolchain) = Toolchain::find() {
        return both(&toolchain);
    }
    eprintln!(
        "building for this machine's C library, because there is no compiler for musl: a call starts 0.3 ms later"
    );
    build::package(COMPANION, COMPANION)?;
    build::package(BRAID, BRAID)
}

/// Builds both programs and returns the path of braid.
fn both(toolchain: &Toolchain) -> Result<PathBuf> {
    toolchain.build(COMPANION, &[])?;
    toolchain.build(BRAID, &[])
}
