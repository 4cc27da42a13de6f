//! The result of ADD, its three JSON layouts, and conversion between them.

use ipnet::IpNet;
use std::net::IpAddr;

/// What an ADD made, in the newest version's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddResult {
    /// Interfaces made or used, host and container side.
    pub interfaces: Vec<Interface>,
    /// Addresses given out.
    pub ips: Vec<IpConfig>,
    /// Routes added in the container.
    pub routes: Vec<Route>,
    /// Name resolution for the container.
    pub dns: Dns,
}

/// One network interface of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Hardware address, empty where it has none.
    pub mac: String,
    /// MTU in bytes; since 1.1.0.
    pub mtu: Option<u32>,
    /// Path of the network namespace; empty on the host.
    pub sandbox: String,
    /// Path of a socket file for the interface; since 1.1.0.
    pub socket_path: String,
    /// PCI address of the device; since 1.1.0.
    pub pci_id: String,
}

/// One address of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// Address with its prefix; host bits are kept.
    pub address: IpNet,
    /// Gateway of the address's subnet.
    pub gateway: Option<IpAddr>,
    /// Index into the result's interfaces.
    pub interface: Option<usize>,
}

/// One route of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination; host bits are kept.
    pub dst: IpNet,
    /// Next hop; unset means the gateway of the address.
    pub gw: Option<IpAddr>,
    /// MTU along the path in bytes; 0 means unset.
    pub mtu: u32,
    /// Maximal segment size to advertise in bytes; 0 means unset.
    pub advmss: u32,
    /// Route metric, lower wins; 0 means unset.
    pub priority: u32,
    /// Routing table; unset means main (254).
    pub table: Option<u32>,
    /// Route scope as the kernel numbers it: 0 universe, 200 site, 253 link, 254 host.
    pub scope: Option<u8>,
}

/// Name resolution in a configuration or a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers in priority order.
    pub nameservers: Vec<String>,
    /// Local domain for short names.
    pub domain: String,
    /// Search domains in priority order.
    pub search: Vec<String>,
    /// Options of the resolver.
    pub options: Vec<String>,
}
