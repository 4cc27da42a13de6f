//! Host ports: host endpoints, and their targets and owners as the kernel reports them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// SCTP (RFC 9260).
    Sctp,
}

impl Protocol {
    /// Parses `tcp`, `udp` or `sctp` in any case; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let is_named = |name: &str| text.eq_ignore_ascii_case(name);
        [Self::Tcp, Self::Udp, Self::Sctp]
            .into_iter()
            .find(|protocol| is_named(protocol.name()))
    }

    /// Returns the protocol's name in `nft`.
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

/// A host address, protocol and port that clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostEndpoint {
    /// Host address. The unspecified address (`0.0.0.0` or `::`) means all host addresses of its
    /// family.
    pub addr: IpAddr,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Port number on the host.
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
    /// True if the endpoint includes `[::1]` and eBPF can redirect connections to it. False for
    /// SCTP, because eBPF sees no SCTP sockets. False for an endpoint with conditions, because the
    /// eBPF programs test none.
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
    /// Container address and port that clients are redirected to.
    pub to: Option<SocketAddr>,
    /// Owner stored with the port: network, container id and interface.
    pub owner: String,
    /// Container that uses the port, found by `owner`.
    pub holder: Holder,
}

/// Container that uses an object, found by the owner stored with the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// No container: no record has this owner, the container's namespace is gone, or its DEL has
    /// begun.
    Nobody,
    /// The running container with this id.
    Container(String),
    /// Unknown, because a record could not be read.
    Somebody,
}

/// Numbers of host ports on a node that eBPF redirects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EbpfCounts {
    /// Number of ports redirected for received packets.
    pub ports: usize,
    /// Number of ports redirected for connections to `[::1]`.
    pub at_loopback: usize,
}

impl HostPortFact {
    /// True if the host port belongs to `owner`.
    pub fn is_of(&self, owner: &str) -> bool {
        self.owner == owner
    }

    /// True if the host port belongs to another attachment of the same container.
    pub fn is_siblings(&self, container_id: &str, owner: &str) -> bool {
        !self.is_of(owner) && matches!(&self.holder, Holder::Container(id) if id == container_id)
    }

    /// Returns an error text if `owner` can't have the port because another container uses it; else
    /// `None`.
    pub fn refusal(&self, at: &HostEndpoint, container_id: &str, owner: &str) -> Option<String> {
        let is_free = self.holder == Holder::Nobody
            || self.is_of(owner)
            || self.is_siblings(container_id, owner);
        (!is_free).then(|| format!("host port {at} is already used by {:?}", self.owner))
    }
}
