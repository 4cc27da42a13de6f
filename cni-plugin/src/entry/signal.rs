//! Ctrl-C and similar signals, recorded instead of obeyed during cleanup.

#![expect(
    unsafe_code,
    reason = "a signal handler can be anything, so nix leaves it to the caller"
)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

/// From now on, only records SIGINT, SIGTERM and SIGHUP. Programs started meanwhile get these
/// signals as usual, because `exec` resets a handler. A blocked signal would stay blocked after
/// `exec`.
pub fn note_instead() -> nix::Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(note),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is safe at any moment.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Returns the number of the last recorded signal; `None` if there was none.
pub fn noted() -> Option<u8> {
    u8::try_from(CAUGHT.load(Ordering::Relaxed))
        .ok()
        .filter(|signal| *signal > 0)
}
