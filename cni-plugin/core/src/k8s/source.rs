//! Access to Kubernetes objects: reads pods, NetworkAttachmentDefinitions (NADs) and claims, and writes
//! the status of pods and `IPAMClaim`s.

use super::dynamic::Offered;
use super::{IpamClaim, NETWORK_STATUS, Nad, ObjectName, Pod, status};
use crate::cni::Json;
use crate::cni::trace::TraceId;
use crate::dra::claim::Claim;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Error of reading or writing an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Permanent until an administrator fixes it: missing rights or credentials, an object that
    /// can't be parsed.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// Normal operation.
    Normal,
    /// Needs attention.
    Warning,
}

/// A Kubernetes event about a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Severity.
    pub severity: Severity,
    /// Reason in CamelCase, such as `InvalidAnnotation`.
    pub reason: Cow<'static, str>,
    /// Message of at most 1,024 bytes.
    pub message: String,
    /// Trace of the call. Repeated events of several traces are one event with a series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceId>,
}

/// Annotation of an event with the trace of its call.
pub const TRACE_ANNOTATION: &str = "braid/trace-id";

/// A pod's attachments, to be published.
#[derive(Debug, Clone, Copy)]
pub struct News<'a> {
    /// Entries for the annotation `network-status`.
    pub entries: &'a [Json],
    /// Events about the pod.
    pub events: &'a [Event],
    /// True if the entries must be in the API before the call ends.
    pub is_urgent: bool,
}

/// A change to one annotation of a pod, computed from the annotation's current value.
pub struct Edit<'a> {
    /// Key of the annotation.
    pub key: &'a str,
    /// All annotations of the pod as last read; `None` to read them first.
    pub seen: Option<&'a BTreeMap<String, String>>,
    /// Returns the new value for the current value; `None` leaves the annotation unchanged. The
    /// function may be called several times.
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

/// Access to Kubernetes objects. Each call takes one round trip if possible, and retries only
/// within a bounded time.
pub trait Source {
    /// Reads the pod and, in parallel, the NADs in `nads`. Omits NADs that do not exist. `uid` is the
    /// uid of the call's own pod; `None` if it is unknown, and for any other pod.
    fn pod(
        &mut self,
        pod: &ObjectName,
        uid: Option<&str>,
        nads: &[ObjectName],
    ) -> Result<(Pod, Vec<Nad>), SourceError>;

    /// Reads these NADs in parallel. Omits missing NADs and keeps the order of `names`.
    fn nads(&mut self, names: &[ObjectName]) -> Result<Vec<Nad>, SourceError>;

    /// Changes one annotation of the pod with this uid. If another writer has changed the
    /// annotation since `edit.seen`, reads it again, so that no change of another writer is lost.
    fn annotate(&mut self, pod: &ObjectName, uid: &str, edit: &Edit<'_>)
    -> Result<(), SourceError>;

    /// Starts to write entries to the pod's annotation `network-status`, if another process can do so
    /// beside the call. Returns true if it has started. [`Source::publish`] with the same entries
    /// then waits for it.
    fn begin(&mut self, _pod: &Pod, _entries: &[Json]) -> bool {
        false
    }

    /// Publishes the entries in the pod's annotation `network-status`. Entries that other writers
    /// have added since the pod was read stay. Events follow as with [`Source::tell`] and
    /// [`Source::report`].
    fn publish(&mut self, pod: &Pod, news: &News<'_>) -> Result<(), SourceError> {
        let seen = pod.annotations.get(NETWORK_STATUS).map(String::as_str);
        let value = |now: Option<&str>| Some(status::rewrite(now, seen, news.entries.to_vec()));
        let edit = Edit {
            key: NETWORK_STATUS,
            seen: Some(&pod.annotations),
            value: &value,
        };
        let published = self.annotate(&pod.name, &pod.uid, &edit);
        for event in news.events {
            match event.severity {
                // The status has failed in the same way, or the event is informative only.
                Severity::Warning => drop(self.tell(&pod.name, &pod.uid, event)),
                Severity::Normal => self.report(&pod.name, &pod.uid, std::slice::from_ref(event)),
            }
        }
        published
    }

    /// Removes the entries of a container from the pod's annotation `network-status`, because its
    /// ADD failed. Restores the entries that they replaced, from the pod as it was read before.
    fn withdraw(&mut self, pod: &Pod, container_id: &str) -> Result<(), SourceError> {
        let seen = pod.annotations.get(NETWORK_STATUS).map(String::as_str);
        let value = |now: Option<&str>| status::withdrawn(now, seen, container_id);
        let edit = Edit {
            key: NETWORK_STATUS,
            seen: None,
            value: &value,
        };
        self.annotate(&pod.name, &pod.uid, &edit)
    }

    /// Writes an event about the pod. Best effort: the caller does not fail if the event can't be
    /// written.
    fn tell(&mut self, pod: &ObjectName, uid: &str, event: &Event) -> Result<(), SourceError>;

    /// Writes events, if an agent does so behind the call. A call makes no connection to the API
    /// server for them. Best effort.
    fn report(&mut self, _pod: &ObjectName, _uid: &str, _events: &[Event]) {}

    /// Reads an IPAMClaim.
    fn claim(&mut self, name: &ObjectName) -> Result<IpamClaim, SourceError>;

    /// Reads the uids of all IPAMClaims in the cluster.
    fn claim_uids(&mut self) -> Result<Vec<String>, SourceError>;

    /// Writes the addresses, owner pod and conditions of an IPAMClaim through its `/status`
    /// subresource. If another writer has changed the claim since it was read, writes nothing and
    /// returns a temporary error.
    fn fill_claim(&mut self, claim: &IpamClaim) -> Result<(), SourceError>;

    /// Reads the `ResourceClaim`s of the pod with this uid that have devices of this driver, in the order
    /// of the pod.
    fn resource_claims(&mut self, pod: &ObjectName, uid: &str) -> Result<Vec<Claim>, SourceError>;

    /// Reads the devices on a node that a driver publishes in ResourceSlices.
    fn offered(&mut self, node: &str, driver: &str) -> Result<Vec<Offered>, SourceError>;
}
