//! Keys that identify a device of the host, and the device that was found.

use crate::name::{IfName, LinkName, Mac};

/// Configuration keys that identify a host link. The first key that is set counts, but `id`
/// overrides `pci`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Name or alternative name of the link.
    pub name: Option<LinkName>,
    /// Hardware address of the link.
    pub mac: Option<Mac>,
    /// Path of the device's folder in `/sys/devices`.
    pub path: Option<String>,
    /// PCI address of the device.
    pub pci: Option<String>,
    /// PCI address of the device, or the device's name on the auxiliary bus. Used in place of `pci`
    /// if set.
    pub id: Option<String>,
}

/// Outcome of the search for a [`Device`] on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceFact {
    /// The device has this link.
    Link(IfName),
    /// The device has no link. It belongs to this driver, which passes it to a program in user
    /// space.
    Userspace(String),
    /// No device was found, for this reason.
    Missing(String),
}
