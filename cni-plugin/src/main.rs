//! The one binary: which face it shows.
//!
//! A call with `CNI_COMMAND` is a plugin call, and is looked for before anything else is touched. `argv[0]` picks the
//! plugin, so that a link named `bridge` is the bridge plugin.

#![cfg_attr(target_env = "gnu", no_main)]

use braid::{cli, sys};

/// Called by the C library itself: Rust's own start asks where the stack ends and prepares for its overflow, which
/// takes 0.13 ms, a twentieth of an ADD. What a call needs of it, [`sys::start::prepare`] does.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a symbol named `main` would be unsound if it were not the C library's entry")]
#[unsafe(no_mangle)]
extern "C" fn main() -> libc::c_int {
    sys::start::prepare();
    face().into()
}

/// Other C libraries do not tell the program's arguments to anybody but Rust's own start.
#[cfg(not(target_env = "gnu"))]
fn main() -> std::process::ExitCode {
    face().into()
}

fn face() -> u8 {
    match std::env::var_os("CNI_COMMAND") {
        Some(command) if !command.is_empty() => cli::cni::run(),
        _ => cli::run(),
    }
}
