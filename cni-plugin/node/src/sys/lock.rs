//! File locks with a timeout, so that a stuck CNI call does not block all other calls forever.

#![expect(
    unsafe_code,
    reason = "a signal handler can be anything, so nix leaves it to the caller"
)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::alarm;
use std::fs::{File, TryLockError};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Seconds that a CNI call waits for other calls. A kubelet gives its runtime two minutes.
const PATIENCE: u32 = 60;
/// Timeout of the next lock in seconds. After a lock has timed out, the value is 1. So the rollback
/// does not wait for a full minute again.
static LEFT: AtomicU32 = AtomicU32::new(PATIENCE);
/// Seconds that a thread of a process with several waits. Calls may wait for the locks that it has.
const PATIENCE_OF_THREAD: u32 = 10;
/// Pause of such a thread between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// Lets several threads of this process wait for locks at the same time, from now on. A thread tries
/// again and again then, since the signal that ends the wait of a call is one for the whole process.
pub fn wait_in_threads() {
    HAS_THREADS.store(true, Ordering::Relaxed);
}

/// True if several threads of this process may wait for locks.
pub fn has_threads() -> bool {
    HAS_THREADS.load(Ordering::Relaxed)
}

/// Locks the file until it is closed. Returns [`io::ErrorKind::TimedOut`] within a second after the
/// time `until`.
pub fn wait_until(file: &File, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        let late = "another call has it, and no time is left";
        return Err(io::Error::new(io::ErrorKind::TimedOut, late));
    }
    let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
    wait_for(file, seconds.max(1))
}

/// Locks the file until it is closed. Returns [`io::ErrorKind::TimedOut`] after 60 seconds, after 10
/// in a process with [threads](wait_in_threads), or after one second if an earlier lock timed out.
pub fn wait(file: &File) -> io::Result<()> {
    if HAS_THREADS.load(Ordering::Relaxed) {
        return wait_for(file, PATIENCE_OF_THREAD);
    }
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
    if HAS_THREADS.load(Ordering::Relaxed) {
        return try_for(file, seconds);
    }
    match interrupted_after(seconds, || file.lock())? {
        // Only the alarm interrupts the lock: no other signal has a handler that ends a system
        // call.
        Err(err) if err.kind() == io::ErrorKind::Interrupted => Err(timed_out(seconds)),
        locked => locked,
    }
}

/// Locks the file, with an attempt at least every [`PAUSE`].
fn try_for(file: &File, seconds: u32) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds.into());
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(timed_out(seconds)),
            tried => return Ok(tried?),
        }
    }
}

fn timed_out(seconds: u32) -> io::Error {
    let held = format!("another call has held it for {seconds} s");
    io::Error::new(io::ErrorKind::TimedOut, held)
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
