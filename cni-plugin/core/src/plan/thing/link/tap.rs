//! Links of frames that a program reads and writes.

use super::Link;
use super::print::print_common;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Not, RangeInclusive};

/// MTUs that a tap can have, in bytes: the largest packet with its Ethernet header has 65,535
/// (v6.12 `drivers/net/tun.c`, `tun_net_initialize()`).
pub const TAP_MTUS: RangeInclusive<u32> = 68..=65_521;

/// Properties of a tap that it gets when it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// The user whose programs may open it; anybody with `CAP_NET_ADMIN` where unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The group whose programs may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// A program may open it several times.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub multi_queue: bool,
    /// Each frame has a header of virtio before it, until a program that opens it says otherwise.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub vnet_hdr: bool,
    /// The `SELinux` context of the process that makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl Tap {
    /// Writes the commands that make it.
    pub(super) fn print(&self, link: &Link, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.context {
            write!(f, "runcon {context} ")?;
        }
        write!(
            f,
            "ip tuntap add name {} {}",
            link.at.name,
            self.options().join(" ")
        )?;
        if link.mac.is_some() || link.mtu.is_some() || link.master.is_some() {
            write!(
                f,
                "\n{:<5}ip link set {}",
                link.at.ns.to_string(),
                link.at.name
            )?;
            print_common(link, f)?;
        }
        Ok(())
    }

    /// The words of `ip tuntap add` behind the name.
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
