//! Attachments whose `AF_XDP` sockets are refused: the map of the program `xsk_bind`.

use crate::sys::bpf::object::{HASH, Map, NO_PREALLOC, map_by_id, name_of, program_info};
use crate::sys::bpf::owned::{Owned, owner_of};
use braid_core::plan::thing::xsk_guard::XskBinding;
use braid_ebpf_types::hostport::OWNER_LEN;
use braid_ebpf_types::xsk::{HELD, Held, NUMBERS, Place};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Name of the map in the output of `bpftool map`.
pub(super) const NAME: &str = "braid_xsk";

/// Map of the attachments that may not bind `AF_XDP` sockets.
#[derive(Debug)]
pub(super) struct Holds(pub(super) Map<Place, Held>);

impl Holds {
    /// Creates an empty map.
    pub(super) fn create() -> Result<Self, Errno> {
        Ok(Self(Map::create(NAME, HASH, HELD, NO_PREALLOC)?))
    }

    /// Opens the map of a program. Returns `None` if the program has another name, or if its map
    /// has another layout.
    pub(super) fn of_program(program: &OwnedFd, name: &str) -> Result<Option<Self>, Errno> {
        let info = program_info(program)?;
        if info.name != name_of(name) {
            return Ok(None);
        }
        for id in info.map_ids {
            if id == 0 {
                continue;
            }
            // The other map of `xsk_bind` has a different key length.
            if let Ok(map) = map_by_id(id)
                && let Ok(map) = Map::of(map)
            {
                return Ok(Some(Self(map)));
            }
        }
        Ok(None)
    }

    /// Refuses `AF_XDP` sockets of an attachment on all links of a network namespace, given by its
    /// cookie. Returns `ENOSPC` if the namespace already has [`NUMBERS`] entries, and `E2BIG` if
    /// the node already has [`HELD`] entries.
    pub(super) fn hold(&self, netns: u64, owner: &str) -> Result<(), Errno> {
        let (text, owner_len) = owner_of(owner);
        let held = Held {
            refused: 0,
            link: 0,
            owner_len: owner_len.into(),
            owner: text,
        };
        // This entry is from an ADD that was not rolled back, perhaps for another link.
        if let Some((place, _)) = self.find(netns, owner)? {
            return self.0.set(&place, &held);
        }
        for place in places(netns) {
            match self.0.add(&place, &held) {
                Err(Errno::EEXIST) => {}
                added => return added,
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Restricts the entry of an attachment to one link. Returns `ENOENT` if there is no entry.
    pub(super) fn narrow(&self, netns: u64, owner: &str, link: u32) -> Result<(), Errno> {
        let (place, held) = self.find(netns, owner)?.ok_or(Errno::ENOENT)?;
        self.0.set(&place, &Held { link, ..held })
    }

    fn find(&self, netns: u64, owner: &str) -> Result<Option<(Place, Held)>, Errno> {
        for place in places(netns) {
            if let Some(held) = self.0.get(&place)?
                && held.owner_text() == owner
            {
                return Ok(Some((place, held)));
            }
        }
        Ok(None)
    }

    /// Deletes an owner's entry in one network namespace.
    pub(super) fn release(&self, netns: u64, owner: &str) -> Result<(), Errno> {
        match self.find(netns, owner)? {
            Some((place, _)) => self.0.del(&place),
            None => Ok(()),
        }
    }

    /// Deletes all entries of an owner.
    pub(super) fn release_all(&self, owner: &str) -> Result<(), Errno> {
        self.0.del_all_of(owner)
    }

    /// True if the map has no attachment.
    pub(super) fn are_empty(&self) -> Result<bool, Errno> {
        self.0.is_empty()
    }

    /// Lists all attachments in the map.
    pub(super) fn list(&self) -> Result<Vec<XskBinding>, Errno> {
        let mut bindings = Vec::new();
        for place in self.0.keys()? {
            let Some(held) = self.0.get(&place)? else {
                continue;
            };
            bindings.push(XskBinding {
                netns: place.netns,
                link: held.link,
                owner: held.owner_text(),
                refused: held.refused,
            });
        }
        Ok(bindings)
    }
}

impl AsRawFd for Holds {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns the possible keys for the entries of a network namespace.
fn places(netns: u64) -> impl Iterator<Item = Place> {
    (0..NUMBERS).map(move |number| Place {
        netns,
        number: number.into(),
    })
}

impl Owned for Held {
    fn owner(&self) -> (&[u8; OWNER_LEN], u16) {
        (
            &self.owner,
            u16::try_from(self.owner_len).unwrap_or(u16::MAX),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_one_entry_and_releases_only_it() {
        let holds = Holds::create().expect("a map");
        holds.hold(7, "net a eth0").expect("held");
        holds.hold(7, "net a eth0").expect("held already");
        holds.hold(7, "net a net1").expect("held as well");
        let owners = || {
            holds
                .list()
                .expect("read")
                .into_iter()
                .map(|hold| hold.owner)
                .collect::<Vec<_>>()
        };
        let mut all = owners();
        all.sort_unstable();
        assert_eq!(all, ["net a eth0", "net a net1"]);
        holds
            .release(8, "net a eth0")
            .expect("of another namespace");
        holds.release(7, "net a eth0").expect("released");
        assert_eq!(owners(), ["net a net1"]);
        assert_eq!(holds.are_empty(), Ok(false));
        holds
            .hold(7, "net a net1")
            .expect("held already, in another place than the first");
        assert_eq!(owners(), ["net a net1"]);
        holds.release_all("net a net1").expect("released");
        assert_eq!(holds.are_empty(), Ok(true));
    }

    #[test]
    fn attachment_is_narrowed_to_its_link() {
        let holds = Holds::create().expect("a map");
        holds.hold(7, "net a eth0").expect("held");
        holds.narrow(7, "net a eth0", 4).expect("narrowed");
        holds
            .hold(7, "net a eth0")
            .expect("held on all links again");
        holds.hold(7, "net a net1").expect("held as well");
        holds.narrow(7, "net a net1", 5).expect("narrowed");
        let mut links: Vec<_> = holds
            .list()
            .expect("read")
            .into_iter()
            .map(|hold| (hold.owner, hold.link))
            .collect();
        links.sort_unstable();
        assert_eq!(
            links,
            [("net a eth0".to_owned(), 0), ("net a net1".to_owned(), 5)]
        );
        assert_eq!(holds.narrow(8, "net a net1", 5), Err(Errno::ENOENT));
    }

    #[test]
    fn namespace_has_a_fixed_number_of_entries() {
        let holds = Holds::create().expect("a map");
        for number in 0..NUMBERS {
            holds.hold(7, &format!("net a net{number}")).expect("held");
        }
        assert_eq!(holds.hold(7, "net a eth0"), Err(Errno::ENOSPC));
        assert_eq!(holds.hold(8, "net a eth0"), Ok(()));
    }
}
