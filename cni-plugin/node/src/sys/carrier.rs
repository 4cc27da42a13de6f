//! State of a link, up or not, asked by `ioctl`. rtnetlink's answer holds all else that is known of
//! the link, which takes the kernel ten times as long to write.

#![expect(unsafe_code, reason = "a request points to a value beside it")]

use super::release::is_at_least;
use braid_core::name::IfName;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// `struct ifreq`, as long as the kernel copies it.
#[repr(C)]
struct IfReq {
    name: [u8; IfName::MAX_LEN + 1],
    value: Value,
}

#[repr(C)]
union Value {
    flags: libc::c_short,
    data: *mut EthtoolValue,
    _len: [u64; 3],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// True if the link is seen to be operationally up, in the namespace that `socket` was opened in;
/// false where it may be up and this can't tell.
///
/// A link whose carrier has just come is up when the kernel has dealt with that. Its own thread
/// does so soon; Linux 6.8 does so at once for who asks for the carrier (`net/ethtool/ioctl.c`,
/// `ethtool_op_get_link()`). Before that a new link, of which the kernel knows nothing yet
/// (`IF_OPER_UNKNOWN`), has the same flags as one that is up.
pub fn is_up(socket: &impl AsFd, link: &IfName) -> Result<bool, Errno> {
    const ETHTOOL_GLINK: u32 = 0xa;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    if !is_at_least(6, 8) {
        return Ok(false);
    }
    let mut carrier = EthtoolValue {
        command: ETHTOOL_GLINK,
        data: 0,
    };
    match ask(
        socket,
        SIOCETHTOOL,
        link,
        Value {
            data: &raw mut carrier,
        },
    ) {
        Ok(_) if carrier.data == 0 => return Ok(false),
        Ok(_) => {}
        // A netkit has a carrier, but tells nobody of it here (v6.12 drivers/net/netkit.c,
        // `netkit_ethtool_ops`).
        Err(Errno::EOPNOTSUPP) => return Ok(false),
        Err(errno) => return Err(errno),
    }
    let answer = ask(
        socket,
        libc::SIOCGIFFLAGS as libc::Ioctl,
        link,
        Value { flags: 0 },
    )?;
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { answer.flags };
    Ok(libc::c_int::from(flags) & libc::IFF_RUNNING != 0)
}

fn ask(socket: &impl AsFd, what: libc::Ioctl, link: &IfName, value: Value) -> Result<Value, Errno> {
    let name = link.as_str().as_bytes();
    let mut request = IfReq {
        name: [0; _],
        value,
    };
    request.name[..name.len()].copy_from_slice(name);
    // SAFETY: `socket` is open, and the request and what it points to live until the call returns.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut request) };
    Errno::result(answer).map(|_| request.value)
}
