//! Queue of the host's links that calls are about to delete, so that one call can delete all of
//! them.
//!
//! An entry is an empty file in `/run/braid/leaving/`. Its name is the network namespace's cookie,
//! the link's index and the link's name. So an entry of a killed call never matches a later link,
//! even a link with the same name.

use crate::sys::netlink::Socket;
use crate::sys::netns;
use crate::sys::private;
use braid_core::name::IfName;
use braid_core::plan::thing::LinkRef;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const ROOT: &str = "/run/braid/leaving";
/// Maximal number of links in one send. All requests of the send, and the errors in reply, have to
/// fit into the socket's buffers.
const MOST: usize = 64;

/// Queue entry of one link.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) link: IfName,
    file: PathBuf,
}

/// Queue entries of one call.
#[derive(Debug)]
pub(super) struct Notes {
    /// Cookie of the network namespace.
    netns: u64,
    /// One entry for each requested link; `None` if the link does not exist.
    pub(super) own: Vec<Option<Note>>,
}

impl Note {
    fn new(netns: u64, index: u32, link: &IfName) -> Self {
        Self {
            link: link.clone(),
            file: PathBuf::from(format!("{ROOT}/{netns}:{index}:{link}")),
        }
    }

    /// Writes the entry, so that other calls can read it.
    fn leave(&self) -> io::Result<()> {
        match private::write(&self.file, &[]) {
            Err(err) if err.kind() == ErrorKind::NotFound => {
                private::make_folders(Path::new(ROOT))?;
                private::write(&self.file, &[])
            }
            written => written,
        }
    }

    /// Deletes the entry of a deleted link. If that fails, the leftover entry matches no link.
    pub(super) fn end(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl Notes {
    /// Writes entries for links in the socket's namespace.
    pub(super) fn leave(socket: &Socket, links: &[LinkRef]) -> io::Result<Self> {
        let netns = netns::cookie()?;
        let mut own = Vec::with_capacity(links.len());
        for at in links {
            let index = socket.index_of(at.name.as_str())?;
            own.push(index.map(|index| Note::new(netns, index, &at.name)));
        }
        let notes = Self { netns, own };
        for note in notes.own.iter().flatten() {
            note.leave()?;
        }
        Ok(notes)
    }

    /// True if the entries of all links of this call are gone: another call deleted these links.
    pub(super) fn are_gone(&self) -> bool {
        // An unreadable entry counts as present. Deleting its link again would be harmless.
        self.own
            .iter()
            .flatten()
            .all(|note| matches!(note.file.try_exists(), Ok(false)))
    }

    /// Reads the entries of other calls in this namespace. Returns at most [`MOST`] entries, minus
    /// the number of this call's entries. Deletes entries of links that no longer exist.
    pub(super) fn of_others(&self, socket: &Socket) -> Vec<Note> {
        let Ok(entries) = fs::read_dir(ROOT) else {
            return Vec::new();
        };
        let most = MOST.saturating_sub(self.own.len());
        let mut others = Vec::new();
        for entry in entries.flatten() {
            if others.len() >= most {
                break;
            }
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if let Some(note) = self.read(socket, &name)
                && !self.has(&note)
            {
                others.push(note);
            }
        }
        others
    }

    /// True if this call wrote `note`.
    fn has(&self, note: &Note) -> bool {
        let mut own = self.own.iter().flatten();
        own.any(|own| own.file == note.file)
    }

    /// Parses the file name of an entry. Returns `None` if the entry is for another namespace. If
    /// the entry's link no longer exists, deletes the entry and returns `None`.
    fn read(&self, socket: &Socket, name: &str) -> Option<Note> {
        let [netns, index, link] = name.split(':').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (index, link) = (index.parse().ok()?, IfName::parse(link).ok()?);
        let note =
            (netns.parse() == Ok(self.netns)).then(|| Note::new(self.netns, index, &link))?;
        let now = socket.index_of(link.as_str()).ok()?;
        if now == Some(index) {
            return Some(note);
        }
        note.end();
        None
    }

    /// Deletes the entries of this call.
    pub(super) fn end(&self) {
        self.own.iter().flatten().for_each(Note::end);
    }
}
