//! A permanent entry in the forwarding database of a tunnel link.

use super::link_ref::LinkRef;
use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A permanent entry in the forwarding database of a tunnel link (`self permanent`): the remote end
/// (VTEP) for frames to a hardware address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fdb {
    /// The tunnel's link, for example a VXLAN.
    pub at: LinkRef,
    /// Destination of the frames. All zero bytes match every destination without an entry.
    pub mac: Mac,
    /// Address of the remote end.
    pub dst: IpAddr,
    /// UDP port of the remote end; `None` means the port of the tunnel's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// VXLAN network identifier (VNI) of the sent packets; `None` means the VNI of the tunnel's
    /// link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// VLAN of the frames, 1 to 4094. A VXLAN link accepts this value, but matches frames of every
    /// VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}
