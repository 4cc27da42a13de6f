//! LSM programs, which the kernel calls to permit or refuse an operation (Linux 5.7).

use super::object::raw;
use super::{call, fd_of};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

const RAW_TRACEPOINT_OPEN: libc::c_long = 17;

/// Start of `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct Open {
    /// Zero, since the program was loaded for one kernel function.
    name: u64,
    prog_fd: u32,
    padding: u32,
}

/// Attaches the program for the lifetime of the returned link.
pub(crate) fn attach(program: &OwnedFd) -> Result<OwnedFd, Errno> {
    fd_of(call(
        RAW_TRACEPOINT_OPEN,
        &mut Open {
            name: 0,
            prog_fd: raw(program),
            padding: 0,
        },
    )?)
}

/// Tests the attached LSM program: tries to bind a Unix socket to an `AF_XDP` address. The kernel
/// calls LSM programs before it checks the address family. The programs see only the address, so
/// the type of the socket does not matter.
pub(crate) fn bind_as_xdp() -> Result<(), Errno> {
    let socket = UnixDatagram::unbound()
        .map_err(|err| err.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let family = u16::try_from(libc::AF_XDP).or(Err(Errno::EAFNOSUPPORT))?;
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&family.to_ne_bytes());
    // SAFETY: the descriptor is open, and the kernel reads the sixteen bytes of the address.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), 16) };
    Errno::result(answer)?;
    Ok(())
}
