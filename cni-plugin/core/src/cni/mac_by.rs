//! Choice of the plugin that sets a requested hardware address.

/// Plugin that sets a requested hardware address on the interface that a plugin type creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacBy {
    /// The plugin that creates the interface; it reads `runtimeConfig.mac`.
    Itself,
    /// The plugin `tuning`, later in the list.
    Tuning,
    /// No plugin: an ipvlan has its parent's address, and the remaining types create no interface.
    Nothing,
}
