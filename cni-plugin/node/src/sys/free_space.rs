//! Test for free space for a new file in a folder, without creating the file.

use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use std::path::Path;

/// Checks that a file can be created in `folder`. Fails with the error of access(2), or with
/// `ENOSPC` if the file system has no free block or inode.
pub fn for_a_file(folder: &Path) -> Result<(), Errno> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?;
    let system = statvfs(folder)?;
    // Some file systems count neither blocks nor inodes, so the numbers are zero.
    let is_full = system.blocks() > 0 && system.blocks_free() == 0;
    let has_no_inode = system.files() > 0 && system.files_free() == 0;
    if is_full || has_no_inode {
        Err(Errno::ENOSPC)
    } else {
        Ok(())
    }
}
