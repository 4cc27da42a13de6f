//! BPF links, which attach programs to a cgroup (Linux 5.7) or elsewhere. The kernel detaches a
//! program when the last descriptor or pin of its link is closed, so a killed call leaves no
//! untracked program.

use super::object::{get_info, raw};
use super::{PROG_QUERY, Query, call, fd_of};
use nix::errno::Errno;
use std::os::fd::OwnedFd;

const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;
/// `BPF_F_ALLOW_MULTI`, which links imply: other programs may be attached as well.
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

/// Attaches the program to the cgroup and its descendants, for the lifetime of the returned link.
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

/// Detaches the program immediately, without waiting for the link to be released.
pub(crate) fn detach(link: &OwnedFd) -> Result<(), Errno> {
    call(LINK_DETACH, &mut Detach { link_fd: raw(link) })?;
    Ok(())
}

/// Returns the attach type of the link's program; `None` if the program was detached.
pub(crate) fn attached_to(link: &OwnedFd) -> Result<Option<u32>, Errno> {
    let mut info = Info::default();
    get_info(link, &mut info)?;
    Ok((info.cgroup_id != 0).then_some(info.attach_type))
}

/// Returns the id of a link's program, for any kind of link.
pub(crate) fn program(link: &OwnedFd) -> Result<u32, Errno> {
    let mut info = Info::default();
    get_info(link, &mut info)?;
    Ok(info.prog_id)
}

/// Checks that more programs can be attached to the cgroup for this attach type. Fails with `EPERM`
/// if the cgroup has a program that allows no others.
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
