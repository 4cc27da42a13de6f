//! Release builds that the other verbs run.

use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The names under which braid takes the reference plugins' place.
const NAMES: [&str; 11] = [
    "bridge",
    "ptp",
    "macvlan",
    "ipvlan",
    "loopback",
    "host-local",
    "static",
    "bandwidth",
    "firewall",
    "portmap",
    "tuning",
];

/// Builds `package` for release and returns the path of its binary `name`.
pub(crate) fn package(package: &str, name: &str) -> Result<PathBuf> {
    sh::run(&mut sh::cmd("cargo", ["build", "--release", "--quiet", "--package", package]))?;
    let host = sh::read(&mut sh::cmd("rustc", ["--print", "host-tuple"]))?;
    Ok(target_dir().join(host.trim()).join("release").join(name))
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::root().join("target"), PathBuf::from)
}

/// A folder of links to `braid` under the plugins' names, as `braid install` makes them.
pub(crate) fn linked(braid: &Path) -> Result<PathBuf> {
    let folder = sh::root().join("target/plugins");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for name in ["braid"].iter().chain(&NAMES) {
        symlink(braid, folder.join(name)).with_context(|| format!("link {name} in {}", folder.display()))?;
    }
    Ok(folder)
}
