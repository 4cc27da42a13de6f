//! Foreign programs for comparisons and tests: installed once, kept beside the other downloads.

use crate::cluster::binaries;
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.1";
/// Release of the reference plugins for comparison.
const REFERENCE: &str = "v1.9.1";
/// Plugins of other releases: some have newer keys, and one is the last release that contains
/// flannel's plugin.
const OTHER_RELEASES: [&str; 3] = [
    "meta/sbr@v1.10.0",
    "meta/vrf@v1.10.0",
    "meta/flannel@v0.9.1",
];
/// Release of Multus for comparison.
const MULTUS: &str = "v4.3.0";
const MULTUS_MODULE: &str = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4";
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
    "ipam/dhcp",
    "ipam/host-local",
    "ipam/static",
    "meta/bandwidth",
    "meta/firewall",
    "meta/portmap",
    "meta/tuning",
];

/// Returns the folder of the reference plugins.
pub(crate) fn reference() -> Result<PathBuf> {
    let dir = sh::cache().join("reference");
    let is_there = |plugin: &str| {
        let name = plugin.rsplit('/').next().unwrap_or(plugin);
        dir.join(name.split('@').next().unwrap_or(name)).is_file()
    };
    let package = |plugin: &str| format!("github.com/containernetworking/plugins/plugins/{plugin}");
    if !REFERENCE_PLUGINS.iter().all(|plugin| is_there(plugin)) {
        go_install(
            &dir,
            &REFERENCE_PLUGINS.map(|plugin| format!("{}@{REFERENCE}", package(plugin))),
        )?;
    }
    let mut others = OTHER_RELEASES.iter().filter(|plugin| !is_there(plugin));
    others.try_for_each(|plugin| go_install(&dir, &[package(plugin)]))?;
    Ok(dir)
}

/// Returns the path of libcni's command line.
pub(crate) fn cnitool() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("cnitool");
    if !program.is_file() {
        go_install(&dir, &[CNITOOL.to_owned()])?;
    }
    Ok(program)
}

/// Returns the folder of Multus: the plugin that queries the API server itself, and the daemon with
/// its client plugin.
pub(crate) fn multus() -> Result<PathBuf> {
    const MODULE: &str = MULTUS_MODULE;
    const COMMANDS: [&str; 4] = ["multus", "multus-shim", "multus-daemon", "thin_entrypoint"];
    let dir = sh::cache().join("multus");
    if COMMANDS.iter().any(|command| !dir.join(command).is_file()) {
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        binaries::go_build(
            &dir,
            &format!("require {MODULE} {MULTUS}\n"),
            MODULE,
            &COMMANDS,
            "",
            "",
        )
        .context("build Multus")?;
    }
    Ok(dir)
}

/// Returns Multus' module with its version, in the form of `go`'s arguments.
pub(crate) fn multus_module() -> String {
    format!("{MULTUS_MODULE}@{MULTUS}")
}

/// Builds programs into `dir`. If `go` is missing, the error tells what to install.
fn go_install(dir: &Path, packages: &[String]) -> Result<()> {
    eprintln!("building {}", packages.join(" "));
    let mut go = sh::cmd("go", ["install", "-trimpath"]);
    sh::run(go.args(packages).env("GOBIN", dir).env("CGO_ENABLED", "0")).context(
        "the build needs go 1.21 or newer: install it from go.dev/dl or the package golang",
    )
}

/// Installs podman with the programs that it starts, the only program of an image, and the
/// reference firewall plugin's iptables. Debian's package enables its units like every service.
pub(crate) fn podman() -> Result<()> {
    sh::apt(&[
        ("podman", "podman"),
        ("conmon", "conmon"),
        ("runc", "runc"),
        ("busybox", "busybox-static"),
        ("iptables", "iptables"),
    ])
}
