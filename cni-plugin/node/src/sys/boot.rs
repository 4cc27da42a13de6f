//! Id of this boot, and the time since then.

use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::time::Duration;

/// Path of the file with the id of this boot.
pub const ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns a text that is different for each boot.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string(ID)?.trim().to_owned())
}

/// Returns the time since the boot, with the time of suspensions; `None` if it cannot be read.
pub fn uptime() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .ok()
        .map(Duration::from)
}
