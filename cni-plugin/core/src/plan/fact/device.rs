//! Keys that identify a device of the host, and the device found.

use crate::name::{IfName, LinkName, Mac};

/// Keys that identify a host link. The first one set counts, but `id` overrides `pci`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Name or alternative name.
    pub name: Option<LinkName>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Folder below `/sys/devices`.
    pub path: Option<String>,
    /// Address of a PCI device.
    pub pci: Option<String>,
    /// Address of a PCI device, instead of `pci`, or the name of a device of the auxiliary bus.
    pub id: Option<String>,
}

/// A [`Device`] as found on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceFact {
    /// A link.
    Link(IfName),
    /// No link: a program drives the device with this driver.
    Userspace(String),
    /// No device, and the reason.
    Missing(String),
}
