//! Journal of a test run for `cargo xtask test`, in the file named by `$BRAID_TEST_JOURNAL`.
//! Without this variable, there is no journal.
//!
//! One line per entry: `TIME <seconds> <test>`, `SKIP <test>: <why>`, `PANIC <test>: <why>`.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic;
use std::sync::Once;
use std::time::Duration;

/// Environment variable with the path of the journal.
const VARIABLE: &str = "BRAID_TEST_JOURNAL";

/// Records for how long this thread's test used a sandbox.
pub(crate) fn time(took: Duration) {
    note(&format!("TIME {:.1} {}", took.as_secs_f64(), test()));
}

/// Returns the target and the name of this thread's test. The harness names each thread after its
/// test.
pub(crate) fn test() -> String {
    let own = std::env::current_exe().unwrap_or_default();
    // cargo names a test program after its target, followed by a hash.
    let target = own
        .file_name()
        .and_then(|name| name.to_str()?.split('-').next())
        .unwrap_or("?");
    format!("{target}::{}", std::thread::current().name().unwrap_or("?"))
}

/// Records that a test, or a part of it, was skipped, and why.
pub(crate) fn skip(test: &str, why: &str) {
    note(&format!("SKIP {test}: {why}"));
}

/// Records every panic from now on, so that the end of a run can name the failed tests.
pub(crate) fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let show = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            show(panic);
            let why = panic.payload_as_str().unwrap_or_default();
            note(&format!("PANIC {}: {}", test(), why.replace('\n', " ")));
        }));
    });
}

/// Appends a line to the journal. Tests run in parallel, so each line is a single write at the end
/// of the file.
fn note(line: &str) {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let noted = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    noted.unwrap_or_else(|err| panic!("write {}: {err}", path.display()));
}
