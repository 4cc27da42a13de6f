//! Notes about the host's links that calls are about to take away, so that one call can take those
//! of all along.
//!
//! A note is an empty file in `/run/braid/leaving/`. Its name is the network namespace, the link's
//! index and the link's name: one that a killed call left behind means no later link, whatever that
//! is called.

use crate::sys::netlink::Socket;
use crate::sys::netns;
use crate::sys::private;
use braid_core::name::IfName;
use braid_core::plan::thing::LinkRef;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const ROOT: &str = "/run/braid/leaving";
/// Requests of a send and their refusals have to fit into the socket's buffers.
const MOST: usize = 64;

/// That a link goes away.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) link: IfName,
    file: PathBuf,
}

/// The notes of one call.
#[derive(Debug)]
pub(super) struct Notes {
    /// As the kernel numbers the namespace.
    netns: u64,
    /// One for each link that was asked for; none where there is no such link.
    pub(super) own: Vec<Option<Note>>,
}

impl Note {
    fn new(netns: u64, index: u32, link: &IfName) -> Self {
        Self {
            link: link.clone(),
            file: PathBuf::from(format!("{ROOT}/{netns}:{index}:{link}")),
        }
    }

    /// Leaves it for others to read.
    fn leave(&self) -> io::Result<()> {
        match private::write(&self.file, &[]) {
            Err(err) if err.kind() == ErrorKind::NotFound => {
                private::make_folders(Path::new(ROOT))?;
                private::write(&self.file, &[])
            }
            written => written,
        }
    }

    /// Takes it away: the link is gone. Who finds it nevertheless finds no link of its index.
    pub(super) fn end(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl Notes {
    /// Notes that the links of the socket's namespace go away.
    pub(super) fn leave(socket: &Socket, links: &[LinkRef]) -> io::Result<Self> {
        let netns = netns::cookie()?;
        let note = |at: &LinkRef| {
            Ok(socket
                .index_of(at.name.as_str())?
                .map(|index| Note::new(netns, index, &at.name)))
        };
        let notes = Self {
            netns,
            own: links.iter().map(note).collect::<io::Result<_>>()?,
        };
        notes.own.iter().flatten().try_for_each(Note::leave)?;
        Ok(notes)
    }

    /// True if another call deleted all of the links.
    pub(super) fn are_gone(&self) -> bool {
        // Whoever can't tell goes on: there is nothing left to do if it was so.
        self.own
            .iter()
            .flatten()
            .all(|note| matches!(note.file.try_exists(), Ok(false)))
    }

    /// The notes of other calls in this namespace, as far as there is room for them. What speaks of
    /// no link any more is taken away.
    pub(super) fn of_others(&self, socket: &Socket) -> Vec<Note> {
        let Ok(entries) = fs::read_dir(ROOT) else {
            return Vec::new();
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let own = self.own.iter().flatten();
        let is_own = |note: &Note| own.clone().any(|own| own.file == note.file);
        let others = names
            .filter_map(|name| self.read(socket, &name))
            .filter(|note| !is_own(note));
        others.take(MOST.saturating_sub(self.own.len())).collect()
    }

    /// The note of this namespace that is called so.
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

    /// Takes the call's own away.
    pub(super) fn end(&self) {
        self.own.iter().flatten().for_each(Note::end);
    }
}
