//! Steps of Rust's startup before `main` that a short-lived call needs as well, and the end of the
//! process.

#![expect(
    unsafe_code,
    reason = "descriptors without an owner yet, and the arguments of a C program"
)]

use nix::sys::signal::{SigHandler, Signal, signal};
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

const STANDARD: [libc::c_int; 3] = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];

/// Ignores SIGPIPE, so that a write to a closed pipe is only an error. Also opens `/dev/null` for
/// each closed standard descriptor. Otherwise the next opened file would become standard output,
/// and a result would be written to that file. The replacement of standard output refuses writes,
/// so that the result does not count as delivered.
pub fn prepare() {
    // SAFETY: the signal is ignored, and no handler is installed.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let mut fds = STANDARD.map(|fd| libc::pollfd {
        fd,
        events: 0,
        revents: 0,
    });
    // SAFETY: the pointer and the length are those of `fds`, which lives until the call returns.
    unsafe { libc::poll(fds.as_mut_ptr(), 3, 0) };
    for gap in fds.iter().filter(|fd| fd.revents & libc::POLLNVAL != 0) {
        let mode = if gap.fd == libc::STDERR_FILENO {
            libc::O_WRONLY
        } else {
            libc::O_RDONLY
        };
        // The lowest free number is used. It is this one, because the numbers before it are open.
        // SAFETY: the path is a static C string. The descriptor is meant to stay open.
        unsafe { libc::open(c"/dev/null".as_ptr(), mode) };
    }
}

/// Returns the descriptor of standard input, without the buffer of [`std::io::stdin`].
pub const fn input() -> BorrowedFd<'static> {
    // SAFETY: [`prepare`] ensures that it is open, and it is never closed.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

/// Returns the descriptor of standard output, without the buffer of [`std::io::stdout`].
pub const fn output() -> BorrowedFd<'static> {
    // SAFETY: as above.
    unsafe { BorrowedFd::borrow_raw(libc::STDOUT_FILENO) }
}

/// Ends the process without the C library's exit handlers. They have nothing to do, because all
/// output is already written.
pub fn end(code: u8) -> ! {
    // SAFETY: no memory of this process is used after it.
    unsafe { libc::_exit(code.into()) }
}

/// Returns the program's arguments, which some C libraries pass only to `main`. A script that
/// consists of `#!` and the path of this program works like a link with the script's name. For such
/// a script, the kernel puts the interpreter's path before the script's path. This function removes
/// the interpreter's path.
///
/// # Safety
///
/// `count` and `values` are the arguments of `main`.
pub unsafe fn arguments(count: libc::c_int, values: *const *const libc::c_char) -> Vec<OsString> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: `values` has `count` entries.
    let values = unsafe { std::slice::from_raw_parts(values, count) };
    // SAFETY: each is a C string that lives as long as the process.
    let argument = |value: &*const libc::c_char| unsafe { CStr::from_ptr(*value) };
    let arguments: Vec<&CStr> = values.iter().map(argument).collect();
    let skipped = usize::from(is_interpreter(&arguments, started_path()));
    arguments[skipped..]
        .iter()
        .map(|argument| OsStr::from_bytes(argument.to_bytes()).to_owned())
        .collect()
}

/// Returns the path that was passed to `execve`. It is the path of the script if the kernel started
/// this program as a script's interpreter.
fn started_path() -> Option<&'static CStr> {
    // SAFETY: it reads a value that the kernel put on the process's stack.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
    // SAFETY: it is null, or a C string that lives as long as the process.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}

/// True if the kernel started this program as the interpreter of the script at `started`.
fn is_interpreter(arguments: &[&CStr], started: Option<&CStr>) -> bool {
    matches!(arguments, [program, script, ..] if Some(*script) == started && program != script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_script_that_the_kernel_started_has_a_leading_interpreter() {
        let program = c"/opt/cni/bin/braid";
        let script = c"/opt/cni/bin/dhcp";
        assert!(is_interpreter(&[program, script, c"daemon"], Some(script)));
        assert!(is_interpreter(&[program, script], Some(script)));
        assert!(
            !is_interpreter(&[program, script], Some(program)),
            "a path as an argument"
        );
        assert!(
            !is_interpreter(&[program, program], Some(program)),
            "the program's own path as an argument"
        );
        assert!(!is_interpreter(&[script], Some(script)), "a link");
        assert!(!is_interpreter(&[program, script], None) && !is_interpreter(&[], Some(script)));
    }
}
