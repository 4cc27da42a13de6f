//! The program `xsk`: loaded for one link, and found again there. Nothing is pinned: program and map are there as long as the
//! link runs it.

use super::object::{HASH, Map, NO_PREALLOC, ProgInfo, get_info, load, map_by_id, name_of, program_by_id};
use super::owned::{Owned, owner_of};
use super::{query_tcx, tcx};
use crate::plan::xsk::Hold;
use braid_ebpf_types::hostport::OWNER_LEN;
use braid_ebpf_types::xsk::{HELD, Held, NUMBERS, Place};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Made by `cargo xtask ebpf`.
const INSTRUCTIONS: &[u8] = include_bytes!("xsk.insns");
/// As `bpftool prog` and `bpftool net` show it, and its map.
const NAME: &str = "braid_xsk";

/// A loaded program; the link that runs it keeps it and its map when this is gone.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    held: Map<Place, Held>,
}

impl Program {
    /// Loads it; it holds nobody yet. `EINVAL` before Linux 6.13, where no classifier can tell a network namespace.
    pub fn load() -> Result<Self, Errno> {
        let held = Map::create(NAME, HASH, HELD, NO_PREALLOC)?;
        let fd = load(NAME, INSTRUCTIONS, &[held.as_raw_fd()])?;
        Ok(Self { fd, held })
    }

    /// The one that a link of this thread's namespace runs; none where it runs none, or one whose map is of another layout.
    pub fn of_link(index: u32) -> Result<Option<Self>, Errno> {
        for id in tcx::ids(index)? {
            match Self::by_id(id) {
                // It went meanwhile.
                Err(Errno::ENOENT) | Ok(None) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    fn by_id(id: u32) -> Result<Option<Self>, Errno> {
        let fd = program_by_id(id)?;
        let mut map_ids = [0u32; 1];
        let mut info = ProgInfo { nr_map_ids: 1, map_ids: map_ids.as_mut_ptr() as u64, ..ProgInfo::default() };
        get_info(&fd, &mut info)?;
        if info.name != name_of(NAME) || info.nr_map_ids != 1 {
            return Ok(None);
        }
        Ok(Map::of(map_by_id(map_ids[0])?).ok().map(|held| Self { fd, held }))
    }

    /// Has a link run it before all others.
    pub fn attach(&self, index: u32) -> Result<(), Errno> {
        tcx::attach(index, &self.fd)
    }

    /// Takes it from a link.
    pub fn detach(&self, index: u32) -> Result<(), Errno> {
        tcx::detach(index, &self.fd)
    }

    /// Holds an attachment of a network namespace, by the namespace's cookie; `ENOSPC` where [`NUMBERS`] of it are held, `E2BIG`
    /// where [`HELD`] of the link are.
    pub fn hold(&self, netns: u64, owner: &str) -> Result<(), Errno> {
        let (text, owner_len) = owner_of(owner);
        let held = Held { dropped: 0, owner_len: owner_len.into(), owner: text };
        for place in places(netns) {
            match self.held.add(&place, &held) {
                Err(Errno::EEXIST) if self.held.get(&place)?.is_none_or(|there| there.owner_text() != owner) => {}
                Err(Errno::EEXIST) => return Ok(()),
                added => return added,
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Ends what an owner has in one network namespace.
    pub fn release(&self, netns: u64, owner: &str) -> Result<(), Errno> {
        places(netns).try_for_each(|place| self.held.del_of(&place, owner))
    }

    /// Ends all of an owner's.
    pub fn release_all(&self, owner: &str) -> Result<(), Errno> {
        self.held.del_all_of(owner)
    }

    /// Whether it holds nobody.
    pub fn is_idle(&self) -> Result<bool, Errno> {
        self.held.is_empty()
    }

    /// Whom it holds.
    pub fn held(&self) -> Result<Vec<Hold>, Errno> {
        let hold = |place: &Place| {
            let held = self.held.get(place)?;
            Ok(held.map(|held| Hold { netns: place.netns, owner: held.owner_text(), dropped: held.dropped }))
        };
        let held: Result<Vec<Option<Hold>>, Errno> = self.held.keys()?.iter().map(hold).collect();
        Ok(held?.into_iter().flatten().collect())
    }
}

/// All places of a network namespace.
fn places(netns: u64) -> impl Iterator<Item = Place> {
    (0..NUMBERS).map(move |number| Place { netns, number: number.into() })
}

/// Whether the kernel takes the program.
pub(in crate::sys) fn probe() -> Result<(), Errno> {
    query_tcx()?;
    Program::load().map(drop)
}

impl Owned for Held {
    fn owner(&self) -> (&[u8; OWNER_LEN], u16) {
        (&self.owner, u16::try_from(self.owner_len).unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None of a kernel before Linux 6.13, which says so; on others the program must load.
    fn program() -> Option<Program> {
        match probe() {
            Err(Errno::EINVAL) => {
                eprintln!("SKIP: needs bpf_get_netns_cookie() for tc, Linux 6.13");
                None
            }
            known => known.and_then(|()| Program::load()).map(Some).expect("the kernel takes it"),
        }
    }

    #[test]
    fn each_owner_is_held_once_and_released_alone() {
        let Some(program) = program() else { return };
        program.hold(7, "net a eth0").expect("held");
        program.hold(7, "net a eth0").expect("held already");
        program.hold(7, "net a net1").expect("held as well");
        let owners = || program.held().expect("read").into_iter().map(|hold| hold.owner).collect::<Vec<_>>();
        let mut all = owners();
        all.sort_unstable();
        assert_eq!(all, ["net a eth0", "net a net1"]);
        program.release(8, "net a eth0").expect("of another namespace");
        program.release(7, "net a eth0").expect("released");
        assert_eq!(owners(), ["net a net1"]);
        assert_eq!(program.is_idle(), Ok(false));
        program.release_all("net a net1").expect("released");
        assert_eq!(program.is_idle(), Ok(true));
    }

    #[test]
    fn a_namespace_has_room_for_so_many() {
        let Some(program) = program() else { return };
        for number in 0..NUMBERS {
            program.hold(7, &format!("net a net{number}")).expect("held");
        }
        assert_eq!(program.hold(7, "net a eth0"), Err(Errno::ENOSPC));
        assert_eq!(program.hold(8, "net a eth0"), Ok(()));
    }
}
