//! The release build that the other verbs run.

use crate::sh;
use std::path::PathBuf;

/// Builds `braid` for release and returns the binary's path.
pub(crate) fn braid() -> anyhow::Result<PathBuf> {
    package("braid", "braid")
}

/// Builds `package` for release and returns the path of its binary `name`.
pub(crate) fn package(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    sh::run(&mut sh::cmd("cargo", ["build", "--release", "--quiet", "--package", package]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::root().join("target"), PathBuf::from);
    let host = sh::read(&mut sh::cmd("rustc", ["--print", "host-tuple"]))?;
    Ok(target.join(host.trim()).join("release").join(name))
}
