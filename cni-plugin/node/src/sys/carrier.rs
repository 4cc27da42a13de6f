//! Operational state and speed of a link, by `ioctl`. rtnetlink's reply includes all other attributes
//! of the link, which takes the kernel ten times as long, and not the speed.

#![expect(unsafe_code, reason = "a request points to a value beside it")]

use super::release::is_at_least;
use braid_core::name::IfName;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd};

const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `struct ifreq`, with the length that the kernel copies.
#[repr(C)]
struct IfReq {
    name: [u8; IfName::MAX_LEN + 1],
    value: Value,
}

#[repr(C)]
union Value {
    flags: libc::c_short,
    data: *mut libc::c_void,
    _len: [u64; 3],
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_cmd`. Fields that are not read have other names.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    command: u32,
    _modes: [u32; 2],
    /// Lower half of the speed.
    speed: u16,
    _port: [u8; 6],
    _packets: [u32; 2],
    /// Upper half of the speed.
    speed_hi: u16,
    _pairs: [u8; 2],
    _partner: [u32; 3],
}

// 3 * 4 + 2 + 6 + 2 * 4 + 2 + 2 + 3 * 4 (include/uapi/linux/ethtool.h).
const _: () = assert!(size_of::<EthtoolCmd>() == 44);

/// Returns the speed of a link in Mbit/s, in the namespace in which `socket` was opened; `None` if its
/// driver does not know it, as without a carrier.
///
/// `ETHTOOL_GSET` is the older request, which the kernel converts for all drivers.
pub fn speed_mbit(socket: &impl AsFd, link: &IfName) -> Result<Option<u32>, Errno> {
    const ETHTOOL_GSET: u32 = 0x1;
    let mut settings = EthtoolCmd {
        command: ETHTOOL_GSET,
        ..EthtoolCmd::default()
    };
    let data = (&raw mut settings).cast();
    match ask(socket, SIOCETHTOOL, link, Value { data }) {
        Ok(_) => {}
        // The driver has no speed, or the device is asleep.
        Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    let speed = u32::from(settings.speed_hi) << 16 | u32::from(settings.speed);
    // SPEED_UNKNOWN is -1. Drivers also say 0, or 65535 as the lower half alone.
    let unknown = [0, u32::from(u16::MAX), u32::MAX];
    Ok(Some(speed).filter(|speed| !unknown.contains(speed)))
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
            data: (&raw mut carrier).cast(),
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
