//! Id of this boot.

use std::fs;
use std::io;

/// Path of the file with the id of this boot.
pub const ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns a text that is different for each boot.
pub fn id() -> io::Result<String> {
    Ok(fs::read_to_string(ID)?.trim().to_owned())
}
