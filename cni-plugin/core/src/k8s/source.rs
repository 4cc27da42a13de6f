//! A source of pods, NetworkAttachmentDefinitions and claims, and the place where their status
//! goes.

use super::dynamic::Offered;
use super::{IpamClaim, Nad, ObjectName, Pod};
use std::collections::BTreeMap;
use std::fmt;

/// The reason why an object could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceError {
    /// There is no such object.
    NotFound {
        /// Its kind and name.
        what: String,
    },
    /// It will pass: no connection, a timeout, 409, 429, 5xx. The caller may try again later.
    Passing {
        /// The request, and what went wrong.
        why: String,
    },
    /// It stays until somebody mends it: no rights, no credentials, an object that can't be read.
    Lasting {
        /// The request, and what went wrong.
        why: String,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { what } => write!(f, "{what} does not exist"),
            Self::Passing { why } | Self::Lasting { why } => f.write_str(why),
        }
    }
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It is as it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

/// An event about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its severity.
    pub severity: Severity,
    /// A word in CamelCase, such as `InvalidAnnotation`.
    pub reason: &'static str,
    /// A sentence, 1,024 bytes at most.
    pub message: String,
}

/// A change of one annotation, made from the value that is there at that moment.
pub struct Edit<'a> {
    /// The annotation's key.
    pub key: &'a str,
    /// All annotations of the pod as they were read; `None` where they are to be read first.
    pub seen: Option<&'a BTreeMap<String, String>>,
    /// Makes the new value from the present one; `None` leaves the annotation as it is. It may be
    /// called several times.
    pub value: &'a dyn Fn(Option<&str>) -> Option<String>,
}

impl fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit")
            .field("key", &self.key)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// A source of objects. Each call is one round trip where that can be, retries within a bounded
/// time, and never waits longer.
pub trait Source {
    /// The pod, and at the same time those NADs of which the caller knows the names already; one
    /// that does not exist is left out.
    fn pod(
        &mut self,
        pod: &ObjectName,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError>;

    /// Those of these NADs that exist, all at once, in the order asked.
    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError>;

    /// Changes one annotation of the pod with this uid and touches nothing else. A value that
    /// another writer has changed since `edit.seen` is read again and never overwritten unread.
    fn annotate(&mut self, pod: &ObjectName, uid: &str, edit: &Edit<'_>)
    -> Result<(), SourceError>;

    /// Tells of the pod. Best effort: an event that can't be written is no failure of the caller's.
    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError>;

    /// The claim.
    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError>;

    /// The uids of all claims of the cluster, as they are now.
    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError>;

    /// Writes addresses, pod and conditions of a claim to its status, by `/status` alone. A claim
    /// that somebody else has changed since it was read stays as it is, and will pass.
    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError>;

    /// The devices that a driver offers on a node to resource claims.
    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError>;
}
