//! File locks with a timeout, so that a stuck CNI call does not block all other calls forever.

#![expect(
    unsafe_code,
    reason = "a signal handler can be anything, so nix leaves it to the caller"
)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::alarm;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds that a CNI call waits for other calls. A kubelet gives its runtime two minutes.
const PATIENCE: u32 = 60;
/// Timeout of the next lock in seconds. After a lock has timed out, the value is 1. So the rollback
/// does not wait for a full minute again.
static LEFT: AtomicU32 = AtomicU32::new(PATIENCE);

/// Locks the file until it is closed. Returns [`io::ErrorKind::TimedOut`] after 60 seconds, or
/// after one second if an earlier lock timed out.
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

/// Locks the file until it is closed. Returns [`io::ErrorKind::TimedOut`] after the given number of
/// seconds.
pub fn wait_for(file: &File, seconds: u32) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        tried => return Ok(tried?),
    }
    match interrupted_after(seconds, || file.lock())? {
        // Only the alarm interrupts the lock: no other signal has a handler that ends a system
        // call.
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("another call has held it for {seconds} s"),
        )),
        locked => locked,
    }
}

/// Runs `work`. Its system call fails with EINTR after the given number of seconds.
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
