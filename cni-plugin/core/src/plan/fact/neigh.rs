//! A permanent entry of the neighbour table.

use super::link_ref::LinkRef;
use crate::name::Mac;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A permanent entry of the neighbour table (`nud permanent`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neigh {
    /// The link through which the neighbour is reached.
    pub at: LinkRef,
    /// IP address of the neighbour.
    pub addr: IpAddr,
    /// Hardware address of the neighbour.
    pub mac: Mac,
}
