//! Maps of the program `xsk_bind`, which refuses `AF_XDP` sockets of rate-limited containers.

use crate::hostport::OWNER_LEN;

/// Maximum number of attachments whose `AF_XDP` sockets are refused.
pub const HELD: usize = 4096;
/// Maximum number of attachments with refused sockets in one network namespace.
pub const NUMBERS: u32 = 8;

/// Map key of an attachment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Cookie of the container's network namespace (`SO_NETNS_COOKIE`).
    pub netns: u64,
    /// Number of the attachment within the namespace, below [`NUMBERS`].
    pub number: u64,
}

/// An attachment whose `AF_XDP` sockets are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Number of refused sockets.
    pub refused: u64,
    /// Index of the only link for which sockets are refused; 0 for all links of the namespace.
    pub link: u32,
    /// Used bytes of `owner`.
    pub owner_len: u32,
    /// Network, container id and interface; the program does not read it.
    pub owner: [u8; OWNER_LEN],
}

/// Offsets in bytes of the running kernel's struct fields that `xsk_bind` reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of `sk` in `struct socket`.
    pub socket_sk: u32,
    /// Offset of `skc_net` in `struct sock_common`, the start of `struct sock`.
    pub sock_net: u32,
    /// Offset of `net_cookie` in `struct net`.
    pub net_cookie: u32,
}

const _: () = assert!(size_of::<Place>() == 16);
const _: () = assert!(size_of::<Held>() == 2 * 8 + OWNER_LEN);
const _: () = assert!(size_of::<Offsets>() == 12);
