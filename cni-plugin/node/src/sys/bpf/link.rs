//! Links of programs to a cgroup (Linux 5.7), and of others: the kernel takes a program away with
//! the last descriptor or pin of its link, so that a call which is killed leaves nothing behind
//! that nobody finds.

use super::object::{get_info, raw};
use super::{PROG_QUERY, Query, call, fd_of};
use nix::errno::Errno;
use std::os::fd::OwnedFd;

const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;
/// `BPF_F_ALLOW_MULTI`, which links imply: others hang there as well.
const ALLOW_MULTI: u32 = 2;

/// Start of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct Create {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

/// `union bpf_attr` for `BPF_LINK_DETACH`.
#[repr(C)]
struct Detach {
    link_fd: u32,
}

/// Start of `struct bpf_link_info` of a link to a cgroup.
#[repr(C)]
#[derive(Default)]
struct Info {
    link_type: u32,
    id: u32,
    prog_id: u32,
    padding: u32,
    cgroup_id: u64,
    attach_type: u32,
    end: u32,
}

/// Has the program run for the cgroup and all below, as long as the link is held.
pub(crate) fn create(
    program: &OwnedFd,
    cgroup: &OwnedFd,
    attach_type: u32,
) -> Result<OwnedFd, Errno> {
    let mut attr = Create {
        prog_fd: raw(program),
        target_fd: raw(cgroup),
        attach_type,
        flags: 0,
    };
    fd_of(call(LINK_CREATE, &mut attr)?)
}

/// Takes the program away at once, and not when the kernel comes to it.
pub(crate) fn detach(link: &OwnedFd) -> Result<(), Errno> {
    call(LINK_DETACH, &mut Detach { link_fd: raw(link) }).map(drop)
}

/// Attach type of the link's program; none where somebody took it away.
pub(crate) fn attached_to(link: &OwnedFd) -> Result<Option<u32>, Errno> {
    let mut info = Info::default();
    get_info(link, &mut info)?;
    Ok((info.cgroup_id != 0).then_some(info.attach_type))
}

/// The number of a link's program, of whatever kind the link is.
pub(crate) fn program(link: &OwnedFd) -> Result<u32, Errno> {
    let mut info = Info::default();
    get_info(link, &mut info)?;
    Ok(info.prog_id)
}

/// `EPERM` where somebody has the cgroup's place for himself.
pub(crate) fn is_open_to_all(cgroup: &OwnedFd, attach_type: u32) -> Result<(), Errno> {
    let mut attr = Query {
        target: raw(cgroup),
        attach_type,
        ..Query::default()
    };
    call(PROG_QUERY, &mut attr)?;
    let is_alone = attr.attach_flags & ALLOW_MULTI == 0 && attr.prog_cnt > 0;
    if is_alone { Err(Errno::EPERM) } else { Ok(()) }
}
