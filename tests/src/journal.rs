//! Notes about a run for `cargo xtask test`, in the file that `$BRAID_TEST_JOURNAL` names; none
//! without it.
//!
//! One line a note: `TIME <seconds> <test>`, `SKIP <test>: <why>`.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Names the file.
const VARIABLE: &str = "BRAID_TEST_JOURNAL";

/// Notes how long the test of this thread had a sandbox.
pub(crate) fn time(took: Duration) {
    note(&format!("TIME {:.1} {}", took.as_secs_f64(), test()));
}

/// The test of this thread, whose name the harness gives to the thread, behind its target.
pub(crate) fn test() -> String {
    let own = std::env::current_exe().unwrap_or_default();
    // cargo names a test's program after its target, with a hash behind.
    let target = own
        .file_name()
        .and_then(|name| name.to_str()?.split('-').next())
        .unwrap_or("?");
    format!("{target}::{}", std::thread::current().name().unwrap_or("?"))
}

/// Notes that a test, or a part of it, was left out, and why.
pub(crate) fn skip(test: &str, why: &str) {
    note(&format!("SKIP {test}: {why}"));
}

/// Adds a line. Tests run in parallel: each line is one write to the file's end.
fn note(line: &str) {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let noted = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    noted.unwrap_or_else(|err| panic!("write {}: {err}", path.display()));
}
