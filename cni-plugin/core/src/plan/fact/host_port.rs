//! Host ports: endpoints, and their owners as the kernel reports them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
}

impl Protocol {
    /// Parses the name in a configuration, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_named = |name: &str| text.eq_ignore_ascii_case(name);
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|protocol| is_named(protocol.name()))
    }

    /// Returns the name in `nft`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }

    /// Returns the protocol number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

/// An address, protocol and port of the host that clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostEndpoint {
    /// Address of the host; unspecified for all its addresses of this family.
    pub addr: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// True if only clients that meet conditions are redirected. Another container may have the
    /// same endpoint without conditions, for all other clients.
    #[serde(default, skip_serializing_if = "is_false")]
    pub conditional: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl HostEndpoint {
    /// True if the endpoint includes `[::1]` and eBPF can redirect its sockets. eBPF does not see
    /// SCTP sockets, and no program tests conditions.
    pub fn is_at_loopback(&self) -> bool {
        let of_host = |addr: Ipv6Addr| addr.is_loopback() || addr.is_unspecified();
        matches!(self.addr, IpAddr::V6(addr) if of_host(addr))
            && self.protocol != Protocol::Sctp
            && !self.conditional
    }
}

impl fmt::Display for HostEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            SocketAddr::new(self.addr, self.port),
            self.protocol.name()
        )
    }
}

/// A host port as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPortFact {
    /// The address and port that it redirects to.
    pub to: Option<SocketAddr>,
    /// Network, container id and interface, as stored with elements.
    pub owner: String,
    /// The container of the owner.
    pub holder: Holder,
}

/// The container of an owner, as far as known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// No container: it has no record, or its namespace is gone.
    Nobody,
    /// The container of this id.
    Container(String),
    /// An unknown container.
    Somebody,
}

/// Number of a node's ports that eBPF redirects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EbpfCounts {
    /// Ports redirected for received packets.
    pub ports: usize,
    /// Ports redirected from `[::1]`.
    pub at_loopback: usize,
}

impl HostPortFact {
    /// True if it belongs to this owner.
    pub fn is_of(&self, owner: &str) -> bool {
        self.owner == owner
    }

    /// True if it belongs to another attachment of the container.
    pub fn is_siblings(&self, container_id: &str, owner: &str) -> bool {
        !self.is_of(owner) && matches!(&self.holder, Holder::Container(id) if id == container_id)
    }

    /// Returns the reason why this owner can't have the port: another container holds it.
    pub fn refusal(&self, at: &HostEndpoint, container_id: &str, owner: &str) -> Option<String> {
        let is_free = self.holder == Holder::Nobody
            || self.is_of(owner)
            || self.is_siblings(container_id, owner);
        (!is_free).then(|| format!("host port {at} is already used by {:?}", self.owner))
    }
}
