//! Kernel constants that plans and system calls share.

/// Number of the main routing table (`include/uapi/linux/rtnetlink.h`).
pub const RT_TABLE_MAIN: u32 = 254;
/// Scope of a route to an address of the host itself (`include/uapi/linux/rtnetlink.h`).
pub const RT_SCOPE_HOST: u8 = 254;
/// Scope of a route to the network of a link (`include/uapi/linux/rtnetlink.h`).
pub const RT_SCOPE_LINK: u8 = 253;
/// Interface index of `lo` in every network namespace (`include/net/flow.h`). `lo` never leaves its
/// namespace.
pub const LOOPBACK_IFINDEX: u32 = 1;
