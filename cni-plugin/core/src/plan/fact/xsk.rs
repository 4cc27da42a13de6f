//! Guards against `AF_XDP` sockets, as the kernel reports them.

/// A guard against `AF_XDP` sockets of an attachment, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskBinding {
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Interface index of the only link to which `AF_XDP` sockets can't be bound; 0 means all links
    /// of the namespace.
    pub link: u32,
    /// Owner: network, container id and interface.
    pub owner: String,
    /// Number of sockets that the guard has refused.
    pub refused: u64,
}
