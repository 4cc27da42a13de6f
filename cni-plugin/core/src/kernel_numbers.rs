//! Numbers of the kernel that plans and system calls share.

/// Main routing table (`include/uapi/linux/rtnetlink.h`, as are the scopes).
pub const RT_TABLE_MAIN: u32 = 254;
/// Scope of a route to an address of the host itself.
pub const RT_SCOPE_HOST: u8 = 254;
/// Scope of a route to the network of a link.
pub const RT_SCOPE_LINK: u8 = 253;
/// Index of `lo` in every network namespace, which it never leaves (`include/net/flow.h`).
pub const LOOPBACK_IFINDEX: u32 = 1;
