//! Foreign programs that braid is compared and tested with: installed once, kept beside the other downloads.

use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.1";
/// The release of the reference plugins that braid is compared with.
const REFERENCE: &str = "v1.9.1";
const REFERENCE_PLUGINS: [&str; 16] = [
    "main/bridge",
    "main/dummy",
    "main/host-device",
    "main/ipvlan",
    "main/loopback",
    "main/macvlan",
    "main/ptp",
    "main/tap",
    "main/vlan",
    "ipam/host-local",
    "ipam/static",
    "meta/bandwidth",
    "meta/firewall",
    "meta/portmap",
    "meta/sbr",
    "meta/tuning",
];

/// The folder of the reference plugins.
pub(crate) fn reference() -> Result<PathBuf> {
    let dir = sh::cache().join("reference");
    let name = |plugin: &&str| plugin.rsplit('/').next().unwrap_or(plugin).to_owned();
    if !REFERENCE_PLUGINS.iter().all(|plugin| dir.join(name(plugin)).is_file()) {
        let package = |plugin| format!("github.com/containernetworking/plugins/plugins/{plugin}@{REFERENCE}");
        go_install(&dir, &REFERENCE_PLUGINS.map(package))?;
    }
    Ok(dir)
}

/// The path of libcni's own command line.
pub(crate) fn cnitool() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("cnitool");
    if !program.is_file() {
        go_install(&dir, &[CNITOOL.to_owned()])?;
    }
    Ok(program)
}

/// Builds programs into `dir`. Without `go` the error says what to install.
fn go_install(dir: &Path, packages: &[String]) -> Result<()> {
    eprintln!("building {}", packages.join(" "));
    let mut go = sh::cmd("go", ["install", "-trimpath"]);
    sh::run(go.args(packages).env("GOBIN", dir).env("CGO_ENABLED", "0"))
        .context("this is built by go 1.21 or newer: install it from go.dev/dl or the package golang")
}

/// Installs podman with the programs that it starts, the one program of an image, and the reference firewall plugin's
/// iptables. Debian's package enables its units, as any service's does.
pub(crate) fn podman() -> Result<()> {
    sh::apt(&[
        ("podman", "podman"),
        ("conmon", "conmon"),
        ("runc", "runc"),
        ("busybox", "busybox-static"),
        ("iptables", "iptables"),
    ])
}
