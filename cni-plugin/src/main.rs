//! The one binary: which plugin or command it runs.
//!
//! A call with `CNI_COMMAND` is a plugin call, and is looked for before anything else is touched.
//! The name of the file that was started picks the plugin: a script `bridge` of one line,
//! `#!/opt/cni/bin/braid`, or a link of this name.

#![no_main]

use braid::cli;
use braid::entry::{heap, start};
use std::ffi::OsString;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Called by the C library itself: Rust's own start asks where the stack ends and prepares for its
/// overflow, which takes 0.13 ms, a twentieth of an ADD. What a call needs of it,
/// [`start::prepare`] does.
#[expect(
    unsafe_code,
    reason = "a symbol named `main` would be unsound if it were not the C library's entry"
)]
#[unsafe(no_mangle)]
extern "C" fn main(count: libc::c_int, values: *const *const libc::c_char) -> libc::c_int {
    HEAP.populate();
    start::prepare();
    // SAFETY: they are what the C library gave.
    let arguments = unsafe { start::arguments(count, values) };
    start::end(run(arguments))
}

fn run(arguments: Vec<OsString>) -> u8 {
    match std::env::var_os("CNI_COMMAND") {
        Some(command) if !command.is_empty() => cli::cni::run(&arguments),
        _ => cli::run(arguments),
    }
}
