//! Source of pods, NetworkAttachmentDefinitions and claims, and destination of their status.

use super::dynamic::Offered;
use super::{IpamClaim, Nad, ObjectName, Pod};
use std::collections::BTreeMap;
use std::fmt;

/// Error of reading or writing an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceError {
    /// The object does not exist.
    NotFound {
        /// Kind and name of the object.
        what: String,
    },
    /// Temporary: no connection, a timeout, 409, 429, 5xx. The caller may try again later.
    Passing {
        /// The request and its error.
        why: String,
    },
    /// Permanent until fixed: no rights, no credentials, an object that can't be read.
    Lasting {
        /// The request and its error.
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

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Normal operation.
    Normal,
    /// Needs attention.
    Warning,
}

/// An event about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Severity.
    pub severity: Severity,
    /// Reason in CamelCase, such as `InvalidAnnotation`.
    pub reason: &'static str,
    /// Message of at most 1,024 bytes.
    pub message: String,
}

/// A change to one annotation, computed from its current value.
pub struct Edit<'a> {
    /// Key of the annotation.
    pub key: &'a str,
    /// All annotations of the pod as last read; `None` to read them first.
    pub seen: Option<&'a BTreeMap<String, String>>,
    /// Returns the new value for the current one; `None` leaves the annotation unchanged. May be
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

/// Source of objects. Each call is one round trip if possible. It retries within a bounded time and
/// never waits longer.
pub trait Source {
    /// Reads the pod and, in parallel, the NADs with names known in advance. Omits NADs that do not
    /// exist.
    fn pod(
        &mut self,
        pod: &ObjectName,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError>;

    /// Reads these NADs in parallel. Omits missing ones and keeps the given order.
    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError>;

    /// Changes one annotation of the pod with this uid and nothing else. A value that another
    /// writer has changed since `edit.seen` is read again and never overwritten unread.
    fn annotate(&mut self, pod: &ObjectName, uid: &str, edit: &Edit<'_>)
    -> Result<(), SourceError>;

    /// Writes an event about the pod. Best effort: the caller does not fail if the event can't be
    /// written.
    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError>;

    /// Reads a claim.
    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError>;

    /// Reads the current uids of all claims in the cluster.
    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError>;

    /// Writes addresses, pod and conditions of a claim, only through `/status`. If another writer
    /// has changed the claim since it was read, it stays as it is and the error is temporary.
    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError>;

    /// Reads the devices that a driver offers to resource claims on a node.
    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError>;
}
