//! A link as the kernel reports it.

use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Possible MTUs in bytes of a veth, a netkit, a bridge, or a child link such as a VLAN
/// (`ETH_MIN_MTU` and `ETH_MAX_MTU`).
pub const ETHERNET_MTUS: RangeInclusive<u32> = 68..=65_535;

/// A link as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's flags, each with its own name"
)]
pub struct LinkFact {
    /// Interface index.
    pub index: u32,
    /// Kind of the link as in `ip link`; empty for hardware.
    pub kind: String,
    /// Mode of a macvlan, ipvlan or netkit; for kind tun, `tap` for frames or `tun` for packets.
    pub mode: Option<&'static str>,
    /// Further settings that CHECK compares. Each is a word of `ip link` with its value. Only a
    /// VLAN and a VXLAN have them.
    pub settings: Vec<(&'static str, String)>,
    /// Hardware address; `None` if all its bytes are 0, as for `lo` and a bridge without ports.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Range of MTUs that the link accepts, in bytes.
    pub mtus: RangeInclusive<u32>,
    /// True if IPv6 is enabled; `None` if the kernel reports no IPv6 state, for example because the
    /// MTU is too small.
    pub has_ipv6: Option<bool>,
    /// Administratively up.
    pub up: bool,
    /// Operationally up.
    pub oper_up: bool,
    /// The kernel's flag `IFF_RUNNING`. It is set if the link is operationally up, or if the kernel
    /// has not yet processed a change of the carrier. An example of
    /// such a link is a bridge without an address that came up before its first port.
    pub running: bool,
    /// Has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Receives all packets (promiscuous mode).
    pub promisc: bool,
    /// Receives all multicast.
    pub all_multi: bool,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: u32,
    /// Largest packet in bytes that the stack passes to the link (GSO).
    pub gso_max_size: u32,
    /// Interface index of the bridge or VRF that contains the link.
    pub master: Option<u32>,
    /// Interface index of the parent link, or of the other end of a pair.
    pub parent: Option<u32>,
    /// Id of the parent's or peer's namespace, as seen from the link's own namespace
    /// (`IFLA_LINK_NETNSID`). `None` if both links are in one namespace.
    pub parent_netns: Option<i32>,
    /// Bridge: filters by VLAN.
    pub vlan_filtering: bool,
    /// Bridge: the spanning tree protocol decides if a port forwards.
    pub stp: bool,
    /// Bridge: the hardware address in its identifier. `None` for a bridge that has no ports and
    /// was created without an address. The next port then changes the bridge's address (v6.12
    /// `net/bridge/br_stp_if.c`, `br_stp_recalculate_bridge_id()`).
    pub bridge_id: Option<Mac>,
    /// Bridge: default VLAN of a new port; 0 for none.
    pub default_pvid: u16,
    /// Bridge port: frames may leave through the port they arrived on.
    pub hairpin: bool,
    /// Bridge port: no frames pass between this port and other isolated ports.
    pub isolated: bool,
    /// VRF: its routing table.
    pub vrf_table: Option<u32>,
    /// Alias of the link (`ip link set alias`). On links that braid created, it names the owner.
    pub alias: String,
    /// Alternative names (Linux 5.5).
    pub alt_names: Vec<String>,
    /// Identity of the hardware; empty for a virtual link.
    pub hardware: Hardware,
}

/// Identity of a link's hardware, which stays the same if the link is moved between namespaces.
/// Empty for a virtual link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Name of the device on its bus, for example `0000:01:00.0` (`IFLA_PARENT_DEV_NAME`, Linux
    /// 5.14).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Permanent hardware address (`IFLA_PERM_ADDRESS`, Linux 5.6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent: Option<Mac>,
}

impl Hardware {
    /// True if the hardware is unknown, as for a virtual link.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl LinkFact {
    /// True if the link is one end of a veth or netkit pair. The other end may be in another
    /// namespace.
    pub fn is_end(&self) -> bool {
        matches!(self.kind.as_str(), "veth" | "netkit")
    }

    /// Returns the expected properties of a link that does not exist yet.
    pub fn planned(kind: &str, mac: Option<Mac>, mtu: u32, up: bool) -> Self {
        Self {
            index: 0,
            kind: kind.to_owned(),
            mode: None,
            settings: Vec::new(),
            mac,
            mtu,
            mtus: ETHERNET_MTUS,
            has_ipv6: None,
            up,
            oper_up: up,
            running: up,
            carrier: up,
            promisc: false,
            all_multi: false,
            tx_queue_len: 1000,
            gso_max_size: 65_536,
            master: None,
            parent: None,
            parent_netns: None,
            vlan_filtering: false,
            stp: false,
            bridge_id: None,
            default_pvid: 1,
            hairpin: false,
            isolated: false,
            vrf_table: None,
            alias: String::new(),
            alt_names: Vec::new(),
            hardware: Hardware::default(),
        }
    }
}
