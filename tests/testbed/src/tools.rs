//! Programs of other projects, for tests and comparisons with braid. They are built once and kept
//! in the cache.

use crate::{binaries, sh};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.1";
/// Release of the reference plugins that braid is compared with.
const REFERENCE: &str = "v1.9.1";
/// Reference plugins of other releases: newer plugins with keys that v1.9.1 lacks, and the last
/// release that contains flannel's plugin.
const OTHER_RELEASES: [&str; 3] = [
    "meta/sbr@v1.10.0",
    "meta/vrf@v1.10.0",
    "meta/flannel@v0.9.1",
];
/// Release of Multus that braid is compared with.
const MULTUS: &str = "v4.3.0";
const MULTUS_MODULE: &str = "gopkg.in/k8snetworkplumbingwg/multus-cni.v4";
/// Release of helm, which renders and installs the chart.
const HELM: &str = "v4.3.1";
const HELM_MODULE: &str = "helm.sh/helm/v4";
/// Release of flannel that braid is compared with.
const FLANNEL: &str = "v0.28.10";
const FLANNEL_MODULE: &str = "github.com/flannel-io/flannel";
/// Name of the program that flannel's pods install a conflist with.
pub(crate) const INSTALLER: &str = "install-conf";
/// Backends without which flanneld is built: the first needs the SDK of a cloud, the second needs
/// cgo.
const LEFT_OUT: [&str; 2] = ["tencentvpc", "udp"];
/// Release of Whereabouts that braid is compared with.
const WHEREABOUTS: &str = "v0.9.2";
const WHEREABOUTS_MODULE: &str = "github.com/k8snetworkplumbingwg/whereabouts";
const PROMETHEUS: &str = "v0.316.0";
const PROMETHEUS_MODULE: &str = "github.com/prometheus/prometheus";
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

/// Returns the folder of the reference plugins. Builds each plugin that is missing.
pub fn reference() -> Result<PathBuf> {
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
    for plugin in OTHER_RELEASES {
        if !is_there(plugin) {
            go_install(&dir, &[package(plugin)])?;
        }
    }
    Ok(dir)
}

/// Returns the path of cnitool, libcni's command-line program. Builds cnitool if it is missing.
pub fn cnitool() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("cnitool");
    if !program.is_file() {
        go_install(&dir, &[CNITOOL.to_owned()])?;
    }
    Ok(program)
}

/// Returns the folder of Multus' programs, and builds them if one is missing. The programs are the
/// thin plugin, the daemon with its shim, and the entry point. The thin plugin queries the API
/// server itself.
pub fn multus() -> Result<PathBuf> {
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

/// Returns the path of helm. Builds helm if it is missing.
pub fn helm() -> Result<PathBuf> {
    let program = present_helm();
    if !program.is_file() {
        let dir = sh::cache().join("tools");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        binaries::go_build(
            &dir,
            &format!("require {HELM_MODULE} {HELM}\n"),
            HELM_MODULE,
            &["helm"],
            "",
            "",
        )
        .context("build helm")?;
    }
    Ok(program)
}

/// Path at which [`helm`] builds helm.
pub(crate) fn present_helm() -> PathBuf {
    sh::cache().join("tools/helm")
}

/// Returns the path of flanneld, and builds it if it is missing, with [`INSTALLER`] beside it. It
/// lacks the backends [`LEFT_OUT`].
pub fn flanneld() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("flanneld");
    if !program.is_file() || !dir.join(INSTALLER).is_file() {
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        build_flannel(&program).context("build flanneld")?;
    }
    Ok(program)
}

/// Returns the folder of flannel's module, which is read-only.
pub(crate) fn flannel_module() -> Result<PathBuf> {
    binaries::module_dir(FLANNEL_MODULE, FLANNEL)
}

/// Returns the path of promtool, which checks metrics and alert rules. Builds promtool if it is
/// missing.
pub fn promtool() -> Result<PathBuf> {
    let program = promtool_path();
    if !program.is_file() {
        build_promtool(&program).context("build promtool")?;
    }
    Ok(program)
}

/// Returns the path at which [`promtool`] keeps the program.
pub fn promtool_path() -> PathBuf {
    sh::cache().join("tools/promtool")
}

/// Builds promtool without service discovery, which needs the SDKs of all clouds. `go install` refuses
/// the module, because its go.mod excludes versions.
fn build_promtool(program: &Path) -> Result<()> {
    eprintln!("building promtool");
    let dir = sh::cache().join("build/promtool");
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let go_mod = format!("module build\n\ngo 1.26.0\n\nrequire {PROMETHEUS_MODULE} {PROMETHEUS}\n");
    fs::write(dir.join("go.mod"), go_mod).context("write go.mod")?;
    let flags = ["build", "-mod=mod", "-trimpath", "-ldflags=-s -w"];
    let mut go = sh::cmd("go", flags);
    go.args(["-tags=remove_all_sd", "-o"]).arg(program);
    go.arg(format!("{PROMETHEUS_MODULE}/cmd/promtool"));
    sh::fetch(go.current_dir(&dir).env("CGO_ENABLED", "0"))
}

/// Builds flanneld and [`INSTALLER`] from a copy of their module.
fn build_flannel(program: &Path) -> Result<()> {
    eprintln!("building flanneld");
    let module = flannel_module()?;
    let copy = copied(&module, "flannel", &["pkg", "cmd"])?;
    let main = module.join("main.go");
    let text = fs::read_to_string(&main).with_context(|| format!("read {}", main.display()))?;
    fs::write(copy.join("main.go"), without_backends(&text)).context("write main.go")?;
    let stamp = format!("-s -w -X {FLANNEL_MODULE}/pkg/version.Version={FLANNEL}");
    build_copied(&copy, ".", program, &stamp)?;
    let installer = program.with_file_name(INSTALLER);
    build_copied(&copy, "./cmd/install_conf", &installer, &stamp)
}

/// Returns the path of Whereabouts' IPAM plugin. Builds the plugin if it is missing.
pub fn whereabouts() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("whereabouts");
    if !program.is_file() {
        eprintln!("building Whereabouts");
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let module = binaries::module_dir(WHEREABOUTS_MODULE, WHEREABOUTS)?;
        let copy = copied(&module, "whereabouts", &["pkg", "cmd"])?;
        let stamp = format!("-s -w -X {WHEREABOUTS_MODULE}/pkg/version.Version={WHEREABOUTS}");
        // The plugin's package is `cmd` itself, so its program would be named `cmd`.
        build_copied(&copy, "./cmd", &program, &stamp).context("build Whereabouts")?;
    }
    Ok(program)
}

/// Returns the path of a small driver of resource claims, made of Kubernetes' Go library for drivers.
/// Its source is in this checkout, so each call brings the program up to date.
pub fn dra_peer() -> Result<PathBuf> {
    let dir = sh::cache().join("tools");
    let program = dir.join("dra-peer");
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    // A checkout of another owner has no version for Go.
    let mut go = sh::cmd("go", ["build", "-buildvcs=false", "-trimpath"]);
    go.args(["-ldflags=-s -w", "-o"]).arg(&program).arg(".");
    go.current_dir(sh::root().join("tests/testbed/go/dra-peer"));
    sh::fetch(go.env("CGO_ENABLED", "0")).context("build dra-peer")?;
    Ok(program)
}

/// Copies these parts of a module, which is read-only, into the cache. `go.mod` and `go.sum` come
/// along, so a build has the versions and checksums that the module requires.
fn copied(module: &Path, name: &str, parts: &[&str]) -> Result<PathBuf> {
    let copy = sh::cache().join("build").join(name);
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("remove {}", copy.display()))?;
    }
    fs::create_dir_all(&copy).with_context(|| format!("create {}", copy.display()))?;
    let mut copying = sh::cmd("cp", ["--recursive", "--no-preserve=mode"]);
    copying.args(["go.mod", "go.sum"].map(|part| module.join(part)));
    copying.args(parts.iter().map(|part| module.join(part)));
    sh::run(copying.arg(&copy))?;
    Ok(copy)
}

/// Builds a package of a module that [`copied`] has copied. `stamp` holds flags of the linker.
fn build_copied(copy: &Path, package: &str, program: &Path, stamp: &str) -> Result<()> {
    let mut go = sh::cmd("go", ["build", "-trimpath", "-ldflags", stamp, "-o"]);
    go.arg(program).arg(package);
    sh::fetch(go.current_dir(copy).env("CGO_ENABLED", "0"))
}

/// Returns the text of flanneld's main.go without the imports that register [`LEFT_OUT`].
fn without_backends(text: &str) -> String {
    let is_left_out = |line: &str| {
        LEFT_OUT
            .iter()
            .any(|backend| line.ends_with(&format!("/pkg/backend/{backend}\"")))
    };
    let mut kept = String::new();
    for line in text.lines() {
        if !is_left_out(line) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Returns the Go module of Multus with its version, in the syntax of `go` commands.
pub(crate) fn multus_module() -> String {
    format!("{MULTUS_MODULE}@{MULTUS}")
}

/// Builds programs into `dir`. If `go` is missing, the error names the package to install.
fn go_install(dir: &Path, packages: &[String]) -> Result<()> {
    eprintln!("building {}", packages.join(" "));
    let mut go = sh::cmd("go", ["install", "-trimpath"]);
    sh::fetch(go.args(packages).env("GOBIN", dir).env("CGO_ENABLED", "0"))
        .context("needs go 1.21 or newer: install it from go.dev/dl or the package golang")
}

/// Installs podman, the programs that podman starts, busybox for an image, and iptables for the
/// reference firewall plugin. As a side effect, the Debian package enables podman's systemd units.
pub fn podman() -> Result<()> {
    sh::apt(&[
        ("podman", "podman"),
        ("conmon", "conmon"),
        ("runc", "runc"),
        ("busybox", "busybox-static"),
        ("iptables", "iptables"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_backends_that_are_left_out_are_removed_and_no_others() {
        let text = "import (\n\t_ \"github.com/flannel-io/flannel/pkg/backend/hostgw\"\n\
                    \t_ \"github.com/flannel-io/flannel/pkg/backend/tencentvpc\"\n\
                    \t_ \"github.com/flannel-io/flannel/pkg/backend/udp\"\n)\n";
        let expected = "import (\n\t_ \"github.com/flannel-io/flannel/pkg/backend/hostgw\"\n)\n";
        assert_eq!(without_backends(text), expected);
    }
}
