//! A socket that systemd hands over.

#![expect(unsafe_code, reason = "a descriptor is known by its number alone")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// The first descriptor that is handed over (`sd_listen_fds(3)`).
const FIRST: i32 = 3;

/// The socket that this process was started for; `None` where it was not.
pub fn listener() -> io::Result<Option<UnixListener>> {
    let number = |key: &str| {
        std::env::var(key)
            .ok()
            .and_then(|value| value.parse::<u32>().ok())
    };
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) => {
            // SAFETY: by its variables systemd has opened it for this process, and nobody else
            // takes it.
            let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
            Ok(Some(UnixListener::from(fd)))
        }
        Some(count) => Err(io::Error::other(format!(
            "Too many ({count}) FDs passed through socket activation"
        ))),
    }
}
