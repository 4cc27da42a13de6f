//! Ways to probe a feature.

use crate::Cause;
use crate::sys::netlink::{KernelError, Socket};
use netlink_packet_route::link::NetkitMode;

/// Way to probe a feature.
#[derive(Debug)]
pub(super) enum How {
    /// Create a link of this kind, with its required attributes.
    Link(&'static str, Extra),
    /// Create a netkit in this mode. A netkit in mode l2 gets hardware addresses, which the first
    /// kernels with netkit refuse.
    Netkit(NetkitMode),
    /// Create a bridge with VLAN filtering. Kernels without it ignore the attribute.
    Filtering,
    /// Add this qdisc, without options, at this parent of a link.
    Qdisc(&'static str, u32),
    /// Add this classifier to a link, without options.
    Classifier(&'static str),
    /// Redirect ingress packets of a link to the egress of another.
    Redirect,
    /// Read this sysctl of a namespace.
    Sysctl(&'static str),
    /// Send an `nf_tables` request like that of an attachment.
    Nft(fn(&mut Socket) -> Result<(), KernelError>),
    /// Create a tap.
    Tap,
    /// Call bpf(2).
    Bpf(fn() -> Result<(), Cause>),
}

/// Attributes that a kind of link requires besides its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extra {
    None,
    /// A parent link.
    Parent,
    /// A number in attribute 1 of the kind's data. Its bytes are the same in both byte orders.
    Number(&'static [u8]),
    /// A parent link, and a number in attribute 1 of the kind's data.
    ParentAndNumber(&'static [u8]),
}
