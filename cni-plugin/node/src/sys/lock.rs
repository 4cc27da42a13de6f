//! File locks with a timeout, so that a stuck call does not block all others forever.

#![expect(
    unsafe_code,
    reason = "a signal handler can be anything, so nix leaves it to the caller"
)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::alarm;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds that a call waits for other calls. A kubelet gives its runtime two minutes.
const PATIENCE: u32 = 60;
/// Seconds left for the next lock. The rollback after a timeout must not wait as long again.
static LEFT: AtomicU32 = AtomicU32::new(PATIENCE);

/// Locks the file until it is closed. Returns [`io::ErrorKind::TimedOut`] if that takes too long.
pub fn wait(file: &File) -> io::Result<()> {
    let waited = wait_for(file, LEFT.load(Ordering::Relaxed));
    if waited
        .as_ref()
        .is_err_and(|err| err.kind() == io::ErrorKind::TimedOut)
    {
        LEFT.store(1, Ordering::Relaxed);
    }
    waited
}

/// Does the same with the given timeout in seconds.
pub fn wait_for(file: &File, seconds: u32) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        tried => return Ok(tried?),
    }
    match interrupted_after(seconds, || file.lock())? {
        // Only the alarm interrupts it: no other signal has a handler that ends a system call.
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("another call has held it for {seconds} s"),
        )),
        locked => locked,
    }
}

/// Runs `work`. Its system call fails with EINTR after so many seconds.
fn interrupted_after<T>(seconds: u32, work: impl FnOnce() -> T) -> nix::Result<T> {
    // Without SA_RESTART, so that the system call ends.
    let action = SigAction::new(
        SigHandler::Handler(nothing),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    let before = unsafe { sigaction(Signal::SIGALRM, &action) }?;
    alarm::set(seconds);
    let done = work();
    alarm::cancel();
    // SAFETY: this restores the former handler.
    unsafe { sigaction(Signal::SIGALRM, &before) }?;
    Ok(done)
}

extern "C" fn nothing(_signal: libc::c_int) {}
