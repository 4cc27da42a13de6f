//! Programs that see what leaves a link before all others do (tcx, Linux 6.6). The kernel takes them away with the link.

use super::object::raw;
use super::{PROG_QUERY, Query, TCX_EGRESS, call};
use nix::errno::Errno;
use std::os::fd::OwnedFd;

const PROG_ATTACH: libc::c_long = 8;
const PROG_DETACH: libc::c_long = 9;
/// `BPF_F_BEFORE`: without another to stand before, first of all.
const BEFORE: u32 = 1 << 3;
/// As many as a link has room for (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// Start of `union bpf_attr` for `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
#[repr(C)]
#[derive(Default)]
struct Change {
    /// A link's index.
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
    relative: u32,
    revision: u64,
}

fn at(index: u32, program: &OwnedFd) -> Change {
    Change { target: index, program: raw(program), attach_type: TCX_EGRESS, ..Change::default() }
}

/// Puts a program before all others of a link of this thread's namespace. The kernel waits an RCU grace period.
pub(super) fn attach(index: u32, program: &OwnedFd) -> Result<(), Errno> {
    call(PROG_ATTACH, &mut Change { flags: BEFORE, ..at(index, program) }).map(drop)
}

/// Takes it away; `ENOENT` where it is not there, `ENODEV` where the link is not.
pub(super) fn detach(index: u32, program: &OwnedFd) -> Result<(), Errno> {
    call(PROG_DETACH, &mut at(index, program)).map(drop)
}

/// The ids of a link's programs, the first one first; none where there is no such link, or no tcx.
pub(super) fn ids(index: u32) -> Result<Vec<u32>, Errno> {
    let mut ids = [0u32; MOST];
    let mut query = Query {
        target: index,
        attach_type: TCX_EGRESS,
        prog_ids: ids.as_mut_ptr() as u64,
        prog_cnt: u32::try_from(MOST).unwrap_or_default(),
        ..Query::default()
    };
    match call(PROG_QUERY, &mut query) {
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EINVAL | Errno::ENOSYS) => return Ok(Vec::new()),
        asked => asked?,
    };
    let count = usize::try_from(query.prog_cnt).unwrap_or_default().min(MOST);
    Ok(ids[..count].to_vec())
}
