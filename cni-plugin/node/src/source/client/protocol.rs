//! Messages between a call and the client program that it starts, one line of JSON each.
//!
//! ```text
//!  call:    {"version": "0.1.0", "kubeconfig": "…", "limits": {…}}
//!  call:    {"limit": null, "request": {"Annotate": {"pod": {…}, "uid": "…", "key": "…", "seen": null}}}
//!  client:  {"Value": "[…]"}           the annotation's value now
//!  call:    "[…, …]"                   its new value
//!  client:  {"Done": {"Ok": null}}
//! ```

use braid_core::k8s::source::{Event, SourceError};
use braid_core::k8s::{IpamClaim, ObjectName, Pod};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// File name of the client program, beside braid.
pub const PROGRAM: &str = "braid-agent";
/// The client program's only argument.
pub const ARGUMENT: &str = "client";

/// Time limits for requests to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Limit of one attempt. With a round trip of 800 ms the first attempt takes 2.4 s: TCP, TLS,
    /// the request.
    pub attempt: Duration,
    /// Limit of one method call of the source, with all attempts and pauses.
    pub call: Duration,
    /// Limit of all method calls together. A container runtime allows an ADD far more time, but
    /// other CNI calls on the node wait for the ADD.
    pub process: Duration,
    /// Limit of sending an event, which must not delay the call.
    pub event: Duration,
}

impl Limits {
    /// Limits of a command, for which nothing waits but a person.
    pub const COMMAND: Self = Self {
        attempt: Duration::from_secs(20),
        call: Duration::from_mins(1),
        process: Duration::from_mins(10),
        event: Duration::from_secs(3),
    };
}

impl Default for Limits {
    fn default() -> Self {
        let [attempt, call, process, event] = [5, 10, 18, 3].map(Duration::from_secs);
        Self {
            attempt,
            call,
            process,
            event,
        }
    }
}

/// First message of the call. It has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// braid's version. Programs of different versions do not talk to each other.
    pub version: String,
    /// File with address and credentials of the API server.
    pub kubeconfig: PathBuf,
    /// Time limits.
    pub limits: Limits,
}

/// Each further message of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Limit of this request, if it is shorter than [`Limits::call`].
    pub limit: Option<Duration>,
    /// The request.
    pub request: ClientRequest,
}

/// A request of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClientRequest {
    /// The pod, and these networks.
    Pod {
        /// The pod.
        pod: ObjectName,
        /// Networks.
        nads: Vec<ObjectName>,
    },
    /// These networks.
    Nads(Vec<ObjectName>),
    /// Publish the status of a pod.
    Publish {
        /// The pod as the call read it.
        pod: Pod,
        /// Entries for the annotation `network-status`, as JSON.
        status: String,
    },
    /// Change an annotation. The client asks for the new value of each value that it finds.
    Annotate {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
        /// Key of the annotation.
        key: String,
        /// All annotations of the pod as last read, if they were.
        seen: Option<BTreeMap<String, String>>,
    },
    /// Write an event about the pod.
    Tell {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
        /// The event.
        event: Event,
    },
    /// An IPAMClaim.
    Claim(ObjectName),
    /// The uids of all IPAMClaims.
    ClaimUids,
    /// Write the status of an IPAMClaim.
    FillClaim(IpamClaim),
    /// The resource claims of a pod with devices of braid.
    ResourceClaims {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
    },
    /// The devices on a node that a driver publishes.
    Offered {
        /// The node.
        node: String,
        /// The driver.
        driver: String,
    },
    /// A request about one object, answered with an [`Exchanged`].
    Exchange(Exchange),
    /// Such requests at the same time, answered with a list of results.
    Exchanges(Vec<Exchange>),
    /// The devices that the kubelet assigned to a pod.
    Devices {
        /// The kubelet's socket.
        socket: PathBuf,
        /// The pod.
        pod: ObjectName,
    },
}

/// A request about an object that cluster-wide IPAM reads or changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// The verb.
    pub verb: Verb,
    /// Kind of the object.
    pub kind: ExchangeKind,
    /// Name of the object. Its namespace is that of the kubeconfig's context, or `kube-system`.
    pub name: String,
    /// Object, JSON Patch or options of the deletion.
    pub body: Option<serde_json::Value>,
}

/// Verb of an [`Exchange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Read.
    Get,
    /// Read all objects of the kind. The name is empty, and the answer's body is a JSON list.
    List,
    /// Create.
    Create,
    /// Change.
    Patch,
    /// Delete.
    Delete,
}

/// Kind of the object of an [`Exchange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExchangeKind {
    /// `IPPool` of Whereabouts.
    Pool,
    /// `OverlappingRangeIPReservation` of Whereabouts.
    Reservation,
    /// `NodeSlicePool` of Whereabouts.
    SlicePool,
    /// `Node`.
    Node,
    /// `Pod`. A list has all namespaces, and only the metadata.
    Pod,
    /// `DaemonSet`. This and the next kinds are only listed, in all namespaces.
    DaemonSet,
    /// `Deployment`.
    Deployment,
    /// `CronJob`.
    CronJob,
}

/// Answer of the API server to an [`Exchange`]: a success, or a refusal that its sender judges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// HTTP status: 2xx, 404, 409 or 422.
    pub status: u16,
    /// The object after a success.
    pub body: String,
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ClientAnswer<T> {
    /// Value of the annotation now. The call answers with its new value, or null to keep it.
    Value(Option<String>),
    /// The last message of an answer.
    Done(Result<T, SourceError>),
}
