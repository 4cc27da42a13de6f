//! Operational state of a link, by `ioctl`. rtnetlink's reply includes all other attributes of the
//! link, which takes the kernel ten times as long.

#![expect(unsafe_code, reason = "a request points to a value beside it")]

use super::release::is_at_least;
use braid_core::name::IfName;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// `struct ifreq`, with the length that the kernel copies.
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

/// True if the link is known to be operationally up, in the namespace in which `socket` was opened.
/// False also if the state cannot be determined.
///
/// A link with a new carrier is up once a kernel thread has processed the carrier. Since Linux 6.8,
/// the kernel processes the carrier immediately if a caller reads it (`net/ethtool/ioctl.c`,
/// `ethtool_op_get_link()`). Before Linux 6.8, this function always returns false. There, a new
/// link in state `IF_OPER_UNKNOWN` cannot be told from a link that is up: both have the same flags.
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
        // A netkit has a carrier, but does not report it here (v6.12 drivers/net/netkit.c,
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
    // SAFETY: `socket` is open. The request and the memory that it points to live until the call
    // returns.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what, &raw mut request) };
    Errno::result(answer)?;
    Ok(request.value)
}
