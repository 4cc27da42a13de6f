//! Files that are open for writing: the kernel does not execute them (`ETXTBSY`).

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Watch for the close of a file that was open for writing.
#[derive(Debug)]
pub struct Writers(Inotify);

impl Writers {
    /// Starts watching the file.
    pub fn watch(file: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(file, AddWatchFlags::IN_CLOSE_WRITE)?;
        Ok(Self(inotify))
    }

    /// Waits until a process that wrote the file has closed it. Returns false after `limit`.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let mut file = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(
            &mut file,
            PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(0) => Ok(false),
            // After a signal, the caller tries again.
            Err(Errno::EINTR) => Ok(true),
            Ok(_) => {
                self.0.read_events()?;
                Ok(true)
            }
            Err(errno) => Err(errno.into()),
        }
    }
}
