//! The interface of a kind of thing, for its command and its check against facts.

use crate::name::Ns;
use crate::plan::fact::link::LinkFact;
use crate::plan::fact::link_ref::LinkRef;
use crate::plan::facts::{Facts, Need};
use std::fmt;

/// Direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Create.
    Add,
    /// Delete.
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

/// Phase of a thing in ADD and in the undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Added in the order of the plan, deleted before the links.
    Any,
    /// A link. Links are deleted after everything else, those of a namespace together.
    Link,
    /// Added before a link exists to send through, deleted when none is left.
    Guard,
}

/// What a step does to its thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Creates it for the attachment.
    Add,
    /// Creates it for the node, if missing.
    Ensure,
    /// Deletes it.
    Del,
}

/// A kind of thing: its command, the facts it needs, and the check against them.
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

    /// Checks that the thing is gone; the error names the rest.
    fn is_gone(&self, facts: &Facts) -> Result<(), String> {
        refuse_if(self.holds(facts).is_ok(), || {
            format!("it still exists: {}", Command(self))
        })
    }

    /// Returns the links that the thing is deleted with; none if it belongs to no link.
    fn goes_with(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Returns the links that are created and deleted with the thing.
    fn makes(&self) -> Vec<&LinkRef> {
        Vec::new()
    }

    /// Returns the link that leaves the container, with its attributes, if the thing is deleted.
    fn releases(&self) -> Option<&LinkRef> {
        None
    }

    /// Returns the link that must be down when the thing is added, if it is new.
    fn before_up(&self) -> Option<&LinkRef> {
        None
    }

    /// Drops the parts of a thing to delete that are deleted with these links.
    fn drop_parts(&mut self, _gone: &[&LinkRef]) {}

    /// Returns the phase in which the thing is added and deleted.
    fn phase(&self) -> Phase {
        Phase::Any
    }

    /// True if the thing is a value of a link or namespace: it is deleted with that, and no step
    /// deletes it.
    fn is_setting(&self) -> bool {
        false
    }

    /// True if the deletion of either deletes the same.
    fn is_same(&self, other: &Self) -> bool
    where
        Self: Sized + PartialEq,
    {
        self == other
    }

    /// True if the reference plugins make the same change in the same way, so that CHECK can judge
    /// it without a record.
    fn is_as_reference(&self, _change: Change) -> bool {
        false
    }

    /// Returns the owner that the kernel keeps: network, container id and interface.
    fn owner(&self) -> Option<&str> {
        None
    }

    /// Updates `facts` with the thing, for a later plugin of the same plan.
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

/// Writes several commands as lines of a plan: each after the first begins with its namespace.
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
