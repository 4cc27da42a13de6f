//! The foreign programs that braid is tested with: installed once, kept beside the other downloads.

use crate::sh;
use anyhow::{Context, Result};
use std::path::PathBuf;

const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.1";

/// libcni's own command line, built by `go` if it is not there yet; returns its path. Without `go` an error says what
/// to install.
pub(crate) fn cnitool() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("cnitool");
    if !program.is_file() {
        eprintln!("building {CNITOOL}");
        let mut go = sh::cmd("go", ["install", "-trimpath", CNITOOL]);
        sh::run(go.env("GOBIN", &dir).env("CGO_ENABLED", "0"))
            .context("cnitool is built by go 1.21 or newer: install it from go.dev/dl or the package golang")?;
    }
    Ok(program)
}

/// podman with what it starts: the monitor and runtime of a container, the one program of an image, and the reference
/// firewall plugin's iptables. Debian's package enables its units, as any service's does.
pub(crate) fn podman() -> Result<()> {
    sh::apt(&[
        ("podman", "podman"),
        ("conmon", "conmon"),
        ("runc", "runc"),
        ("busybox", "busybox-static"),
        ("iptables", "iptables"),
    ])
}
