//! A link as the kernel shows it.

use super::ETHERNET_MTUS;
use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A link as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's flags, each with its own name"
)]
pub struct LinkFact {
    /// Interface index.
    pub index: u32,
    /// Kind, `""` for hardware.
    pub kind: String,
    /// Mode of a macvlan, ipvlan or netkit; of kind tun, whether it carries frames or packets.
    pub mode: Option<&'static str>,
    /// Number of a VLAN.
    pub vlan_id: Option<u16>,
    /// Hardware address; none where all its bytes are 0, which is how `lo` and a bridge without
    /// ports show that.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// MTUs that it can have.
    pub mtus: RangeInclusive<u32>,
    /// IPv6 is on; none where the kernel shows nothing of IPv6, as for a link that is too small
    /// for it.
    pub has_ipv6: Option<bool>,
    /// Administratively up.
    pub up: bool,
    /// Operationally up.
    pub oper_up: bool,
    /// The same, or the kernel has seen no change of its carrier yet (`IFF_RUNNING`): a bridge
    /// without an address of its own that was set up before its first port.
    pub running: bool,
    /// Has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Receives everything.
    pub promisc: bool,
    /// Receives all multicast.
    pub all_multi: bool,
    /// Length of the transmit queue in packets.
    pub tx_queue_len: u32,
    /// Largest packet that the stack hands over in one piece, in bytes.
    pub gso_max_size: u32,
    /// Index of the bridge it is a port of, or of the VRF it is in.
    pub master: Option<u32>,
    /// Index of its parent or peer.
    pub parent: Option<u32>,
    /// The number by which this one's namespace knows that one's, where it is another.
    pub parent_netns: Option<i32>,
    /// Bridge: ports are separated by VLAN.
    pub vlan_filtering: bool,
    /// Bridge: the spanning tree protocol decides when a port forwards.
    pub stp: bool,
    /// Bridge: the hardware address in its identifier. None before its first port and after its
    /// last one, unless it was made with an address: then the next port changes the bridge's
    /// (v6.12 `net/bridge/br_stp_if.c`, `br_stp_recalculate_bridge_id()`).
    pub bridge_id: Option<Mac>,
    /// Bridge: the VLAN that a new port is put on; 0 for none.
    pub default_pvid: u16,
    /// Bridge port: frames may leave where they came from.
    pub hairpin: bool,
    /// Bridge port: no frames between isolated ports.
    pub isolated: bool,
    /// VRF: its table.
    pub vrf_table: Option<u32>,
    /// Text that tells whose it is.
    pub alias: String,
    /// Its alternative names (Linux 5.5).
    pub alt_names: Vec<String>,
    /// The hardware behind it.
    pub hardware: Hardware,
}

/// The hardware behind a link, which no namespace can change; empty for a virtual link.
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
    /// True if nothing is known of it.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl LinkFact {
    /// True if it is one end of a pair, whose other end may be in another namespace.
    pub fn is_end(&self) -> bool {
        matches!(self.kind.as_str(), "veth" | "netkit")
    }

    /// A link that does not exist yet.
    pub fn planned(kind: &str, mac: Option<Mac>, mtu: u32, up: bool) -> Self {
        Self {
            index: 0,
            kind: kind.to_owned(),
            mode: None,
            vlan_id: None,
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
