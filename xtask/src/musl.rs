//! Compiler for static binaries with musl, for this machine's architecture or another one.
//!
//! | target | C compiler and linker | standard library |
//! |---|---|---|
//! | this architecture | Debian's musl-gcc | of rustup, or built with Debian's compiler |
//! | another architecture | zig | the same |

use crate::compiler::Compiler;
use crate::{build, zig};
use anyhow::{Context, Result, bail};
use braid_testbed::{Arch, sh};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOW_TO_INSTALL: &str = "no standard library or no C compiler for musl: run `rustup target add \
    <architecture>-unknown-linux-musl` and install musl-tools; as root on Debian this verb installs rustc-web and musl-tools itself";
/// C compiler for the C code in ring, and linker, for this machine's architecture.
const MUSL_GCC: &str = "/usr/bin/musl-gcc";
/// Flags for zig as the linker. They replace those of .cargo/config.toml, because zig refuses
/// `-z noseparate-code`.
const ZIG_FLAGS: &str =
    "-C relocation-model=static -C symbol-mangling-version=v0 -C link-self-contained=no";

/// A compiler for musl.
pub(crate) struct Toolchain {
    arch: Arch,
    /// Compiler that builds the standard library as well. `None` is the default compiler, with a
    /// library that rustup added.
    from_source: Option<Compiler>,
    cc: PathBuf,
}

/// Strategy of a panic.
#[derive(Clone, Copy)]
enum Panic {
    /// Shipped programs end without a backtrace.
    Abort,
    /// The test harness catches the panic of a test.
    Unwind,
}

impl Panic {
    /// Returns cargo's options for the parts of the standard library. Debian has no package of it
    /// for musl.
    fn library(self) -> &'static [&'static str] {
        match self {
            Self::Abort => &["-Zbuild-std=std,panic_abort", "-Zbuild-std-features="],
            Self::Unwind => &["-Zbuild-std=std,panic_unwind,test", "-Zbuild-std-features="],
        }
    }
}

impl Toolchain {
    /// Returns the compiler for this machine's architecture; `None` if a part of it is missing.
    pub(crate) fn find() -> Option<Self> {
        let arch = Arch::native().ok()?;
        if !Path::new(MUSL_GCC).is_file() {
            return None;
        }
        let from_source = if has_library(arch) {
            None
        } else {
            Some(Compiler::debian()?)
        };
        Some(Self {
            arch,
            from_source,
            cc: MUSL_GCC.into(),
        })
    }

    /// Returns the compiler for `arch`. Installs missing parts if possible.
    pub(crate) fn find_or_install(arch: Arch) -> Result<Self> {
        let is_native = arch == Arch::native()?;
        if is_native && let Some(found) = Self::find() {
            return Ok(found);
        }
        let from_source = if has_library(arch) {
            None
        } else {
            Some(Compiler::debian().map_or_else(install, Ok)?)
        };
        let cc = if is_native {
            ensure_can_install()?;
            sh::apt(&[(MUSL_GCC, "musl-tools")])?;
            MUSL_GCC.into()
        } else {
            zig::c_compiler(arch)?
        };
        Ok(Self {
            arch,
            from_source,
            cc,
        })
    }

    /// Builds `program` and returns its path; `options` are code generation options for the crate
    /// of the program only.
    pub(crate) fn build(&self, program: &str, options: &[&str]) -> Result<PathBuf> {
        let mut build = self.cargo("rustc", Panic::Abort)?;
        build.args(["--release", "--package", program, "--bin", program, "--"]);
        sh::run(build.args(options.iter().flat_map(|option| ["-C", option])))?;
        Ok(self
            .target_dir()?
            .join(self.target())
            .join("release")
            .join(program))
    }

    /// Returns a cargo command that builds tests and runs them in `runner`.
    pub(crate) fn tests(&self, runner: &Path) -> Result<Command> {
        let mut test = self.cargo("test", Panic::Unwind)?;
        test.env(self.variable("RUNNER"), runner);
        Ok(test)
    }

    /// Returns a cargo command for the target.
    fn cargo(&self, verb: &str, panic: Panic) -> Result<Command> {
        let target = self.target();
        let mut cargo = match &self.from_source {
            None => sh::cmd("cargo", [verb, "--quiet", "--locked"]),
            Some(compiler) => {
                let mut cargo = compiler.cargo(verb);
                cargo.args(panic.library());
                cargo
            }
        };
        cargo.arg("--target-dir").arg(self.target_dir()?);
        if self.is_foreign()? {
            cargo.env(self.variable("LINKER"), &self.cc);
            cargo.env("RUSTFLAGS", ZIG_FLAGS);
        } else if self.from_source.is_some() {
            cargo.env(self.variable("LINKER"), &self.cc);
            let flags = format!("-C link-self-contained=no -L {}", no_unwinder()?.display());
            cargo.env(self.variable("RUSTFLAGS"), flags);
        }
        cargo.env(format!("CC_{}", target.replace('-', "_")), &self.cc);
        cargo.args(["--target", &target]);
        Ok(cargo)
    }

    /// Returns the target folder. Another architecture has one of its own: cargo locks the folder
    /// during a build, and builds for this machine would wait.
    fn target_dir(&self) -> Result<PathBuf> {
        let folder = build::target_dir();
        if self.is_foreign()? {
            return Ok(folder.join("foreign"));
        }
        Ok(folder)
    }

    fn is_foreign(&self) -> Result<bool> {
        Ok(self.arch != Arch::native()?)
    }

    /// Returns cargo's environment variable for a setting of the target.
    fn variable(&self, setting: &str) -> String {
        let target = self.target().to_uppercase().replace('-', "_");
        format!("CARGO_TARGET_{target}_{setting}")
    }

    fn target(&self) -> String {
        target(self.arch)
    }
}

/// Creates a folder with an empty unwinder and returns its path. In programs that abort, nothing
/// unwinds, but the linker still gets the library's name, so it needs a file.
fn no_unwinder() -> Result<PathBuf> {
    let folder = build::target_dir().join("no-unwinder");
    let empty = folder.join("libunwind.a");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    fs::write(&empty, "!<arch>\n").with_context(|| format!("write {}", empty.display()))?;
    Ok(folder)
}

fn target(arch: Arch) -> String {
    format!("{}-unknown-linux-musl", arch.rust())
}

/// Returns true if rustup has added the standard library for musl to the default compiler.
fn has_library(arch: Arch) -> bool {
    let target = target(arch);
    let libdir = ["--print", "target-libdir", "--target", &target];
    sh::read(&mut sh::cmd("rustc", libdir)).is_ok_and(|dir| Path::new(dir.trim()).is_dir())
}

fn install() -> Result<Compiler> {
    ensure_can_install()?;
    Compiler::install()?.context(HOW_TO_INSTALL)
}

fn ensure_can_install() -> Result<()> {
    if !nix::unistd::Uid::effective().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!(HOW_TO_INSTALL);
    }
    Ok(())
}
