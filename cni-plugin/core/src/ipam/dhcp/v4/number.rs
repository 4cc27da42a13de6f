//! Port and option numbers of DHCPv4.

/// UDP port of DHCPv4 servers.
pub const SERVER_PORT: u16 = 67;
/// UDP port of DHCPv4 clients.
pub const CLIENT_PORT: u16 = 68;

// Options from RFC 2132 and RFC 3442.
pub(in crate::ipam::dhcp) const SUBNET_MASK: u8 = 1;
pub(in crate::ipam::dhcp) const ROUTERS: u8 = 3;
pub(in crate::ipam::dhcp) const HOST_NAME: u8 = 12;
pub(super) const STATIC_ROUTES: u8 = 33;
pub(super) const REQUESTED_ADDRESS: u8 = 50;
pub(super) const LEASE_TIME: u8 = 51;
pub(super) const OVERLOAD: u8 = 52;
pub(super) const MESSAGE_TYPE: u8 = 53;
pub(super) const SERVER_ID: u8 = 54;
pub(super) const REQUEST_LIST: u8 = 55;
pub(super) const MAX_SIZE: u8 = 57;
pub(super) const RENEWAL_TIME: u8 = 58;
pub(super) const REBINDING_TIME: u8 = 59;
pub(in crate::ipam::dhcp) const VENDOR_CLASS: u8 = 60;
pub(in crate::ipam::dhcp) const CLIENT_ID: u8 = 61;
pub(in crate::ipam::dhcp) const USER_CLASS: u8 = 77;
pub(super) const CLASSLESS_ROUTES: u8 = 121;
