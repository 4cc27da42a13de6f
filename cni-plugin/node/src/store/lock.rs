//! Locks that calls for different containers share. Each lock has one purpose and one file below
//! `/run/braid/lock`.
//!
//! Other locks are in the modules of the data that they protect: a container's folder (`record`),
//! slots of the shaping program (`slot`) and a network's leases (`ipam::host_local::store`). A call
//! takes all these locks in the following order, each at most once:
//!
//! ```text
//!  Repair ─► a container's folder ─► leases ─► terminated container's folder (`holder`) ─► Rules ─► Ebpf
//!                                └─► slots, Links: no lock is taken after them
//! ```
//!
//! Two calls for two terminated containers may lock the two folders in opposite orders, if each
//! call takes over objects of the other call's container. Both calls then give up after 4 s.

use crate::sys::lock::{wait, wait_for};
use crate::sys::private;
use crate::{Context, Error};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/run/braid/lock";

/// Purpose of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Restoring rules that another program flushed.
    Repair,
    /// Rules that several attachments share or contend for: host ports, forward accept rules,
    /// isolated bridges.
    Rules,
    /// The node's eBPF programs and maps. They are created for the first attachment that needs them
    /// and deleted with the last one.
    Ebpf,
    /// Deletion of host links in batches. A call that does not get this lock within 4 s deletes
    /// only its own links.
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

    /// Takes the lock. It is held until the returned file is closed. Fails if the lock is not free
    /// within the timeout.
    pub(crate) fn hold(self) -> Result<File, Error> {
        let path = self.file();
        self.hold_at(&path)
            .doing(format_args!("lock {}", path.display()))
    }

    fn hold_at(self, path: &Path) -> io::Result<File> {
        let open = || private::options().append(true).create(true).open(path);
        let file = match open() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                private::make_folders(Path::new(FOLDER))?;
                open()?
            }
            opened => opened?,
        };
        self.wait(&file)?;
        Ok(file)
    }

    fn wait(self, file: &File) -> io::Result<()> {
        // On a busy node the kernel takes a second or two to delete links.
        if self == Self::Links {
            wait_for(file, 4)
        } else {
            wait(file)
        }
    }
}
