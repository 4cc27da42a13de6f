//! Kubernetes and containerd, built from their Go modules and kept in the cache.

use crate::sh;
use crate::state::bin;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const KUBERNETES: &str = "1.36.3";
const KUBERNETES_COMMANDS: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "kube-proxy",
];
/// Version of containerd. It calls the CNI verb STATUS; Debian's version 1.6 does not.
const CONTAINERD: &str = "2.3.3";
const CONTAINERD_COMMANDS: &[&str] = &["containerd", "containerd-shim-runc-v2", "ctr"];

/// Builds each program that is missing or has another version, and installs the Debian packages.
pub fn build() -> Result<()> {
    sh::apt(&[
        ("etcd", "etcd-server"),
        ("runc", "runc"),
        ("busybox", "busybox-static"),
        ("openssl", "openssl"),
        ("ip", "iproute2"),
        ("nft", "nftables"),
        ("/usr/bin/python3", "python3"),
        ("sysctl", "procps"),
    ])?;
    fs::create_dir_all(bin())?;
    if !is_built("kubelet", KUBERNETES) {
        kubernetes().context("build Kubernetes")?;
    }
    if !is_built("containerd", CONTAINERD) {
        containerd().context("build containerd")?;
    }
    Ok(())
}

fn is_built(command: &str, version: &str) -> bool {
    sh::read(&mut sh::cmd(bin().join(command), ["--version"]))
        .is_ok_and(|text| text.contains(version))
}

fn kubernetes() -> Result<()> {
    const MODULE: &str = "k8s.io/kubernetes";
    let own = module_dir(MODULE, &format!("v{KUBERNETES}"))?.join("go.mod");
    let own = fs::read_to_string(&own).with_context(|| format!("read {}", own.display()))?;
    let minor = KUBERNETES.trim_start_matches("1.");
    let mut go_mod = format!("require {MODULE} v{KUBERNETES}\n");
    for staging in staging_modules(&own) {
        writeln!(go_mod, "replace {staging} => {staging} v0.{minor}")?;
    }
    let version = "k8s.io/component-base/version";
    let major_minor = minor.split('.').next().unwrap_or_default();
    let stamp = format!(
        "-X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor={major_minor}"
    );
    go_build(&bin(), &go_mod, MODULE, KUBERNETES_COMMANDS, &stamp, "")
}

/// Downloads a Go module and returns its folder, which is read-only.
pub(crate) fn module_dir(module: &str, version: &str) -> Result<PathBuf> {
    let module = format!("{module}@{version}");
    let download = || sh::read(&mut sh::cmd("go", ["mod", "download", "-json", &module]));
    // A proxy may fail once.
    let found = download().or_else(|_| download())?;
    let found: serde_json::Value =
        serde_json::from_str(&found).context("parse the output of `go mod download`")?;
    let dir = found["Dir"].as_str();
    Ok(dir
        .with_context(|| format!("{module} has no folder"))?
        .into())
}

fn containerd() -> Result<()> {
    const MODULE: &str = "github.com/containerd/containerd/v2";
    let stamp = format!("-X {MODULE}/version.Version={CONTAINERD}");
    go_build(
        &bin(),
        &format!("require {MODULE} v{CONTAINERD}\n"),
        MODULE,
        CONTAINERD_COMMANDS,
        &stamp,
        "no_btrfs,no_zfs",
    )
}

/// Returns the modules that Kubernetes' go.mod replaces by a folder of the Kubernetes repository.
/// Each of them is published with the same minor version as Kubernetes.
fn staging_modules(go_mod: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    for line in go_mod.lines() {
        let replacement = line.trim().trim_start_matches("replace ");
        if let Some((module, _)) = replacement.split_once(" => ./staging/") {
            modules.push(module);
        }
    }
    modules
}

/// Builds `commands` of `module` into `folder`, through a small Go module that requires `module`.
pub(crate) fn go_build(
    folder: &Path,
    go_mod: &str,
    module: &str,
    commands: &[&str],
    stamp: &str,
    tags: &str,
) -> Result<()> {
    eprintln!("building {}", commands.join(" "));
    let dir = sh::cache().join("build").join(module.replace('/', "_"));
    fs::create_dir_all(&dir)?;
    fs::write(
        dir.join("go.mod"),
        format!("module build\n\ngo 1.26.0\n\n{go_mod}"),
    )?;
    let packages: Vec<String> = commands
        .iter()
        .map(|command| format!("{module}/cmd/{command}"))
        .collect();
    let mut tools = String::from("//go:build tools\n\npackage build\n\n");
    for package in &packages {
        writeln!(tools, "import _ {package:?}")?;
    }
    fs::write(dir.join("tools.go"), tools)?;
    // `-e` because the commands are programs, which can be built but not imported.
    sh::read(sh::cmd("go", ["mod", "tidy", "-e"]).current_dir(&dir))?;
    let flags = [
        "-trimpath",
        "-tags",
        tags,
        "-ldflags",
        &format!("-s -w {stamp}"),
        "-o",
    ];
    sh::fetch(
        sh::cmd("go", ["build"])
            .args(flags)
            .arg(format!("{}/", folder.display()))
            .args(packages)
            .current_dir(&dir)
            .env("CGO_ENABLED", "0"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_found_in_a_replace_block_and_in_a_line() {
        let go_mod = "module k8s.io/kubernetes\nrequire k8s.io/api v0.0.0\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
                      )\nreplace k8s.io/kubelet => ./staging/src/k8s.io/kubelet\nreplace a => b\n";
        assert_eq!(staging_modules(go_mod), ["k8s.io/api", "k8s.io/kubelet"]);
    }
}
