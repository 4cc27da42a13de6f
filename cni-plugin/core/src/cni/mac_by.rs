//! Plugin that sets a requested hardware address.

/// Plugin that gives the container's interface a requested hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacBy {
    /// The type itself, by `runtimeConfig.mac`.
    Itself,
    /// A `tuning` behind it.
    Tuning,
    /// None: an ipvlan has its parent's address, and other types make no interface.
    Nothing,
}
