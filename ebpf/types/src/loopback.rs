//! The maps of the programs that lead sockets of the host from `[::1]` to containers.

use crate::hostport::{Address, OWNER_LEN};

/// Most sockets whose peer is shown as `[::1]`; beyond that the one used longest ago is forgotten.
pub const SOCKETS: usize = 8192;

/// Key of a port at `::1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// In network byte order.
    pub number: u16,
    /// As in the IP header.
    pub protocol: u8,
    /// 1 where it is that of all addresses of the host, 0 where it is that of `::1` alone, which
    /// goes before.
    pub is_any: u8,
}

/// Where a port at `::1` leads.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Cookie of the network namespace whose sockets are led.
    pub netns: u64,
    /// The container's.
    pub addr: Address,
    /// In network byte order.
    pub port: u16,
    /// How many bytes of `owner` there are.
    pub owner_len: u16,
    /// Nothing.
    pub padding: u32,
    /// Network, container id and interface; the programs do not look at it.
    pub owner: [u8; OWNER_LEN],
}

/// Key of what a socket was led to. Its value is the port at `::1`, in network byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Cookie of the socket.
    pub socket: u64,
    /// The container's.
    pub addr: Address,
    /// In network byte order.
    pub port: u32,
    /// Nothing.
    pub padding: u32,
}

const _: () = assert!(size_of::<Port>() == 2 + 1 + 1);
const _: () = assert!(size_of::<Target>() == 8 + 16 + 2 + 2 + 4 + OWNER_LEN);
const _: () = assert!(size_of::<Peer>() == 8 + 16 + 4 + 4);
