//! A link that accepts router advertisements.

use super::link_ref::LinkRef;

/// A link that accepts router advertisements, but only as long as the host does not forward IPv6
/// (`accept_ra` is 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The link that accepts router advertisements.
    pub at: LinkRef,
    /// Kind of the link as in `ip link`; empty for hardware.
    pub kind: String,
    /// True if the link is a port of another link.
    pub is_port: bool,
    /// True if the host has a route from a router advertisement through the link.
    pub has_route: bool,
}
