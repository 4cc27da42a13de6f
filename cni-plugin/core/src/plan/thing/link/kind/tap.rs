//! Tap links, with frames read and written by a program.

use serde::{Deserialize, Serialize};
use std::ops::{Not, RangeInclusive};

/// MTUs that a tap can have, in bytes. The largest packet has 65,535 bytes, including its Ethernet
/// header (v6.12 `drivers/net/tun.c`, `tun_net_initialize()`).
pub const TAP_MTUS: RangeInclusive<u32> = 68..=65_521;

/// Properties that a tap gets when it is created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// User id that may open the tap without `CAP_NET_ADMIN`; `None` allows any user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Group id that may open the tap without `CAP_NET_ADMIN`; `None` allows any group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// True if a program may open the tap several times (multi-queue).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub multi_queue: bool,
    /// True if each frame starts with a virtio header. The program that opens the tap can change
    /// that.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub vnet_hdr: bool,
    /// `SELinux` context of the process that creates the tap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Tap {
    /// Returns the words that follow the name in `ip tuntap add`.
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
