//! Where the programs under test are.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `braid` under test: `$BRAID_BIN`, otherwise built by the cargo that runs the tests,
/// otherwise the one beside them, if they are run without cargo. The last two are builds for
/// development, which is said on standard error.
pub fn braid() -> &'static Path {
    static BRAID: OnceLock<PathBuf> = OnceLock::new();
    BRAID.get_or_init(|| env::var_os("BRAID_BIN").map_or_else(built_and_said, PathBuf::from))
}

fn built_and_said() -> PathBuf {
    let path = build();
    // Past the harness, which shows only what failed tests print.
    let _ = writeln!(
        io::stderr(),
        "the braid under test is not what is shipped: {}",
        path.display()
    );
    path
}

/// Builds `braid` beside the test program, in `target/<host>/<profile>`.
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
        .args(["build", "--quiet", "--package", "braid"])
        .args(release)
        .status();
    assert!(
        built.expect("cargo starts").success(),
        "cargo build --package braid failed"
    );
    folder.join("braid")
}

/// The program of Multus: where `cargo xtask test` builds it, in `$BRAID_CACHE` or
/// `~/.cache/braid`; `None` without it.
pub fn multus() -> Option<PathBuf> {
    Some(cache().join("multus/multus")).filter(|program| program.is_file())
}

fn cache() -> PathBuf {
    let home = || {
        PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/braid")
    };
    env::var_os("BRAID_CACHE").map_or_else(home, PathBuf::from)
}

/// The folder of the reference plugins: `$BRAID_REFERENCE`, otherwise where `cargo xtask bench
/// --setup` puts them, in `$BRAID_CACHE` or `~/.cache/braid`; `None` without them.
pub fn reference() -> Option<&'static Path> {
    static REFERENCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let folder =
            env::var_os("BRAID_REFERENCE").map_or_else(|| cache().join("reference"), PathBuf::from);
        folder.join("bridge").is_file().then_some(folder)
    };
    REFERENCE.get_or_init(find).as_deref()
}
