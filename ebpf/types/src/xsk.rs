//! The maps of the program `xsk_bind`, which holds the `AF_XDP` sockets of limited containers.

use crate::hostport::OWNER_LEN;

/// Most attachments that are held.
pub const HELD: usize = 4096;
/// Most of them in one network namespace.
pub const NUMBERS: u32 = 8;

/// Key of an attachment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The cookie of the container's network namespace (`SO_NETNS_COOKIE`).
    pub netns: u64,
    /// Which of the attachments of that namespace it is, below [`NUMBERS`].
    pub number: u64,
}

/// An attachment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// How many sockets were refused.
    pub refused: u64,
    /// Index of the only link that is held; 0 for all of the namespace.
    pub link: u32,
    /// How many bytes of `owner` there are.
    pub owner_len: u32,
    /// Network, container id and interface; the program does not look at it.
    pub owner: [u8; OWNER_LEN],
}

/// Where the running kernel's structs have what `xsk_bind` follows, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// `sk` of `struct socket`.
    pub socket_sk: u32,
    /// `skc_net` of `struct sock_common`, with which a `struct sock` begins.
    pub sock_net: u32,
    /// `net_cookie` of `struct net`.
    pub net_cookie: u32,
}

const _: () = assert!(size_of::<Place>() == 16);
const _: () = assert!(size_of::<Held>() == 2 * 8 + OWNER_LEN);
const _: () = assert!(size_of::<Offsets>() == 12);
