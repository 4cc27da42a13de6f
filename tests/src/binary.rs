//! Paths of the programs under test.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the `braid` under test, with `braid-agent` beside it. This is `$BRAID_BIN` if set. Otherwise it is a development build
/// beside the test program, and a line on standard error says so. The cargo that runs the tests
/// makes this build. If cargo does not run the tests, the build must already exist.
pub fn braid() -> &'static Path {
    static BRAID: OnceLock<PathBuf> = OnceLock::new();
    BRAID.get_or_init(|| env::var_os("BRAID_BIN").map_or_else(built_and_said, PathBuf::from))
}

fn built_and_said() -> PathBuf {
    let path = build();
    // Written past the harness, which shows output of failed tests only.
    let _ = writeln!(
        io::stderr(),
        "the braid under test is not what is shipped: {}",
        path.display()
    );
    path
}

/// Builds `braid` and `braid-agent` beside the test program, in `target/<host>/<profile>`.
fn build() -> PathBuf {
    let own = env::current_exe().expect("path of the test program");
    let folder = own
        .parent()
        .and_then(Path::parent)
        .expect("target/<host>/<profile>/deps/<test>");
    let Some(cargo) = env::var_os("CARGO") else {
        return folder.join("braid");
    };
    let release = folder.ends_with("release").then_some("--release");
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "braid",
            "--package",
            "braid-agent",
        ])
        .args(release)
        .status();
    assert!(
        built.expect("cargo starts").success(),
        "cargo build of braid failed"
    );
    folder.join("braid")
}

/// Path of the Multus program that `cargo xtask test` builds in `$BRAID_CACHE` or `~/.cache/braid`;
/// `None` if the program is missing.
pub fn multus() -> Option<PathBuf> {
    Some(cache().join("multus/multus")).filter(|program| program.is_file())
}

/// Path of Whereabouts' IPAM plugin, which `cargo xtask test` builds in `$BRAID_CACHE` or
/// `~/.cache/braid`; `None` if the program is missing.
pub fn whereabouts() -> Option<PathBuf> {
    Some(cache().join("tools/whereabouts")).filter(|program| program.is_file())
}

fn cache() -> PathBuf {
    let home = || {
        PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/braid")
    };
    env::var_os("BRAID_CACHE").map_or_else(home, PathBuf::from)
}

/// Folder of the reference plugins: `$BRAID_REFERENCE`, else the folder that `cargo xtask bench
/// --setup` fills in `$BRAID_CACHE` or `~/.cache/braid`. `None` if the plugins are missing.
pub fn reference() -> Option<&'static Path> {
    static REFERENCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let folder =
            env::var_os("BRAID_REFERENCE").map_or_else(|| cache().join("reference"), PathBuf::from);
        folder.join("bridge").is_file().then_some(folder)
    };
    REFERENCE.get_or_init(find).as_deref()
}
