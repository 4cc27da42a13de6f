//! Ways to probe a feature.

use crate::Cause;
use crate::sys::netlink::{KernelError, Socket};
use netlink_packet_route::link::NetkitMode;

/// Way to probe a feature.
#[derive(Debug)]
pub(super) enum How {
    /// Create a link of this kind, with its required attributes.
    Link(&'static str, Extra),
    /// Create a netkit in this mode. In mode l2 with hardware addresses, which the first kernels
    /// with netkit refuse.
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
    /// Send the `nf_tables` request of an attachment.
    Nft(fn(&mut Socket) -> Result<(), KernelError>),
    /// Create a tap.
    Tap,
    /// Call bpf(2).
    Bpf(fn() -> Result<(), Cause>),
}

/// Requirements of a kind of link besides its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Extra {
    None,
    /// A parent link.
    Parent,
    /// A number in attribute 1 that the kind requires. It is the same in both byte orders.
    Number(&'static [u8]),
    /// A parent link and such a number.
    ParentAndNumber(&'static [u8]),
}
