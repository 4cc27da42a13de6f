//! Ctrl-C and its like, noted instead of obeyed while there is something to take back.

#![expect(unsafe_code, reason = "a signal handler can be anything, so nix leaves it to the caller")]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::alarm;
use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on SIGINT, SIGTERM and SIGHUP are only noted. Programs started meanwhile get them as usual: `exec` takes a
/// handler away, where it would pass on a blocked signal.
pub fn note_instead() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is safe at any moment.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Does `work`, whose system call ends with EINTR if it takes more than so many seconds.
pub fn interrupted_after<T>(seconds: u32, work: impl FnOnce() -> T) -> nix::Result<T> {
    // Without SA_RESTART.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    let before = unsafe { sigaction(Signal::SIGALRM, &action) }?;
    alarm::set(seconds);
    let done = work();
    alarm::cancel();
    // SAFETY: it was there before.
    unsafe { sigaction(Signal::SIGALRM, &before) }?;
    Ok(done)
}

/// The number of the last signal noted.
pub fn noted() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
}
