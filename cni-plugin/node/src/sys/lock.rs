//! Waiting for a lock on a file, never without a bound: what holds one call up must not hold up all
//! others for ever.

#![expect(
    unsafe_code,
    reason = "a signal handler can be anything, so nix leaves it to the caller"
)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::alarm;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds that a call waits for others that do the same, of the two minutes that a kubelet gives
/// its runtime.
const PATIENCE: u32 = 60;
/// Seconds that a call has left for the next lock: what it takes back after having waited in vain
/// must not take as long.
static LEFT: AtomicU32 = AtomicU32::new(PATIENCE);

/// Locks the file against all others until it is closed; [`io::ErrorKind::TimedOut`] where that
/// takes too long.
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

/// The same with a bound of its own, in seconds.
pub fn wait_for(file: &File, seconds: u32) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        tried => return Ok(tried?),
    }
    match interrupted_after(seconds, || file.lock())? {
        // By the alarm alone: no other signal has a handler that ends a system call.
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("another call has held it for {seconds} s"),
        )),
        locked => locked,
    }
}

/// Does `work`, whose system call ends with EINTR if it takes more than so many seconds.
fn interrupted_after<T>(seconds: u32, work: impl FnOnce() -> T) -> nix::Result<T> {
    // Without SA_RESTART.
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
    // SAFETY: it was there before.
    unsafe { sigaction(Signal::SIGALRM, &before) }?;
    Ok(done)
}

extern "C" fn nothing(_signal: libc::c_int) {}
