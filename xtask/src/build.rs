//! Release builds for the other commands of `cargo xtask`.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::fs;
use std::path::{Path, PathBuf};

/// Package and program of the plugin.
pub(crate) const BRAID: &str = "braid";
/// Package and program of the agent, which is also the client of calls.
pub(crate) const COMPANION: &str = "braid-agent";

/// Builds `package` in release mode and returns the path of its binary `name`.
pub(crate) fn package(package: &str, name: &str) -> Result<PathBuf> {
    sh::run(&mut sh::cmd(
        "cargo",
        ["build", "--release", "--quiet", "--package", package],
    ))?;
    let host = sh::read(&mut sh::cmd("rustc", ["--print", "host-tuple"]))?;
    Ok(target_dir().join(host.trim()).join("release").join(name))
}

/// Returns cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::root().join("target"), PathBuf::from)
}

/// Creates a plugin folder in which `braid install` has put `braid` under all of its plugin names.
pub(crate) fn installed(braid: &Path) -> Result<PathBuf> {
    let folder = sh::root().join("target/plugins");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    sh::read(
        sh::cmd(braid, ["install", "--bin-dir"])
            .arg(&folder)
            .env_remove("CNI_COMMAND"),
    )?;
    Ok(folder)
}
