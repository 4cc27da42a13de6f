//! Guards against `AF_XDP` sockets of a container with rate limits. No hook on the container's own
//! interface sees packets of such sockets.

use super::state::{Phase, State, Verb, found, refuse_if};
use crate::plan::fact::link_ref::LinkRef;
pub use crate::plan::fact::xsk::XskBinding;
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A guard that refuses to bind the container's `AF_XDP` sockets to any link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Owner: network, container id and interface.
    pub owner: String,
}

impl XskGuard {
    fn hold<'a>(&self, facts: &'a Facts) -> Option<&'a XskBinding> {
        let is_it = |hold: &&XskBinding| hold.netns == self.netns && hold.owner == self.owner;
        facts.xsk_guards.iter().find(is_it)
    }
}

impl State for XskGuard {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = &self.owner;
        match verb {
            Verb::Add => write!(
                f,
                "# refuse links to AF_XDP sockets of {owner:?} (braid_xsk_bind)"
            ),
            Verb::Del => write!(f, "# remove the AF_XDP guard of {owner:?}"),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::XskGuards]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.hold(facts).is_none(), || {
            "AF_XDP sockets of the container are not guarded".to_owned()
        })
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }

    fn phase(&self) -> Phase {
        Phase::Guard
    }
}

/// Restricts an [`XskGuard`] to one link. Once the index of this link is known, `AF_XDP` sockets
/// may be bound to all other links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskLink {
    /// The guard that is restricted.
    pub guard: XskGuard,
    /// The link to which `AF_XDP` sockets still can't be bound.
    pub at: LinkRef,
    /// True if the link existed before the plan. The step then fails if the container has an
    /// `AF_XDP` socket, because the socket may be bound to this link already.
    pub was_there: bool,
}

impl State for XskLink {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => {
                write!(
                    f,
                    "# allow AF_XDP sockets of {:?} on links other than {}",
                    self.guard.owner, self.at.name
                )
            }
            Verb::Del => self.guard.print(Verb::Add, f),
        }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::XskGuards, Need::Link(self.at.clone())]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        let link = found(&self.at, facts)?.index;
        let is_its = self.guard.hold(facts).is_some_and(|hold| hold.link == link);
        refuse_if(!is_its, || {
            format!("AF_XDP sockets of the container may bind link {}", self.at)
        })
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.guard.owner)
    }
}
