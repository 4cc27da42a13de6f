//! `AF_XDP` sockets of a container, of which nothing at its own interface sees what they send.

use super::{LinkRef, State, Verb, found, refuse_if};
use crate::plan::facts::{Facts, Need};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An attachment whose sockets are held, as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskBinding {
    /// Cookie of its network namespace.
    pub netns: u64,
    /// Index of the only link that they can't have; 0 where they have none of the namespace.
    pub link: u32,
    /// Network, container id and interface.
    pub owner: String,
    /// Number of sockets that got no link.
    pub refused: u64,
}

/// The refusal of a link to such sockets of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskGuard {
    /// The link below the container's, where an earlier version dropped what they sent instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<LinkRef>,
    /// Cookie of the container's network namespace.
    pub netns: u64,
    /// Network, container id and interface.
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
        let may = verb.word("have no link (braid_xsk_bind)", "send again");
        write!(f, "# let AF_XDP sockets of {:?} {may}", self.owner)
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::XskGuards]
    }

    fn holds(&self, facts: &Facts) -> Result<(), String> {
        // What an earlier version did below is not looked at.
        let is_free = self.below.is_none() && self.hold(facts).is_none();
        refuse_if(is_free, || {
            "nothing holds AF_XDP sockets of the container".to_owned()
        })
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }
}

/// The only link that held sockets can't have: once its number is known, all others are theirs
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XskLink {
    /// The guard of these sockets.
    pub guard: XskGuard,
    /// The link.
    pub at: LinkRef,
    /// The link was there before: it fails if the container has such a socket, which may have it.
    pub was_there: bool,
}

impl State for XskLink {
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match verb {
            Verb::Add => {
                write!(
                    f,
                    "# let AF_XDP sockets of {:?} have links other than {}",
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
            format!("AF_XDP sockets of the container can have link {}", self.at)
        })
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.guard.owner)
    }
}
