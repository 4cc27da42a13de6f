//! The steps of a plan.
//!
//! `Add…` belongs to one attachment, must be new and is undone with it. `Ensure…` is shared by the node: it is made if
//! missing and never undone by one attachment. A step that overwrites carries the old value, so that its inverse is pure.

use super::hostport::HostPorts;
use super::name::{IfName, Mac};
use super::nft::{Firewall, MacCheck, Masquerade};
use super::shaping::Shaping;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

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
    /// Waits until a link is operationally up.
    WaitUp(LinkRef),
    /// Waits until no address of the link is tentative (IPv6 duplicate address detection).
    WaitDad(LinkRef),
}

/// A link by namespace and name; its index is looked up while applying.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkRef {
    /// Where it is.
    pub ns: Ns,
    /// Its name.
    pub name: IfName,
}

impl LinkRef {
    /// A link of the host.
    pub fn host(name: IfName) -> Self {
        Self { ns: Ns::Host, name }
    }

    /// A link of the container.
    pub fn pod(name: IfName) -> Self {
        Self { ns: Ns::Pod, name }
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.ns)
    }
}

/// A link to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Where it appears, under its final name.
    pub at: LinkRef,
    /// Hardware address; the kernel's choice where unset.
    pub mac: Option<Mac>,
    /// MTU in bytes; the kernel's choice where unset.
    pub mtu: Option<u32>,
    /// Set up in the same request.
    pub up: bool,
    /// The bridge it becomes a port of.
    pub master: Option<IfName>,
    /// What it is.
    pub kind: LinkKind,
}

/// Kind of a link, with what only that kind has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// One end of a pair; the other end appears elsewhere in the same request.
    Veth {
        /// The other end.
        peer: LinkRef,
        /// Its hardware address.
        peer_mac: Option<Mac>,
    },
    /// A bridge.
    Bridge {
        /// Ports are separated by VLAN.
        vlan_filtering: bool,
    },
    /// A child with a hardware address of its own.
    Macvlan {
        /// The link below it.
        parent: LinkRef,
        /// Who may talk to whom.
        mode: MacvlanMode,
        /// Length of the queue for broadcasts in packets; the kernel's 1000 where unset (Linux 5.11).
        bc_queue_len: Option<u32>,
    },
    /// A child that shares its parent's hardware address.
    Ipvlan {
        /// The link below it.
        parent: LinkRef,
        /// At which layer it switches.
        mode: IpvlanMode,
    },
    /// Gives back what is sent through it as if it had come in where it came from: a place to queue what comes in.
    Ifb,
    /// A link that an earlier plugin or the kernel made; only in facts.
    Other(String),
}

impl LinkKind {
    /// The kernel's word for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Veth { .. } => "veth",
            Self::Bridge { .. } => "bridge",
            Self::Macvlan { .. } => "macvlan",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Ifb => "ifb",
            Self::Other(kind) => kind,
        }
    }
}

/// Modes of a macvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the kernel's words, as in ip-link(8)")]
pub enum MacvlanMode {
    Private,
    Vepa,
    Bridge,
    Passthru,
}

impl MacvlanMode {
    /// The word in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Vepa => "vepa",
            Self::Bridge => "bridge",
            Self::Passthru => "passthru",
        }
    }
}

/// Modes of an ipvlan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the kernel's words, as in ip-link(8)")]
pub enum IpvlanMode {
    L2,
    L3,
    L3s,
}

impl IpvlanMode {
    /// The word in configurations and in `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::L3s => "l3s",
        }
    }
}

/// One attribute of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkAttr {
    /// Administratively up or down.
    Up(bool),
    /// Hardware address.
    Mac(Mac),
    /// MTU in bytes.
    Mtu(u32),
    /// Receives everything.
    Promisc(bool),
    /// Receives all multicast.
    AllMulti(bool),
    /// Length of the transmit queue in packets.
    TxQueueLen(u32),
    /// Largest packet that the stack hands over in one piece, in bytes.
    GsoMaxSize(u32),
    /// The hardware address that the link has already: writing it makes the kernel tell the neighbours of the link's
    /// addresses, where `arp_notify` and `ndisc_notify` ask for it (`NETDEV_CHANGEADDR`).
    Announce(Mac),
    /// Text that tells whose the link is, 254 bytes at most. The request that makes a link passes over it in silence
    /// (v6.12 net/core/rtnetlink.c, `rtnl_create_link()`).
    Alias(String),
    /// Bridge port: frames may leave where they came from.
    Hairpin(bool),
    /// Bridge port: no frames between isolated ports.
    Isolated(bool),
    /// The sysctl `net.ipv4.conf.<link>.arp_notify`: neighbours hear of an address when the link comes up with it. As an
    /// attribute it is set in the same send as the address, without a visit to the namespace's `/proc/sys`.
    ArpNotify(bool),
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
    pub no_prefix_route: bool,
    /// No duplicate address detection (`nodad`, IPv6 only).
    pub no_dad: bool,
}

/// A route through a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The link.
    pub at: LinkRef,
    /// Destination, host bits cleared.
    pub dst: IpNet,
    /// Next hop.
    pub gw: Option<IpAddr>,
    /// Source address to prefer.
    pub src: Option<IpAddr>,
    /// Table; 254 is main.
    pub table: u32,
    /// Scope as the kernel numbers it: 0 universe, 253 link, 254 host; IPv6 has only universe.
    pub scope: u8,
    /// Metric; unset means the kernel's default.
    pub priority: Option<u32>,
    /// MTU along the path in bytes.
    pub mtu: Option<u32>,
    /// Maximal segment size to advertise in bytes.
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
    pub optional: bool,
}
