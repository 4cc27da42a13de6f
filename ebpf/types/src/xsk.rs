//! The map of the program `xsk`, which holds what `AF_XDP` sockets of limited containers send.

use crate::hostport::OWNER_LEN;

/// Most attachments of one link that are held.
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
    /// How many packets did not pass.
    pub dropped: u64,
    /// How many bytes of `owner` there are.
    pub owner_len: u64,
    /// Network, container id and interface; the program does not look at it.
    pub owner: [u8; OWNER_LEN],
}

const _: () = assert!(size_of::<Place>() == 16);
const _: () = assert!(size_of::<Held>() == 2 * 8 + OWNER_LEN);
