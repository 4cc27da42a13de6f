//! Tap devices. rtnetlink cannot create them, so they are created through `/dev/net/tun`. A tap is
//! created in the namespace of the thread that opens `/dev/net/tun`.

#![expect(unsafe_code, reason = "the driver takes ioctls")]

use braid_core::name::IfName;
use nix::errno::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const DRIVER: &str = "/dev/net/tun";

/// A tap that is deleted when this value is dropped, unless [`Tap::keep`] is called.
#[derive(Debug)]
pub struct Tap(File);

/// Options of a new tap.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// User that may open the tap.
    pub owner: Option<u32>,
    /// Group that may open the tap.
    pub group: Option<u32>,
    /// True if a program may open the tap several times.
    pub multi_queue: bool,
    /// True if frames have a virtio header.
    pub vnet_hdr: bool,
}

/// `struct ifreq`, with the length that the kernel copies.
#[repr(C)]
struct IfReq {
    name: [u8; IfName::MAX_LEN + 1],
    flags: u16,
    _rest: [u8; 22],
}

impl Tap {
    /// Creates a tap in the namespace of this thread. Fails if a link has the name already.
    pub fn make(name: &IfName, options: &Options) -> io::Result<Self> {
        let tap = Self(File::options().read(true).write(true).open(DRIVER)?);
        let set = |flag: libc::c_int, is_set: bool| if is_set { flag } else { 0 };
        let flags = libc::IFF_TAP
            | libc::IFF_NO_PI
            | libc::IFF_TUN_EXCL
            | set(libc::IFF_MULTI_QUEUE, options.multi_queue)
            | set(libc::IFF_VNET_HDR, options.vnet_hdr);
        let flags = u16::try_from(flags).unwrap_or_default();
        let mut request = IfReq {
            name: [0; _],
            flags,
            _rest: [0; 22],
        };
        let name = name.as_str().as_bytes();
        request.name[..name.len()].copy_from_slice(name);
        // SAFETY: the descriptor is open, and the request lives until the call returns.
        Errno::result(unsafe {
            libc::ioctl(tap.0.as_raw_fd(), libc::TUNSETIFF, &raw mut request)
        })?;
        for (what, id) in [
            (libc::TUNSETOWNER, options.owner),
            (libc::TUNSETGROUP, options.group),
        ] {
            id.map_or(Ok(()), |id| tap.set(what, id.into()))?;
        }
        Ok(tap)
    }

    /// Makes the tap persistent, so that it outlives this value.
    pub fn keep(self) -> io::Result<()> {
        self.set(libc::TUNSETPERSIST, 1)
    }

    fn set(&self, what: libc::Ioctl, value: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the descriptor is open, and these requests take a number.
        Errno::result(unsafe { libc::ioctl(self.0.as_raw_fd(), what, value) })?;
        Ok(())
    }
}
