//! The program `xsk`: loaded for one link, and found again by a filter that runs it. Nothing is pinned: program and map are
//! there as long as the filters.

use super::object::{HASH, Map, NO_PREALLOC, ProgInfo, get_info, load, map_by_id, name_of, program_by_id};
use super::owned::{Owned, owner_of};
use braid_ebpf_types::hostport::OWNER_LEN;
use braid_ebpf_types::xsk::{HELD, Held, NUMBERS, Place};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Made by `cargo xtask ebpf`.
const INSTRUCTIONS: &[u8] = include_bytes!("xsk.insns");
/// As `bpftool prog` and `tc filter` show it, and its map.
pub const NAME: &str = "braid_xsk";

/// A loaded program; the filters that run it keep it and its map when this is gone.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    held: Map<Place, Held>,
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Program {
    /// Loads it; it holds nobody yet. `EINVAL` before Linux 6.13, where no classifier can tell a network namespace.
    pub fn load() -> Result<Self, Errno> {
        let held = Map::create(NAME, HASH, HELD, NO_PREALLOC)?;
        let fd = load(NAME, INSTRUCTIONS, &[held.as_raw_fd()])?;
        Ok(Self { fd, held })
    }

    /// The program with this id, as a filter shows it; none where it is not ours, or its map is of another layout.
    pub fn by_id(id: u32) -> Result<Option<Self>, Errno> {
        let fd = program_by_id(id)?;
        let mut map_ids = [0u32; 1];
        let mut info = ProgInfo { nr_map_ids: 1, map_ids: map_ids.as_mut_ptr() as u64, ..ProgInfo::default() };
        get_info(&fd, &mut info)?;
        if info.name != name_of(NAME) || info.nr_map_ids != 1 {
            return Ok(None);
        }
        Ok(Map::of(map_by_id(map_ids[0])?).ok().map(|held| Self { fd, held }))
    }

    /// Holds an attachment of a network namespace, by the namespace's cookie; `ENOSPC` where too many of one are held.
    pub fn hold(&self, netns: u64, owner: &str) -> Result<(), Errno> {
        let (text, owner_len) = owner_of(owner);
        let held = Held { dropped: 0, owner_len: owner_len.into(), owner: text };
        for number in 0..NUMBERS {
            let place = Place { netns, number: number.into() };
            match self.held.add(&place, &held) {
                Err(Errno::EEXIST) if self.held.get(&place)?.is_none_or(|there| there.owner_text() != owner) => {}
                Err(Errno::EEXIST) => return Ok(()),
                added => return added,
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Ends all of an owner's.
    pub fn release(&self, owner: &str) -> Result<(), Errno> {
        self.held.del_all_of(owner)
    }

    /// Whether it holds nobody.
    pub fn is_idle(&self) -> Result<bool, Errno> {
        self.held.is_empty()
    }

    /// Whom it holds, and how many packets of each did not pass.
    pub fn held(&self) -> Result<Vec<(String, u64)>, Errno> {
        Ok(self.held.values()?.iter().map(|held| (held.owner_text(), held.dropped)).collect())
    }
}

/// Whether the kernel takes the program.
pub(in crate::sys) fn probe() -> Result<(), Errno> {
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

    /// None of a kernel before Linux 6.13.
    fn program() -> Option<Program> {
        Program::load().ok()
    }

    #[test]
    fn each_owner_is_held_once_and_released_alone() {
        let Some(program) = program() else { return };
        program.hold(7, "net a eth0").expect("held");
        program.hold(7, "net a eth0").expect("held already");
        program.hold(7, "net a net1").expect("held as well");
        let owners = || program.held().expect("read").into_iter().map(|(owner, _)| owner).collect::<Vec<_>>();
        let mut all = owners();
        all.sort_unstable();
        assert_eq!(all, ["net a eth0", "net a net1"]);
        program.release("net a eth0").expect("released");
        assert_eq!(owners(), ["net a net1"]);
        assert_eq!(program.is_idle(), Ok(false));
        program.release("net a net1").expect("released");
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
