//! A static entry of a forwarding database.

use super::link_ref::LinkRef;
use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A remote end of a tunnel (VTEP) for frames to a hardware address, as a permanent entry of the
/// link itself (`self permanent`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fdb {
    /// The tunnel's link, for example a VXLAN.
    pub at: LinkRef,
    /// Destination of the frames. All zero bytes: every destination without an entry.
    pub mac: Mac,
    /// Address of the remote end.
    pub dst: IpAddr,
    /// UDP port of the remote end; `None` means the link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Network identifier on the way there; `None` means the link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// VLAN of the frames, 1 to 4094. A VXLAN accepts it and matches frames of every VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}
