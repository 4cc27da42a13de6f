//! The kubelet's side of resource claims: this agent as a kubelet plugin. The kubelet finds the
//! registration socket, asks for the driver's socket, and prepares claims there before it starts their pods.
//!
//! ```text
//!  kubelet ─► plugins_registry/<driver>@<start>.sock: GetInfo, NotifyRegistrationStatus
//!          ─► plugins/<driver>/dra-<start>.sock: NodePrepareResources, NodeUnprepareResources,
//!                                   NodeWatchResources ─► Driver
//! ```

mod messages;
mod serve;
mod service;
mod sockets;

pub use serve::{Plugin, Registration};
pub use service::{ClaimRef, Device, Driver, Health};

#[cfg(test)]
mod tests;
