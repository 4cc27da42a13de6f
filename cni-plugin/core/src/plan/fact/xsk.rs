//! Guarded `AF_XDP` sockets as the kernel reports them.

/// An attachment with guarded sockets, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskBinding {
    /// Cookie of the network namespace.
    pub netns: u64,
    /// Index of the only link refused to them; 0 refuses all links of the namespace.
    pub link: u32,
    /// Network, container id and interface.
    pub owner: String,
    /// Number of refused sockets.
    pub refused: u64,
}
