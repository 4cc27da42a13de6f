//! Socket activation by systemd.

#![expect(unsafe_code, reason = "a descriptor is known by its number alone")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// First file descriptor passed by systemd (`sd_listen_fds(3)`).
const FIRST: i32 = 3;

/// Returns the socket that systemd passed to this process; `None` if there is none.
pub fn listener() -> io::Result<Option<UnixListener>> {
    let number = |key: &str| -> Option<u32> { std::env::var(key).ok()?.parse().ok() };
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) => {
            // SAFETY: the variables say that systemd opened it for this process, and no other code
            // uses it.
            let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
            Ok(Some(UnixListener::from(fd)))
        }
        Some(count) => Err(io::Error::other(format!(
            "Too many ({count}) FDs passed through socket activation"
        ))),
    }
}
