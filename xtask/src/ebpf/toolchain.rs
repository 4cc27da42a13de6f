//! Compiler for the target bpfel-unknown-none: rustup's nightly or Debian's compiler, with a
//! bpf-linker for the same LLVM version.

use crate::compiler::Compiler;
use anyhow::{Context, Result, bail};
use braid_testbed::sh;
use std::fs;
use std::path::{Path, PathBuf};

/// Version of bpf-linker that is installed. Each release supports the last three LLVM versions.
const LINKER_VERSION: &str = "0.13.0";

const HOW_TO_INSTALL: &str = "no compiler for eBPF: run `rustup toolchain install nightly --component rust-src` and \
    `cargo install bpf-linker`; as root on Debian this verb installs rustc-web and builds bpf-linker itself";

pub(super) struct Toolchain {
    compiler: Compiler,
    linker: PathBuf,
}

impl Toolchain {
    /// Returns the first toolchain with both compiler and linker: rustup's nightly, or Debian's. If
    /// neither is complete, installs Debian's.
    pub(super) fn find_or_install() -> Result<Self> {
        for compiler in [Compiler::nightly(), Compiler::debian()]
            .into_iter()
            .flatten()
        {
            if let Some(linker) = linker(&compiler.llvm()?) {
                return Ok(Self { compiler, linker });
            }
        }
        if !nix::unistd::Uid::effective().is_root() || !Path::new("/usr/bin/apt-get").exists() {
            bail!(HOW_TO_INSTALL);
        }
        let compiler = Compiler::install()?.context(HOW_TO_INSTALL)?;
        let linker = install_linker(&compiler.llvm()?)?;
        Ok(Self { compiler, linker })
    }

    /// Builds the eBPF programs, and returns the object with its debug information.
    pub(super) fn build(&self) -> Result<Vec<u8>> {
        let dir = sh::root().join("ebpf");
        let mut build = self.compiler.cargo("build");
        build
            .args(["--release", "--target-dir", "target"])
            .current_dir(&dir);
        build.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        sh::run(&mut build)?;
        let object = dir.join("target/bpfel-unknown-none/release/braid");
        fs::read(&object).with_context(|| format!("read {}", object.display()))
    }

    /// Returns the output of `rustc --version`.
    pub(super) fn version(&self) -> Result<String> {
        Ok(sh::read(&mut sh::cmd(&self.compiler.rustc, ["--version"]))?
            .trim()
            .to_owned())
    }
}

/// Returns the path of bpf-linker: the one in the cache for this LLVM version, else one in `PATH`
/// that the user installed.
fn linker(llvm: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(linker_dir(llvm).join("bin")).chain(std::env::split_paths(&path));
    folders
        .map(|folder| folder.join("bpf-linker"))
        .find(|program| program.is_file())
}

fn linker_dir(llvm: &str) -> PathBuf {
    sh::cache().join(format!("bpf-linker-llvm{llvm}"))
}

/// Builds bpf-linker with Debian's shared library of LLVM, and installs it in the cache.
fn install_linker(llvm: &str) -> Result<PathBuf> {
    let library = format!(
        "/usr/lib/{}-linux-gnu/libLLVM-{llvm}.so",
        std::env::consts::ARCH
    );
    sh::apt(&[
        (library.as_str(), &format!("libllvm{llvm}")),
        ("g++", "g++"),
    ])?;
    // The package has no libLLVM.so, which the build of the linker looks for.
    let dir = linker_dir(llvm);
    let link = dir.join("lib/libLLVM.so");
    fs::create_dir_all(dir.join("lib")).with_context(|| format!("create {}", dir.display()))?;
    if !link.exists() {
        std::os::unix::fs::symlink(&library, &link)
            .with_context(|| format!("link {}", link.display()))?;
    }
    eprintln!("building bpf-linker {LINKER_VERSION} with LLVM {llvm}");
    let mut install = sh::cmd(
        "cargo",
        [
            "install",
            "--quiet",
            "--locked",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
        ],
    );
    install
        .args([
            "--no-default-features",
            "--features",
            &format!("llvm-{llvm}"),
        ])
        .arg("--root")
        .arg(&dir);
    sh::run(install.env("RUSTFLAGS", format!("-L {}", dir.join("lib").display())))?;
    linker(llvm).context("bpf-linker is missing after its installation")
}
