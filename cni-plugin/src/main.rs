//! Entry point of the plugin, which selects a plugin type or a command.
//!
//! A process with the environment variable `CNI_COMMAND` is a plugin call. The variable is checked
//! first. The name of the started file selects the plugin, such as `bridge`. The file is a link to
//! this program, or a script with the only line `#!/opt/cni/bin/braid`.

#![no_main]

use braid::cli;
use braid::entry::{heap, start};
use std::ffi::OsString;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Entry point for the C library. Rust's own startup finds the end of the stack and prepares for a
/// stack overflow. This takes 0.13 ms, a twentieth of an ADD. [`start::prepare`] has the steps that
/// a call needs.
#[expect(
    unsafe_code,
    reason = "a symbol named `main` would be unsound if it were not the C library's entry"
)]
#[unsafe(no_mangle)]
extern "C" fn main(count: libc::c_int, values: *const *const libc::c_char) -> libc::c_int {
    HEAP.populate();
    start::prepare();
    // SAFETY: the C library passed these values.
    let arguments = unsafe { start::arguments(count, values) };
    start::end(run(arguments))
}

fn run(arguments: Vec<OsString>) -> u8 {
    match std::env::var_os("CNI_COMMAND") {
        Some(command) if !command.is_empty() => cli::cni::run(&arguments),
        _ => cli::run(arguments),
    }
}
