//! `cargo xtask dist`: the binary that is shipped, static on musl.
//!
//! A plugin call lives for two milliseconds, so its start counts. glibc's start asks the processor
//! forty questions, each of which traps in a virtual machine. It also looks for libraries, which a
//! static binary does not use. Together they take 0.3 ms.

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
/// ring has some C.
const C_COMPILER: &str = "musl-gcc";

pub(crate) fn run() -> Result<()> {
    let braid = braid()?;
    let size = fs::metadata(&braid)
        .with_context(|| format!("look at {}", braid.display()))?
        .len();
    println!("{}  {} KiB", braid.display(), size / 1024);
    Ok(())
}

/// Builds it with the functions that calls run side by side; installs what that takes, where it
/// can.
pub(crate) fn braid() -> Result<PathBuf> {
    let toolchain = Toolchain::find().map_or_else(Toolchain::install, Ok)?;
    // The same code twice, and only its last crate: first with names for the trace, then by the
    // list of that.
    let list = if nix::unistd::Uid::effective().is_root() {
        toolchain
            .build(&["strip=none"])
            .and_then(|braid| order::list(&braid))
    } else {
        Err(anyhow!("to trace calls takes root"))
    };
    match list {
        Ok(list) => toolchain.build(&[&format!("link-arg=-Wl,-T,{}", list.display())]),
        Err(err) => {
            eprintln!(
                "the functions that calls run do not lie side by side, an ADD takes a tenth longer: {err:#}"
            );
            toolchain.build(&[])
        }
    }
}

/// Builds it for tests, in the compiler's order: what is shipped is tested, so there is no other C
/// library to fall back to.
pub(crate) fn unordered() -> Result<PathBuf> {
    Toolchain::find()
        .map_or_else(Toolchain::install, Ok)?
        .build(&[])
}

/// Builds it to show it: for musl, or for this machine's C library if there is no compiler for
/// musl.
pub(crate) fn braid_or_glibc() -> Result<PathBuf> {
    if let Some(toolchain) = Toolchain::find() {
        return toolchain.build(&[]);
    }
    eprintln!(
        "for this machine's C library, as there is no compiler for musl: a call starts 0.3 ms later"
    );
    build::package("braid", "braid")
}

/// A compiler for musl.
enum Toolchain {
    /// The compiler in use, to which rustup has added the target.
    InUse,
    /// Debian's, which builds the standard library as well.
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

    /// Builds it with more options of code generation for its own crate.
    fn build(&self, options: &[&str]) -> Result<PathBuf> {
        let mut build = match self {
            Self::InUse => sh::cmd("cargo", ["rustc", "--release", "--quiet", "--locked"]),
            Self::FromSource(compiler) => from_source(compiler)?,
        };
        build.env(format!("CC_{}", target().replace('-', "_")), C_COMPILER);
        build.args([
            "--package",
            "braid",
            "--bin",
            "braid",
            "--target",
            &target(),
            "--",
        ]);
        sh::run(build.args(options.iter().flat_map(|option| ["-C", option])))?;
        Ok(build::target_dir().join(target()).join("release/braid"))
    }
}

/// A build with the standard library, for which Debian has no musl package.
fn from_source(compiler: &Compiler) -> Result<Command> {
    let mut build = compiler.cargo("rustc");
    // A panic aborts without a backtrace, so nothing unwinds, though the library is named to the
    // linker.
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
