//! A permanent neighbour.

use super::link_ref::LinkRef;
use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A neighbour's hardware address as a permanent entry (`nud permanent`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neigh {
    /// The link that reaches it.
    pub at: LinkRef,
    /// Address of the neighbour.
    pub addr: IpAddr,
    /// Hardware address of the neighbour.
    pub mac: Mac,
}
