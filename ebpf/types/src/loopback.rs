//! Maps of the programs that redirect host sockets from `[::1]` to containers.

use crate::hostport::{Address, OWNER_LEN};

/// Maximum number of sockets whose peer is shown as `[::1]`; beyond it the least recently used is
/// evicted.
pub const SOCKETS: usize = 8192;

/// Map key of a port on `::1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port in network byte order.
    pub number: u16,
    /// Protocol number of the IP header.
    pub protocol: u8,
    /// 1 if the port is for all host addresses, 0 if it is for `::1` alone. An entry for `::1`
    /// alone takes precedence.
    pub is_any: u8,
}

/// Destination of a port on `::1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Cookie of the network namespace whose sockets are redirected.
    pub netns: u64,
    /// Address of the container.
    pub addr: Address,
    /// Port in network byte order.
    pub port: u16,
    /// Used bytes of `owner`.
    pub owner_len: u16,
    /// Padding, always 0.
    pub padding: u32,
    /// Network, container id and interface; the programs do not read it.
    pub owner: [u8; OWNER_LEN],
}

/// Map key of a redirected socket. The map's value is the port on `::1` that the socket requested,
/// in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Cookie of the socket.
    pub socket: u64,
    /// Address of the container.
    pub addr: Address,
    /// Port in network byte order.
    pub port: u32,
    /// Padding, always 0.
    pub padding: u32,
}

const _: () = assert!(size_of::<Port>() == 2 + 1 + 1);
const _: () = assert!(size_of::<Target>() == 8 + 16 + 2 + 2 + 4 + OWNER_LEN);
const _: () = assert!(size_of::<Peer>() == 8 + 16 + 4 + 4);
