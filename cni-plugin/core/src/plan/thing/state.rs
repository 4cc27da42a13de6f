//! Interface of all kinds of things: the command that a plan prints, and the check against facts.

use crate::name::Ns;
use crate::plan::fact::link::LinkFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use std::fmt;

/// Change of a thing for which a command is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Creates the thing.
    Add,
    /// Deletes the thing.
    Del,
}

impl Verb {
    /// Returns `add` or `del`, depending on the verb.
    pub fn word<T>(self, add: T, del: T) -> T {
        match self {
            Self::Add => add,
            Self::Del => del,
        }
    }
}

/// Phase in which an ADD creates a thing and an undo deletes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Created in the order of the plan, deleted before the links.
    Any,
    /// A link. Links are deleted after things of the phase `Any`, and all links of a namespace
    /// together.
    Link,
    /// A guard against sockets. It is created before the container has a link to send through, and
    /// deleted when no link is left.
    Guard,
}

/// Change that a step makes to its thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Creates the thing for the attachment.
    Add,
    /// Creates the thing for the node, if missing.
    Ensure,
    /// Deletes the thing.
    Del,
}

/// A kind of thing: its command, the facts needed to check it, and the check.
pub trait State {
    /// Returns the namespace of the thing.
    fn ns(&self) -> Ns {
        Ns::Host
    }

    /// Writes the command that creates or deletes the thing.
    fn print(&self, verb: Verb, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Returns the facts needed to check the thing.
    fn needs(&self) -> Vec<Need>;

    /// Checks that the thing is present; the error names the difference.
    fn holds(&self, facts: &Facts) -> Result<(), String>;

    /// Checks that the thing does not exist; the error names the part that still does.
    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.holds(facts).is_ok(), || {
            format!("it still exists: {}", Command(self))
        })
    }

    /// Returns the links with which the kernel deletes the thing; empty if the thing belongs to no
    /// link.
    fn goes_with(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Returns the links that are created and deleted with the thing.
    fn makes(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Returns the link that leaves the container when the thing is deleted. The link keeps its
    /// attributes.
    fn releases(&self) -> Option<&LinkRef> {
        None
    }

    /// Returns the link that must be down when the thing is added. It matters only if the same plan
    /// creates the link.
    fn before_up(&self) -> Option<&LinkRef> {
        None
    }

    /// Drops the parts of the thing that are deleted with these links.
    fn drop_parts(&mut self, _gone: &[&LinkRef]) {}

    /// Returns the phase in which the thing is added and deleted.
    fn phase(&self) -> Phase {
        Phase::Any
    }

    /// True if the thing is a setting of a link or a namespace. It is deleted with the link or
    /// namespace, so no step deletes it.
    fn is_setting(&self) -> bool {
        false
    }

    /// True if both are the same object, so that deleting either one has the same effect.
    fn is_same(&self, other: &Self) -> bool
    where
        Self: Sized + PartialEq,
    {
        self == other
    }

    /// True if the reference plugins make the same change in the same way. CHECK can then verify
    /// the change for an attachment without a record.
    fn is_as_reference(&self, _change: Change) -> bool {
        false
    }

    /// Returns the owner stored with the kernel object (network, container id and interface);
    /// `None` if no owner is stored.
    fn owner(&self) -> Option<&str> {
        None
    }

    /// Updates `facts` as if the thing existed, for later plugins of the same plan.
    fn predict(&self, _facts: &mut Facts) {}
}

struct Command<'a, T: State + ?Sized>(&'a T);

impl<T: State + ?Sized> fmt::Display for Command<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(Verb::Add, f)
    }
}

pub(super) fn refuse_if(wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if wrong { Err(why()) } else { Ok(()) }
}

pub(super) fn found<'a>(at: &LinkRef, facts: &'a Facts) -> Result<&'a LinkFact, String> {
    facts
        .link(at)
        .ok_or_else(|| format!("link {at} does not exist"))
}

/// Writes several commands as lines of a plan. Each line after the first begins with its namespace.
pub(super) fn lines(
    f: &mut fmt::Formatter<'_>,
    lines: impl IntoIterator<Item = (Ns, String)>,
) -> fmt::Result {
    for (number, (ns, line)) in lines.into_iter().enumerate() {
        match number {
            0 => f.write_str(&line)?,
            _ => write!(f, "\n{:<5}{line}", ns.to_string())?,
        }
    }
    Ok(())
}
