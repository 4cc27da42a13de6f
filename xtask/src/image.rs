//! `cargo xtask image`: builds a container image with the shipped binaries for each architecture.
//! The manifests in deploy/ install braid on nodes from this image.

mod content;
mod inspect;

use crate::{build, dist};
use anyhow::{Context, Result};
use braid_testbed::Arch;
use braid_testbed::oci::archive::Archive;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Path of the archive; target/braid-<version>.oci.tar by default
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Architectures of the image
    #[arg(long, value_delimiter = ',', default_values_t = Arch::ALL)]
    arch: Vec<Arch>,
    /// Keep the compiler's order of functions: a shorter build, without a trace of calls
    #[arg(long)]
    unordered: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let default =
        || build::target_dir().join(concat!("braid-", env!("CARGO_PKG_VERSION"), ".oci.tar"));
    let out = args.output.clone().unwrap_or_else(default);
    // A missing emulator is reported before the builds, which take minutes.
    let emulators = inspect::emulators(&args.arch)?;
    let mut binaries = Vec::new();
    for arch in &args.arch {
        let braid = build(*arch, args.unordered)
            .with_context(|| format!("build the binaries for {arch}"))?;
        binaries.push((*arch, braid));
    }
    content::write(&binaries, &out)?;
    let archive = Archive::open(&out)?;
    for variant in inspect::variants(&archive, &args.arch)? {
        let kib = variant.size_bytes / 1024;
        println!(
            "{}  {}  {}  {kib} KiB",
            out.display(),
            content::NAME,
            variant.platform
        );
    }
    emulators
        .iter()
        .try_for_each(|emulator| inspect::answers(&archive, emulator))
}

/// Builds the binaries for `arch` and returns the path of braid.
fn build(arch: Arch, is_unordered: bool) -> Result<PathBuf> {
    if arch != Arch::native()? {
        dist::foreign(arch)
    } else if is_unordered {
        dist::unordered()
    } else {
        dist::braid()
    }
}
