//! Birth time of a file, by statx(2). `Metadata::created` in Rust's library always fails on musl.

use nix::errno::Errno;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Returns the time at which the file at `path` was created. `None` if its file system does not
/// store it (tmpfs before Linux 6.0). Errors are from statx(2): `ENOSYS` before Linux 4.11.
#[expect(
    unsafe_code,
    reason = "a system call that nix does not wrap, and Debian 12's musl does not have"
)]
pub fn born(path: &Path) -> io::Result<Option<SystemTime>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_STATX_SYNC_AS_STAT, libc::STATX_BTIME);
    // SAFETY: `name` is a C string and `answer` a statx, and both live until the call returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_statx,
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            mask,
            answer.as_mut_ptr(),
        )
    };
    Errno::result(done)?;
    // SAFETY: all bytes are zero or written by the kernel, and any value is valid in each field.
    let answer = unsafe { answer.assume_init() };
    if answer.stx_mask & libc::STATX_BTIME == 0 {
        return Ok(None);
    }
    let (seconds, nanoseconds) = (answer.stx_btime.tv_sec, answer.stx_btime.tv_nsec);
    // With a wrong clock at boot, the time may be before 1970.
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(None);
    };
    let since = Duration::new(seconds, nanoseconds);
    Ok(SystemTime::UNIX_EPOCH.checked_add(since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn birth_time_on_tmpfs_ignores_the_modification_time() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let path = dir.path().join("file");
        let before = SystemTime::now() - Duration::from_secs(1);
        let file = fs::File::create(&path).expect("a file");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
        if crate::sys::release::is_at_least(6, 0) {
            let born = born(&path).expect("statx").expect("a time");
            assert!(born >= before && born <= SystemTime::now(), "{born:?}");
        }
        let err = super::born(&dir.path().join("missing")).expect_err("no file");
        assert_eq!(err.kind(), io::ErrorKind::NotFound);
    }
}
