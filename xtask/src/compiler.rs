//! Compilers that can build the standard library for another target: rustup's nightly, or Debian's.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::path::Path;
use std::process::Command;

/// Environment variables that are not passed to the build. The caller's flags would override
/// .cargo/config.toml, and the caller's library path would replace the compiler's libraries.
const CALLERS_OWN: [&str; 5] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "RUSTUP_TOOLCHAIN",
    "LD_LIBRARY_PATH",
];

/// A cargo and a rustc that are new enough and have the source of the standard library.
pub(crate) struct Compiler {
    pub(crate) cargo: String,
    pub(crate) rustc: String,
}

impl Compiler {
    /// Returns rustup's nightly compiler; `None` if it is missing, too old or without the library
    /// source.
    pub(crate) fn nightly() -> Option<Self> {
        let which = |program| {
            let path = sh::read(&mut sh::cmd(
                "rustup",
                ["which", "--toolchain", "nightly", program],
            ))
            .ok()?;
            Some(path.trim().to_owned())
        };
        Self {
            cargo: which("cargo")?,
            rustc: which("rustc")?,
        }
        .if_usable()
    }

    /// Returns the compiler of Debian's package `rustc-web`; `None` if it is missing, too old or
    /// without the library source.
    pub(crate) fn debian() -> Option<Self> {
        Self {
            cargo: "/usr/bin/cargo".into(),
            rustc: "/usr/bin/rustc".into(),
        }
        .if_usable()
    }

    /// Installs Debian's compiler; `None` if its release is too old.
    pub(crate) fn install() -> Result<Option<Self>> {
        sh::apt(&[
            ("/usr/bin/rustc", "rustc-web"),
            ("/usr/bin/cargo", "cargo-web"),
            (
                "/usr/lib/rustlib/src/rust/library/core/Cargo.toml",
                "rust-web-src",
            ),
        ])?;
        Ok(Self::debian())
    }

    /// Returns a cargo command with this compiler. `RUSTC_BOOTSTRAP` allows unstable features on a
    /// stable compiler.
    pub(crate) fn cargo(&self, verb: &str) -> Command {
        let mut build = sh::cmd(&self.cargo, [verb, "--quiet", "--locked"]);
        build.env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1");
        for name in CALLERS_OWN {
            build.env_remove(name);
        }
        build
    }

    fn if_usable(self) -> Option<Self> {
        let sysroot = sh::read(&mut sh::cmd(&self.rustc, ["--print", "sysroot"])).ok()?;
        let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
        let release = self.field("release").ok()?;
        (core.exists()
            && Path::new(&self.cargo).exists()
            && minor(&release) >= minor(env!("CARGO_PKG_RUST_VERSION")))
        .then_some(self)
    }

    /// Returns the major version of the compiler's LLVM, such as "22".
    pub(crate) fn llvm(&self) -> Result<String> {
        Ok(self
            .field("LLVM version")?
            .split('.')
            .next()
            .unwrap_or_default()
            .to_owned())
    }

    fn field(&self, name: &str) -> Result<String> {
        let version = sh::read(&mut sh::cmd(&self.rustc, ["-vV"]))?;
        let field = version
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(field
            .with_context(|| format!("{} -vV: no {name:?}", self.rustc))?
            .to_owned())
    }
}

/// Returns the minor version of a release, such as 95 for `1.95.0`; 0 if there is none.
fn minor(release: &str) -> u32 {
    release
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok())
        .unwrap_or(0)
}
