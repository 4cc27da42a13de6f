//! Place of a link.

use crate::name::{IfName, Ns};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A link by namespace and name; its index is looked up while applying.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkRef {
    /// Namespace of the link.
    pub ns: Ns,
    /// Name of the link.
    pub name: IfName,
}

impl LinkRef {
    /// Returns a link of the host.
    pub fn host(name: IfName) -> Self {
        Self { ns: Ns::Host, name }
    }

    /// Returns a link of the container.
    pub fn pod(name: IfName) -> Self {
        Self { ns: Ns::Pod, name }
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.ns)
    }
}
