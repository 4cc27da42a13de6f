//! Programs that these tests run besides braid.

use braid_tests::binary;
use braid_tests::sandbox::PLUGINS;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of cnitool, libcni's command-line program: `$BRAID_CNITOOL`, else
/// `~/.cache/braid/tools/cnitool`.
pub(crate) fn cnitool() -> PathBuf {
    let cached = || {
        PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()))
            .join(".cache/braid/tools/cnitool")
    };
    env::var_os("BRAID_CNITOOL").map_or_else(cached, PathBuf::from)
}

/// Returns the path of `program`; `None` if it is not installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program == "cnitool" {
        return Some(cnitool()).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Creates a script in the sandbox's plugin folder for each of `names`. The scripts start braid,
/// like those that `braid install` writes.
pub(crate) fn offer_braid(names: &[&str]) {
    for name in names {
        let path = Path::new(PLUGINS).join(name);
        fs::write(&path, format!("#!{}\n", binary::braid().display())).expect("plugin folder");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("an executable file");
    }
}

/// Returns the folder of the reference plugins. The test must have checked that they exist.
pub(crate) fn reference() -> &'static Path {
    binary::reference().expect("the reference plugins: needs!(Reference) comes first")
}

/// Skips the test and prints the reason.
macro_rules! skip {
    ($why:expr) => {{
        let test = format!("{}::{}", module_path!(), braid_tests::function_name!());
        braid_tests::feature::tell_skip(&test, $why);
        return;
    }};
}
pub(crate) use skip;

/// Skips the test if the machine lacks one of the programs.
macro_rules! needs_programs {
    ($($program:literal),+) => {
        $(if $crate::program::find($program).is_none() {
            $crate::program::skip!(concat!("needs ", $program, ", installed by cargo xtask test"));
        })+
    };
}
pub(crate) use needs_programs;
