//! Zig as a C compiler and linker for musl on another architecture. It has the source of musl and
//! of the unwinder, and is a package of `PyPI` without dependencies.

use anyhow::{Context, Result};
use braid_testbed::{Arch, sh};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const VERSION: &str = "0.15.2";
/// SHA-256 of the packages for `x86_64` and aarch64.
const HASHES: [&str; 2] = [
    "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",
    "edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230",
];

/// Returns the path of a C compiler for `arch`, a script that starts zig. Installs zig if it is
/// missing.
pub(crate) fn c_compiler(arch: Arch) -> Result<PathBuf> {
    let folder = sh::cache().join(format!("tools/zig-{VERSION}"));
    let zig = folder.join("ziglang/zig");
    // One installation at a time, for example by two stages of a test run.
    let lock = sh::cache().join("zig.lock");
    fs::create_dir_all(sh::cache()).context("create the cache")?;
    let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    lock.lock()
        .context("wait for another installation of zig")?;
    if !zig.is_file() {
        install(&folder).with_context(|| format!("install zig {VERSION}"))?;
    }
    let path = folder.join(format!("{}-cc", arch.rust()));
    let text = script(&zig, arch);
    // Another build may be running the script, so it is written only if its text changes.
    if fs::read_to_string(&path).unwrap_or_default() != text {
        let write = || {
            fs::write(&path, &text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        };
        write().with_context(|| format!("write {}", path.display()))?;
    }
    Ok(path)
}

/// Returns a shell script, because cargo takes a path without arguments as the linker. It drops the
/// target that the crate cc adds, a triple of Rust that zig does not know.
fn script(zig: &Path, arch: Arch) -> String {
    let cache = sh::cache().join("zig");
    format!(
        "#!/bin/sh\nexport ZIG_GLOBAL_CACHE_DIR='{0}' ZIG_LOCAL_CACHE_DIR='{0}'\n\
         for argument; do\n  shift\n  case \"$argument\" in\n    --target=*) ;;\n\
         \x20   *) set -- \"$@\" \"$argument\" ;;\n  esac\ndone\n\
         exec '{1}' cc -target {2}-linux-musl \"$@\"\n",
        cache.display(),
        zig.display(),
        arch.rust(),
    )
}

/// Installs zig into `folder`. pip refuses a package with another hash.
fn install(folder: &Path) -> Result<()> {
    sh::apt(&[("pip3", "python3-pip")])?;
    let partial = sh::cache().join("tools/zig-partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
    let list = partial.join("requirements.txt");
    let hashes = HASHES.map(|hash| format!(" --hash=sha256:{hash}")).concat();
    fs::write(&list, format!("ziglang=={VERSION}{hashes}\n"))
        .with_context(|| format!("write {}", list.display()))?;
    eprintln!("installing zig {VERSION}");
    let mut pip = sh::cmd("pip3", ["install", "--quiet", "--no-deps", "--no-compile"]);
    pip.arg("--target")
        .arg(&partial)
        .arg("--requirement")
        .arg(&list);
    sh::run(pip.env("PIP_ROOT_USER_ACTION", "ignore"))?;
    fs::rename(&partial, folder).with_context(|| format!("create {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_replaces_the_target_and_keeps_other_arguments() -> Result<()> {
        let script = script(Path::new("/bin/echo"), Arch::Arm64);
        let arguments = ["-c", &script, "cc", "-O0", "--target=aarch64-x", "a b.c"];
        let output = sh::read(&mut sh::cmd("sh", arguments))?;
        assert_eq!(output, "cc -target aarch64-linux-musl -O0 a b.c\n");
        Ok(())
    }
}
