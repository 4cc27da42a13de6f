//! The bpf system call: maps and programs, their pins, and attachment of programs.

#![expect(unsafe_code, reason = "the system call has no wrapper")]

pub(crate) mod btf;
pub(crate) mod link;
pub(crate) mod lsm;
pub(crate) mod made;
pub(crate) mod object;
pub(crate) mod owned;
pub(crate) mod pins;

use nix::errno::Errno;
use std::os::fd::{FromRawFd, OwnedFd};

const LOAD: libc::c_long = 5;
const PROG_QUERY: libc::c_long = 16;
const SCHED_CLS: u32 = 3;

/// Start of `union bpf_attr` for `BPF_PROG_LOAD`. The kernel takes the fields after it as zero.
#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// Start of `union bpf_attr` for `BPF_PROG_QUERY`. `target` is a link's index for tcx, and a file
/// descriptor for a cgroup.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    /// The kernel writes this field even if the caller's struct ends before it.
    revision: u64,
}

// Size of `query` in `union bpf_attr` in Linux 6.6.
const _: () = assert!(size_of::<Query>() == 4 * 4 + 8 + 2 * 4 + 4 * 8);

/// Tests if the kernel loads a minimal classifier: an atomic exchange (Linux 5.12), which the
/// shaping program needs, and an exit.
pub(crate) fn load_classifier() -> Result<(), Errno> {
    // r1 = 0; *(r10-8) = r1; r1 = xchg(r10-8, r1); r0 = 0; exit, as struct bpf_insn: code,
    // registers, offset, immediate.
    const PROGRAM: [[u8; 8]; 5] = [
        [0xb7, 0x01, 0, 0, 0, 0, 0, 0],
        [0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],
        [0xdb, 0x1a, 0xf8, 0xff, 0xe1, 0, 0, 0],
        [0xb7, 0x00, 0, 0, 0, 0, 0, 0],
        [0x95, 0x00, 0, 0, 0, 0, 0, 0],
    ];
    let mut attr = Load {
        prog_type: SCHED_CLS,
        insn_cnt: u32::try_from(PROGRAM.len()).unwrap_or_default(),
        insns: PROGRAM.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        ..Load::default()
    };
    fd_of(call(LOAD, &mut attr)?).map(drop)
}

/// Wraps the file descriptor that a call returned.
fn fd_of(returned: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = i32::try_from(returned).or(Err(Errno::EBADF))?;
    // SAFETY: the kernel has just returned this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call<T>(command: libc::c_long, attr: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: pointer and size describe `attr`, a `repr(C)` struct of integers that only this call
    // uses until it returns. The same is true of the memory at its addresses. The kernel writes
    // back only integers within that size.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    })
}
