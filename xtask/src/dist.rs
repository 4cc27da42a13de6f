//! `cargo xtask dist`: builds the shipped binaries, linked statically with musl: `braid`, and beside
//! it `braid-agent`.
//!
//! A plugin call takes two milliseconds, so start-up time counts. At its start glibc executes CPUID
//! forty times, which traps in a virtual machine each time. It also looks for libraries, which a
//! static binary does not use. Together this takes 0.3 ms.

use crate::build::{BRAID, COMPANION};
use crate::compiler::Compiler;
use crate::{build, order};
use anyhow::{Context, Result, anyhow, bail};
use braid_testbed::sh;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOW_TO_INSTALL: &str = "no standard library or no C compiler for musl: run `rustup target add \
    <architecture>-unknown-linux-musl` and install musl-tools; as root on Debian this verb installs rustc-web and musl-tools itself";
/// C compiler for the C code in ring.
const C_COMPILER: &str = "musl-gcc";

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
    let toolchain = Toolchain::find().map_or_else(Toolchain::install, Ok)?;
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
    Toolchain::find()
        .map_or_else(Toolchain::install, Ok)?
        .both()
}

/// Builds braid for a demonstration: with musl, or with this machine's C library if there is no
/// compiler for musl.
pub(crate) fn braid_or_glibc() -> Result<PathBuf> {
    if let Some(toolchain) = Toolchain::find() {
        return toolchain.both();
    }
    eprintln!(
        "building for this machine's C library, because there is no compiler for musl: a call starts 0.3 ms later"
    );
    build::package(COMPANION, COMPANION)?;
    build::package(BRAID, BRAID)
}

/// A compiler for musl.
enum Toolchain {
    /// The default compiler, with a standard library for musl that rustup added.
    InUse,
    /// Debian's compiler, which has to build the standard library as well.
    FromSource(Compiler),
}

impl Toolchain {
    fn find() -> Option<Self> {
        if !Path::new("/usr/bin").join(C_COMPILER).is_file() {
            return None;
        }
        let libraries = sh::read(&mut sh::cmd(
            "rustc",
            ["--print", "target-libdir", "--target", &target()],
        ))
        .ok()?;
        if Path::new(libraries.trim()).is_dir() {
            return Some(Self::InUse);
        }
        Compiler::debian().map(Self::FromSource)
    }

    fn install() -> Result<Self> {
        if !nix::unistd::Uid::effective().is_root() || !Path::new("/usr/bin/apt-get").exists() {
            bail!(HOW_TO_INSTALL);
        }
        sh::apt(&[(C_COMPILER, "musl-tools")])?;
        Ok(Self::FromSource(
            Compiler::install()?.context(HOW_TO_INSTALL)?,
        ))
    }

    /// Builds both programs and returns the path of braid.
    fn both(&self) -> Result<PathBuf> {
        self.build(COMPANION, &[])?;
        self.build(BRAID, &[])
    }

    /// Builds `program` and returns its path; `options` are code generation options for the crate
    /// of the program only.
    fn build(&self, program: &str, options: &[&str]) -> Result<PathBuf> {
        let mut build = match self {
            Self::InUse => sh::cmd("cargo", ["rustc", "--release", "--quiet", "--locked"]),
            Self::FromSource(compiler) => from_source(compiler)?,
        };
        build.env(format!("CC_{}", target().replace('-', "_")), C_COMPILER);
        build.args([
            "--package",
            program,
            "--bin",
            program,
            "--target",
            &target(),
            "--",
        ]);
        sh::run(build.args(options.iter().flat_map(|option| ["-C", option])))?;
        Ok(build::target_dir()
            .join(target())
            .join("release")
            .join(program))
    }
}

/// Returns a cargo command that also builds the standard library, because Debian has no package of
/// it for musl.
fn from_source(compiler: &Compiler) -> Result<Command> {
    let mut build = compiler.cargo("rustc");
    // A panic aborts without a backtrace, so nothing unwinds. The linker still gets the library's
    // name, so it needs a file.
    build.args(["-Zbuild-std=std,panic_abort", "-Zbuild-std-features="]);
    let libraries = build::target_dir().join("no-unwinder");
    let empty = libraries.join("libunwind.a");
    fs::create_dir_all(&libraries).with_context(|| format!("create {}", libraries.display()))?;
    fs::write(&empty, "!<arch>\n").with_context(|| format!("write {}", empty.display()))?;
    let of_target = format!("CARGO_TARGET_{}", target().to_uppercase().replace('-', "_"));
    build.env(format!("{of_target}_LINKER"), C_COMPILER);
    build.env(
        format!("{of_target}_RUSTFLAGS"),
        format!("-C link-self-contained=no -L {}", libraries.display()),
    );
    Ok(build)
}

fn target() -> String {
    format!("{ARCH}-unknown-linux-musl")
}
