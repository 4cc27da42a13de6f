//! Reference to a link by namespace and name.

use crate::name::{IfName, Ns};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reference to a link by namespace and name. The interface index is looked up when a plan is
/// applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkRef {
    /// Namespace of the link.
    pub ns: Ns,
    /// Name of the link.
    pub name: IfName,
}

impl LinkRef {
    /// Returns a reference to a link of the host.
    pub fn host(name: IfName) -> Self {
        Self { ns: Ns::Host, name }
    }

    /// Returns a reference to a link of the container.
    pub fn pod(name: IfName) -> Self {
        Self { ns: Ns::Pod, name }
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.ns)
    }
}
