//! Faults of a preparation.

use braid_core::cni::bounds::cut;
use braid_core::cni::{self, Kind};
use braid_core::dra::message::MAX_LEN;
use std::fmt::{Display, Formatter};

/// Part that a preparation failed at, as in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The claim, its pod, its networks or its devices.
    Claim,
    /// The API server.
    Api,
    /// The node: its links, its files, its configuration.
    Node,
    /// Other prepared claims on the link.
    Link,
}

impl Part {
    /// Returns the word in the metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Api => "api",
            Self::Node => "node",
            Self::Link => "link",
        }
    }
}

/// Fault of a preparation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(super) part: Part,
    /// Message for the kubelet and for the pod's event, of at most [`MAX_LEN`] bytes.
    pub(super) message: String,
    /// True if the fault may pass without a change of the claim.
    pub(super) is_passing: bool,
}

impl Fault {
    /// Returns a fault that may pass.
    pub(super) fn passing(part: Part, message: impl Display) -> Self {
        Self {
            part,
            message: cut(&message.to_string(), MAX_LEN),
            is_passing: true,
        }
    }

    /// Returns a fault that lasts.
    pub(super) fn lasting(part: Part, message: impl Display) -> Self {
        Self {
            is_passing: false,
            ..Self::passing(part, message)
        }
    }
}

impl From<cni::Error> for Fault {
    fn from(error: cni::Error) -> Self {
        if error.kind == Kind::TryAgain {
            Self::passing(Part::Claim, error.msg)
        } else {
            Self::lasting(Part::Claim, error.msg)
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
