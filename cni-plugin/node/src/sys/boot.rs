//! The id of this boot.

use std::fs;
use std::io;

/// The file with the id.
pub const ID: &str = "/proc/sys/kernel/random/boot_id";

/// A text that is new at each boot.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string(ID)?.trim().to_owned())
}
