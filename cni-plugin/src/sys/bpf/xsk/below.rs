//! The program `xsk`: loaded for one link, and found again there. Nothing is pinned: program and map are there as long as the
//! link runs it.

use super::{Holds, NAME};
use crate::sys::bpf::object::{Map, ProgInfo, get_info, load, map_by_id, name_of, program_by_id};
use crate::sys::bpf::{query_tcx, tcx};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Made by `cargo xtask ebpf`.
const INSTRUCTIONS: &[u8] = include_bytes!("../xsk.insns");

/// A loaded program; the link that runs it keeps it and its map when this is gone.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    /// Whom it holds.
    pub holds: Holds,
}

impl Program {
    /// Loads it; it holds nobody yet. `EINVAL` before Linux 6.13, where no classifier can tell a network namespace.
    pub fn load() -> Result<Self, Errno> {
        let holds = Holds::create()?;
        let fd = load(NAME, INSTRUCTIONS, &[holds.as_raw_fd()])?;
        Ok(Self { fd, holds })
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
        Ok(Map::of(map_by_id(map_ids[0])?).ok().map(|held| Self { fd, holds: Holds(held) }))
    }

    /// Has a link run it before all others.
    pub fn attach(&self, index: u32) -> Result<(), Errno> {
        tcx::attach(index, &self.fd)
    }

    /// Takes it from a link.
    pub fn detach(&self, index: u32) -> Result<(), Errno> {
        tcx::detach(index, &self.fd)
    }
}

/// Whether the kernel takes the program.
pub(in crate::sys) fn probe() -> Result<(), Errno> {
    query_tcx()?;
    Program::load().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_program() {
        match probe() {
            // No kernel before Linux 6.13 does, and says so.
            Err(Errno::EINVAL) => eprintln!("SKIP: needs bpf_get_netns_cookie() for tc, Linux 6.13"),
            known => known.expect("the kernel takes it"),
        }
    }
}
