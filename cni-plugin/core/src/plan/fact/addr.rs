//! An address as the kernel reports it.

use ipnet::IpNet;

/// An address as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddrFact {
    /// Address with its prefix.
    pub net: IpNet,
    /// Duplicate address detection runs, so the address is not yet usable.
    pub tentative: bool,
    /// Duplicate address detection found another owner.
    pub dad_failed: bool,
    /// Kernel number of the scope: 0 universe, 253 link, 254 host.
    pub scope: u8,
}
