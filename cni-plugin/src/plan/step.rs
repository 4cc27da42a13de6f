//! The steps of a plan.
//!
//! `Add…` belongs to one attachment, must be new and is undone with it. `Ensure…` is shared by the node: it is made if
//! missing and never undone by one attachment. A step that overwrites carries the old value, so that its inverse is pure.
//!
//! A record leaves out what is unset: each word of it is a part of every ADD's time.

use super::hostport::HostPorts;
use super::link::{Link, LinkAttr, LinkRef};
use super::name::IfName;
use super::nft::{Firewall, MacCheck, Masquerade, PacketGuard};
use super::shaping::Shaping;
use super::xsk::XskGuard;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Not;

/// Which network namespace a step acts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ns {
    /// The plugin's own.
    Host,
    /// The container's.
    Pod,
}

impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Pod => "pod",
        })
    }
}

/// One change, or one thing to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A link that must be new; a veth with its peer.
    AddLink(Link),
    /// A link that goes away; a veth takes its peer along.
    DelLink(LinkRef),
    /// A link shared by the node, made if missing.
    EnsureLink(Link),
    /// Sets one attribute; `from` is the value to go back to, none where the link dies with the attachment.
    SetLink {
        /// The link.
        at: LinkRef,
        /// The new value.
        to: LinkAttr,
        /// The value before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<LinkAttr>,
    },
    /// Sets one attribute of a shared link.
    EnsureAttr {
        /// The link.
        at: LinkRef,
        /// The value.
        to: LinkAttr,
    },
    /// Puts a VLAN on a bridge port; it goes with the port.
    EnsureVlan {
        /// The bridge port.
        at: LinkRef,
        /// The VLAN and its flags.
        vlan: Vlan,
    },
    /// Takes a VLAN off a bridge port.
    DelVlan {
        /// The bridge port.
        at: LinkRef,
        /// The VLAN.
        vlan: Vlan,
    },
    /// An address that must be new.
    AddAddr(Addr),
    /// An address that goes away; a shared link that gave it up for another does not get it back.
    DelAddr(Addr),
    /// An address of a shared link.
    EnsureAddr(Addr),
    /// A route of the attachment.
    AddRoute(Route),
    /// A route that goes away.
    DelRoute(Route),
    /// Writes a sysctl in the container's namespace.
    SetSysctl(Sysctl),
    /// Writes a sysctl of the node unless it has the value.
    EnsureSysctl(Sysctl),
    /// Masquerades what this source sends outside its own network.
    AddMasquerade(Masquerade),
    /// Ends it.
    DelMasquerade(Masquerade),
    /// Ends masquerading of all sources of one owner: network, container id and interface.
    DelMasqueradesOf(String),
    /// Ends masquerading that a reference plugin made for this attachment.
    DelReferenceMasquerade {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// Ends the hardware address check that a reference plugin made for this attachment.
    DelReferenceMacCheck {
        /// `CNI_CONTAINERID`.
        container_id: String,
        /// `CNI_IFNAME`.
        ifname: IfName,
    },
    /// Gives a link that is still there the attributes back that a reference plugin noted in a file, and removes the file.
    RestoreReferenceTuning {
        /// The link.
        at: LinkRef,
        /// The file.
        file: String,
    },
    /// Lets only one hardware address send through a bridge port.
    AddMacCheck(MacCheck),
    /// Ends it.
    DelMacCheck(MacCheck),
    /// Leads ports of the host to the container.
    AddHostPorts(HostPorts),
    /// Ends it.
    DelHostPorts(HostPorts),
    /// Ends all of one owner: network, container id and interface.
    DelHostPortsOf(String),
    /// Ends those that a reference plugin made.
    DelReferencePorts {
        /// The network's name.
        network: String,
        /// `CNI_CONTAINERID`.
        container_id: String,
    },
    /// Has the host forward what a container sends and what answers it.
    AddFirewall(Firewall),
    /// Ends it.
    DelFirewall(Firewall),
    /// Ends all of one owner: network, container id and interface.
    DelFirewallOf(String),
    /// Ends what a reference plugin made for these addresses.
    DelReferenceFirewall {
        /// Of the container.
        addrs: Vec<IpAddr>,
        /// The zone of firewalld that they may be in.
        zone: String,
    },
    /// Shapes what an attachment receives and sends.
    AddShaping(Shaping),
    /// Ends it.
    DelShaping(Shaping),
    /// Limits what packet sockets of the container send.
    AddPacketGuard(PacketGuard),
    /// Ends it.
    DelPacketGuard(LinkRef),
    /// Holds the `AF_XDP` sockets of the container.
    AddXskGuard(XskGuard),
    /// From now on only those that ask for one of its links.
    NarrowXskGuard {
        /// What holds them.
        guard: XskGuard,
        /// The link.
        at: LinkRef,
        /// The link was there before: it fails if the container has such a socket, which may have it.
        was_there: bool,
    },
    /// Ends it.
    DelXskGuard(XskGuard),
    /// Ends all of one owner: network, container id and interface.
    DelXskGuardsOf(String),
    /// Sends all that comes in from one link out through another of the same namespace.
    AddRedirect {
        /// Where it comes in.
        from: LinkRef,
        /// Where it leaves.
        to: LinkRef,
    },
    /// Ends it.
    DelRedirect {
        /// Where it comes in.
        from: LinkRef,
        /// Where it leaves.
        to: LinkRef,
    },
    /// Waits until a link with a carrier is operationally up.
    WaitUp(LinkRef),
    /// Waits until no address of the link is tentative (IPv6 duplicate address detection).
    WaitDad(LinkRef),
}

/// A VLAN on a bridge port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vlan {
    /// 1 to 4094.
    pub id: u16,
    /// Untagged frames that come in belong to it.
    pub pvid: bool,
    /// Its frames go out untagged.
    pub untagged: bool,
}

/// An address on a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addr {
    /// The link.
    pub at: LinkRef,
    /// Address with its prefix; host bits are the address.
    pub net: IpNet,
    /// The kernel makes no route for the prefix (`noprefixroute`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub no_prefix_route: bool,
    /// No duplicate address detection (`nodad`, IPv6 only).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub no_dad: bool,
}

impl Addr {
    /// The address of all hosts of its network, where that is large enough to have one (RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.net {
            IpNet::V4(net) if net.prefix_len() <= 30 => Some(net.broadcast()),
            _ => None,
        }
    }
}

/// A route through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The link.
    pub at: LinkRef,
    /// Destination, host bits cleared.
    pub dst: IpNet,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Source address to prefer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Table; 254 is main.
    pub table: u32,
    /// Scope as the kernel numbers it: 0 universe, 253 link, 254 host; IPv6 has only universe.
    pub scope: u8,
    /// Metric; unset means the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Maximal segment size to advertise in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
}

/// A sysctl, by its path below `/proc/sys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// Where it is written.
    pub ns: Ns,
    /// For example `net/ipv4/ip_forward`.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Better with it, but no failure without: the kernel may lack it, the node may have `/proc/sys` read-only.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub optional: bool,
}

impl Sysctl {
    /// Switches IPv4 forwarding of the node.
    pub const IPV4_FORWARD: &str = "net/ipv4/ip_forward";
    /// Switches IPv6 forwarding of the node.
    pub const IPV6_FORWARD: &str = "net/ipv6/conf/all/forwarding";

    /// Says when a link accepts router advertisements: 0 never, 1 while it does not forward, 2 always.
    pub fn accept_ra(link: &str) -> String {
        format!("net/ipv6/conf/{link}/accept_ra")
    }
}
