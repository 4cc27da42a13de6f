//! Programs attached to a link by tcx, which only earlier versions of braid used.

use super::object::raw;
use super::{PROG_QUERY, Query, call};
use nix::errno::Errno;
use std::os::fd::OwnedFd;

#[cfg(test)]
const PROG_ATTACH: libc::c_long = 8;
const PROG_DETACH: libc::c_long = 9;
const TCX_EGRESS: u32 = 47;
/// Maximum number of programs on a link (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// Lists the ids of the egress programs on a link of this thread's namespace.
pub(crate) fn programs(link: u32) -> Result<Vec<u32>, Errno> {
    let mut ids = vec![0; MOST];
    let (prog_ids, prog_cnt) = (
        ids.as_mut_ptr() as u64,
        u32::try_from(MOST).unwrap_or_default(),
    );
    call(
        PROG_QUERY,
        &mut Query {
            target: link,
            attach_type: TCX_EGRESS,
            prog_ids,
            prog_cnt,
            ..Query::default()
        },
    )?;
    ids.retain(|id| *id != 0);
    Ok(ids)
}

/// Detaches a program.
pub(crate) fn detach(link: u32, program: &OwnedFd) -> Result<(), Errno> {
    call(PROG_DETACH, &mut [link, raw(program), TCX_EGRESS]).map(drop)
}

#[cfg(test)]
pub(crate) fn attach(link: u32, program: &OwnedFd) -> Result<(), Errno> {
    call(PROG_ATTACH, &mut [link, raw(program), TCX_EGRESS]).map(drop)
}
