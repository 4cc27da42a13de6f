//! The locks that calls for different containers share: one purpose and one file each, below
//! `/run/braid/lock`.
//!
//! Others lie with what they guard: a container's folder (`record`), the program's slots (`slot`)
//! and a network's leases (`ipam::host_local::store`). A call takes them in this order, each at
//! most once:
//!
//! ```text
//!  Repair ─► a container's folder ─► leases ─► a dead container's folder (`holder`) ─► Rules ─► Ebpf
//!                                └─► slots, Links: nothing is locked behind them
//! ```
//!
//! Two containers' folders may be asked for in both orders, if each is the other's dead one: both
//! calls give up after 4 s.

use crate::sys::lock::{wait, wait_for};
use crate::sys::private;
use crate::{Context, Error};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/run/braid/lock";

/// A purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Putting back what somebody flushed.
    Repair,
    /// Rules that several attachments share or contend for: ports that are taken over, gates,
    /// isolated bridges.
    Rules,
    /// Programs and maps of eBPF for the whole node: they come with the first one's need and go
    /// with the last one's.
    Ebpf,
    /// Taking links of the host away. Who waits for it in vain does so alone.
    Links,
}

impl Lock {
    fn file(self) -> PathBuf {
        Path::new(FOLDER).join(match self {
            Self::Repair => "repair",
            Self::Rules => "rules",
            Self::Ebpf => "ebpf",
            Self::Links => "links",
        })
    }

    /// Holds off all others until it is closed; an error when somebody else holds it for too long.
    pub(crate) fn hold(self) -> Result<File, Error> {
        let path = self.file();
        let open = || private::options().append(true).create(true).open(&path);
        let opened = match open() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                private::make_folders(Path::new(FOLDER)).and_then(|()| open())
            }
            opened => opened,
        };
        let held = opened.and_then(|file| self.wait(&file).map(|()| file));
        held.doing(format_args!("lock {}", path.display()))
    }

    fn wait(self, file: &File) -> io::Result<()> {
        // On a busy node the kernel takes a second or two to take links away.
        if self == Self::Links {
            wait_for(file, 4)
        } else {
            wait(file)
        }
    }
}
