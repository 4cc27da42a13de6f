//! Tap links, with frames read and written by a program.

use serde::{Deserialize, Serialize};
use std::ops::{Not, RangeInclusive};

/// MTUs that a tap can have, in bytes. The largest packet has 65,535 with its Ethernet header
/// (v6.12 `drivers/net/tun.c`, `tun_net_initialize()`).
pub const TAP_MTUS: RangeInclusive<u32> = 68..=65_521;

/// Properties that a tap gets when it is created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// User that may open it; if `None`, `CAP_NET_ADMIN` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Group that may open it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// A program may open it several times (multi-queue).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub multi_queue: bool,
    /// Each frame starts with a virtio header, unless the program that opens the tap changes that.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub vnet_hdr: bool,
    /// `SELinux` context of the process that creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Tap {
    /// Returns the words of `ip tuntap add` after the name.
    pub fn options(&self) -> Vec<String> {
        let mut words = vec!["mode".to_owned(), "tap".to_owned()];
        let numbers = [("user", self.owner), ("group", self.group)];
        words.extend(
            numbers
                .iter()
                .filter_map(|(word, id)| id.map(|id| format!("{word} {id}"))),
        );
        let flags = [
            ("multi_queue", self.multi_queue),
            ("vnet_hdr", self.vnet_hdr),
        ];
        words.extend(
            flags
                .iter()
                .filter(|(_, is_set)| *is_set)
                .map(|(word, _)| (*word).to_owned()),
        );
        words
    }
}
