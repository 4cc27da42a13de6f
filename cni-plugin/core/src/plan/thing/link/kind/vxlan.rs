//! VXLAN links: Ethernet in UDP (RFC 7348).

use crate::plan::thing::link::LinkRef;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

const ETHERNET: u32 = 14;
const VXLAN: u32 = 8;
const UDP: u32 = 8;
const IPV4: u32 = 20;
const IPV6: u32 = 40;
const _: () = assert!(IPV4 + UDP + VXLAN + ETHERNET == 50);
const _: () = assert!(IPV6 + UDP + VXLAN + ETHERNET == 70);

/// Properties of a VXLAN. Its UDP socket is in the host's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vxlan {
    /// Network identifier (VNI), 1 to 16777215.
    pub id: u32,
    /// Underlay link; `None` means that the host's routes choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<LinkRef>,
    /// Destination of frames without a forwarding entry: a unicast or a multicast address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// Source address; `None` means that the host's routes choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// UDP destination port of sent and received packets.
    pub port: u16,
    /// TTL of the outer packets. `None` means the kernel's choice, which is 1 for a multicast
    /// group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
    /// True if received frames create forwarding entries.
    pub learning: bool,
}

impl Vxlan {
    /// Returns the size in bytes of the headers that the VXLAN adds to a packet. The MTU must be
    /// smaller than the underlay's by this size.
    pub fn overhead(&self) -> u32 {
        let is_v6 = self.remote.or(self.local).is_some_and(|ip| ip.is_ipv6());
        let ip = if is_v6 { IPV6 } else { IPV4 };
        ip + UDP + VXLAN + ETHERNET
    }

    /// Returns the largest possible MTU on an underlay with the MTU `underlay`.
    pub fn most(&self, underlay: u32) -> u32 {
        underlay.saturating_sub(self.overhead())
    }

    /// Returns the options of `ip link add type vxlan`.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec![format!("id {}", self.id)];
        words.extend(self.dev.as_ref().map(|dev| format!("dev {}", dev.name)));
        let pairs = self
            .settings()
            .into_iter()
            .filter(|(word, _)| *word != "id");
        words.extend(pairs.map(|(word, value)| match (word, value.as_str()) {
            ("learning", "on") => word.to_owned(),
            ("learning", _) => format!("no{word}"),
            _ => format!("{word} {value}"),
        }));
        words
    }

    /// Returns the settings that CHECK compares.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![("id", self.id.to_string())];
        settings.extend(self.remote.map(|ip| (remote_word(ip), ip.to_string())));
        settings.extend(self.local.map(|ip| ("local", ip.to_string())));
        settings.push(("dstport", self.port.to_string()));
        settings.extend(self.ttl.map(|ttl| ("ttl", ttl.to_string())));
        settings.push(("learning", learning_word(self.learning).to_owned()));
        settings
    }
}

/// Returns the keyword of `ip link` for a destination: `group` for a multicast address, else
/// `remote`.
pub fn remote_word(ip: IpAddr) -> &'static str {
    if ip.is_multicast() { "group" } else { "remote" }
}

/// Returns the text for the setting `learning`: `on` or `off`.
pub fn learning_word(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
