//! An API request: its verb, its object, and its errors.

use super::object;
use super::session::Failure;
use braid_core::cni::{self, Kind};
use braid_core::k8s::source::{Event, SourceError};
use braid_core::k8s::{IpamClaim, ObjectName};
use braid_node::source::client::protocol::{Exchange, ExchangeKind, Verb};
use http::{Method, Request, header};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

const WHEREABOUTS: &str = "apis/whereabouts.cni.cncf.io/v1alpha1";
const JSON: &str = "application/json";
/// Media type of a list with only the objects' metadata.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Objects per page.
const PAGE: usize = 500;
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// Longest object name in bytes (RFC 1123).
const NAME_MAX: usize = 253;

/// Kind of a Kubernetes object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Pod,
    Nad,
    Claim,
    ResourceClaim,
    Event,
    Slice,
    Pool,
    Reservation,
    SlicePool,
    Node,
    DaemonSet,
    Deployment,
    CronJob,
}

impl ObjectKind {
    /// Returns the kind's name for errors.
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Nad => "NetworkAttachmentDefinition",
            Self::Claim => "IPAMClaim",
            Self::ResourceClaim => "ResourceClaim",
            Self::Event => "event of pod",
            Self::Slice => "ResourceSlice",
            Self::Pool => "IPPool",
            Self::Reservation => "OverlappingRangeIPReservation",
            Self::SlicePool => "NodeSlicePool",
            Self::Node => "Node",
            Self::DaemonSet => "DaemonSet",
            Self::Deployment => "Deployment",
            Self::CronJob => "CronJob",
        }
    }

    /// Returns the URL path of the objects in a namespace; `None` means all namespaces.
    fn folder(self, namespace: Option<&str>) -> String {
        let (group, resource) = match self {
            Self::Pod => ("api/v1", "pods"),
            Self::Nad => ("apis/k8s.cni.cncf.io/v1", "network-attachment-definitions"),
            Self::Claim => ("apis/k8s.cni.cncf.io/v1alpha1", "ipamclaims"),
            Self::ResourceClaim => ("apis/resource.k8s.io/v1", "resourceclaims"),
            Self::Event => ("apis/events.k8s.io/v1", "events"),
            Self::Slice => ("apis/resource.k8s.io/v1", "resourceslices"),
            Self::Pool => (WHEREABOUTS, "ippools"),
            Self::Reservation => (WHEREABOUTS, "overlappingrangeipreservations"),
            Self::SlicePool => (WHEREABOUTS, "nodeslicepools"),
            Self::Node => ("api/v1", "nodes"),
            Self::DaemonSet => ("apis/apps/v1", "daemonsets"),
            Self::Deployment => ("apis/apps/v1", "deployments"),
            Self::CronJob => ("apis/batch/v1", "cronjobs"),
        };
        match namespace.filter(|_| self != Self::Node) {
            Some(namespace) => format!("/{group}/namespaces/{namespace}/{resource}"),
            None => format!("/{group}/{resource}"),
        }
    }
}

impl From<ExchangeKind> for ObjectKind {
    fn from(kind: ExchangeKind) -> Self {
        match kind {
            ExchangeKind::Pool => Self::Pool,
            ExchangeKind::Reservation => Self::Reservation,
            ExchangeKind::SlicePool => Self::SlicePool,
            ExchangeKind::Node => Self::Node,
            ExchangeKind::Pod => Self::Pod,
            ExchangeKind::DaemonSet => Self::DaemonSet,
            ExchangeKind::Deployment => Self::Deployment,
            ExchangeKind::CronJob => Self::CronJob,
        }
    }
}

/// A request to the API server. It can be sent several times.
pub(super) struct ApiRequest {
    verb: &'static str,
    kind: ObjectKind,
    object: ObjectName,
    /// Required uid of the object.
    uid: Option<String>,
    /// True if the request is retried after a transient failure.
    pub(super) is_repeated: bool,
    /// True if the request is for one version of the object. Status 409 then means that the object
    /// has changed.
    pub(super) is_of_version: bool,
    pub(super) request: Request<Vec<u8>>,
}

impl ApiRequest {
    /// Creates a request for a whole object. The metadata alone would lack a pod's resource claims.
    pub(super) fn get(kind: ObjectKind, object: &ObjectName) -> Result<Self, SourceError> {
        Self::new("get", kind, object, "", None)
    }

    /// Creates a request for a pod. Errors name the uid that the pod must have.
    pub(super) fn of_pod(pod: &ObjectName, uid: &str) -> Result<Self, SourceError> {
        Ok(Self {
            uid: Some(uid.to_owned()),
            ..Self::get(ObjectKind::Pod, pod)?
        })
    }

    /// Creates a request for a page of the list of all objects of a kind. `next` is the token from
    /// the previous page; empty for the first page.
    pub(super) fn list(kind: ObjectKind, next: &str) -> Result<Self, SourceError> {
        Self::page((kind, None), METADATA, "", next)
    }

    /// Creates a request for a page of the list of all objects of a kind: in `namespace` for the kinds of
    /// cluster-wide IPAM, in all namespaces for other kinds. `next` is the token from the previous page; empty for
    /// the first page.
    pub(super) fn list_whole(
        kind: ExchangeKind,
        namespace: &str,
        next: &str,
    ) -> Result<Self, SourceError> {
        let namespace = match kind {
            ExchangeKind::Pool | ExchangeKind::Reservation | ExchangeKind::SlicePool => {
                Some(namespace)
            }
            ExchangeKind::Node
            | ExchangeKind::Pod
            | ExchangeKind::DaemonSet
            | ExchangeKind::Deployment
            | ExchangeKind::CronJob => None,
        };
        // Whole pods of a large cluster would be hundreds of megabytes.
        let form = if kind == ExchangeKind::Pod {
            METADATA
        } else {
            JSON
        };
        Self::page((kind.into(), namespace), form, "", next)
    }

    /// Creates a request for a page of the `ResourceSlices` of a driver on a node. `next` is the
    /// token from the previous page; empty for the first page.
    pub(super) fn slices(node: &str, driver: &str, next: &str) -> Result<Self, SourceError> {
        if !is_name(node) || !is_name(driver) {
            let why =
                format!("list ResourceSlices: driver {driver:?} of node {node:?}: invalid name");
            return Err(SourceError::Lasting { why });
        }
        let selector = format!("&fieldSelector=spec.nodeName%3D{node}%2Cspec.driver%3D{driver}");
        Self::page((ObjectKind::Slice, None), JSON, &selector, next)
    }

    fn page(
        (kind, namespace): (ObjectKind, Option<&str>),
        form: &str,
        of: &str,
        next: &str,
    ) -> Result<Self, SourceError> {
        let path = kind.folder(namespace);
        let from = if next.is_empty() {
            String::new()
        } else {
            format!("&continue={next}")
        };
        let object = ObjectName {
            namespace: String::new(),
            name: String::new(),
        };
        let request = Request::get(format!("{path}?limit={PAGE}{of}{from}"))
            .header(header::ACCEPT, form)
            .body(Vec::new());
        let request = request.map_err(|err| SourceError::Lasting {
            why: format!("list {}s: {err}", kind.name()),
        })?;
        Ok(Self {
            verb: "list",
            kind,
            object,
            uid: None,
            is_repeated: true,
            is_of_version: false,
            request,
        })
    }

    /// Creates a patch of an annotation of a pod that has the annotations `present`. The path is
    /// `pods/status`, which also accepts metadata. The right to patch `pods` would include changing
    /// the image of a running container; the right to patch `pods/status` does not. The patch does
    /// not touch the status.
    pub(super) fn annotate(
        pod: &ObjectName,
        uid: &str,
        (key, value): (&str, &str),
        present: &BTreeMap<String, String>,
    ) -> Result<Self, SourceError> {
        let patch = object::annotation(uid, (key, value), present);
        Ok(Self {
            uid: Some(uid.to_owned()),
            ..Self::new("patch", ObjectKind::Pod, pod, "/status", Some(&patch))?
        })
    }

    /// Creates a request that writes back `body`, a pod with one changed annotation, via
    /// `pods/status`. The server refuses it if the pod's version has changed.
    pub(super) fn put(pod: &ObjectName, uid: &str, body: &Value) -> Result<Self, SourceError> {
        let ask = Self::new("update", ObjectKind::Pod, pod, "/status", Some(body))?;
        Ok(Self {
            uid: Some(uid.to_owned()),
            is_of_version: true,
            ..ask
        })
    }

    /// Creates a patch of the status of a claim. The patch has no uid, as the server drops the uid
    /// from a status patch of a custom resource.
    pub(super) fn fill(claim: &IpamClaim) -> Result<Self, SourceError> {
        let ask = Self::new(
            "patch",
            ObjectKind::Claim,
            &claim.name,
            "/status",
            Some(&object::status_of_claim(claim)),
        )?;
        Ok(Self {
            uid: Some(claim.uid.clone()),
            is_of_version: true,
            ..ask
        })
    }

    /// Creates a request that creates an event about a pod. It is sent only once, as a retry could
    /// duplicate the event.
    pub(super) fn tell(pod: &ObjectName, uid: &str, event: &Event) -> Result<Self, SourceError> {
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let event = object::event(pod, uid, event, node.trim(), Timestamp::now());
        Ok(Self {
            is_repeated: false,
            ..Self::new("create", ObjectKind::Event, pod, "", Some(&event))?
        })
    }

    /// Creates a request about an object of cluster-wide IPAM.
    pub(super) fn exchange(exchange: &Exchange, namespace: &str) -> Result<Self, SourceError> {
        let verb = match exchange.verb {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Create => "create",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        };
        let kind = exchange.kind.into();
        let object = ObjectName {
            namespace: namespace.to_owned(),
            name: exchange.name.clone(),
        };
        Ok(Self {
            // The precondition of a deletion is the object's uid. It does not change.
            is_of_version: exchange.verb == Verb::Delete,
            ..Self::new(verb, kind, &object, "", exchange.body.as_ref())?
        })
    }

    fn new(
        verb: &'static str,
        kind: ObjectKind,
        object: &ObjectName,
        subresource: &str,
        body: Option<&Value>,
    ) -> Result<Self, SourceError> {
        let what = format!("{verb} {} {object}", kind.name());
        // An invalid name in a URL path could address another object.
        if !is_name(&object.namespace) || !is_name(&object.name) {
            return Err(SourceError::Lasting {
                why: format!("{what}: invalid object name"),
            });
        }
        let folder = kind.folder(Some(&object.namespace));
        let (method, path, content) = match verb {
            "create" => (Method::POST, folder, JSON),
            "update" => (
                Method::PUT,
                format!("{folder}/{}{subresource}", object.name),
                JSON,
            ),
            "patch" => {
                let form = if body.is_some_and(Value::is_array) {
                    JSON_PATCH
                } else {
                    MERGE_PATCH
                };
                (
                    Method::PATCH,
                    format!("{folder}/{}{subresource}", object.name),
                    form,
                )
            }
            "delete" => (Method::DELETE, format!("{folder}/{}", object.name), JSON),
            _ => (Method::GET, format!("{folder}/{}", object.name), JSON),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, JSON);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let request = request.body(
            body.map(|body| body.to_string().into_bytes())
                .unwrap_or_default(),
        );
        let request = request.map_err(|err| SourceError::Lasting {
            why: format!("{what}: {err}"),
        })?;
        let object = object.clone();
        Ok(Self {
            verb,
            kind,
            object,
            uid: None,
            is_repeated: true,
            is_of_version: false,
            request,
        })
    }

    /// True if the request creates an object. Status 409 then means that the object exists.
    pub(super) fn is_creation(&self) -> bool {
        self.verb == "create"
    }

    /// Converts the failure of the last attempt to the error of the request.
    pub(super) fn failed(&self, failure: Failure, attempts: u32) -> SourceError {
        let tried = if attempts > 1 {
            format!(", tried {attempts} times")
        } else {
            String::new()
        };
        match failure {
            Failure::Answer {
                status: 404,
                is_object: true,
                ..
            } => SourceError::NotFound { what: self.what() },
            Failure::Answer {
                status: 404,
                is_object: false,
                ..
            } => SourceError::NotFound {
                what: format!("{} (or its kind: are the CRDs applied?)", self.what()),
            },
            Failure::Answer { is_uid: true, .. } => self.is_another(),
            Failure::Answer {
                status, message, ..
            } => {
                let why = format!("{} {}: {status}{tried}: {message}", self.verb, self.what());
                if is_passing(status) {
                    SourceError::Passing { why }
                } else {
                    SourceError::Lasting { why }
                }
            }
            Failure::Silence { why } => SourceError::Passing {
                why: format!("{} {}: {why}{tried}", self.verb, self.what()),
            },
            Failure::Stranger { why } => SourceError::Lasting {
                why: format!("{} {}: {why}", self.verb, self.what()),
            },
        }
    }

    /// Returns the error for an object with the requested name and another uid.
    pub(super) fn is_another(&self) -> SourceError {
        SourceError::NotFound {
            what: format!(
                "{} with uid {}",
                self.what(),
                self.uid.as_deref().unwrap_or_default()
            ),
        }
    }

    /// Returns the error for a response that cannot be parsed. The text gives only the position, as
    /// the content may have secrets.
    pub(super) fn unreadable(&self, err: &serde_json::Error) -> SourceError {
        let place = format!("line {} column {}", err.line(), err.column());
        SourceError::Lasting {
            why: format!(
                "{} {}: can't parse the response: {place}",
                self.verb,
                self.what()
            ),
        }
    }

    /// Returns the error for an object with a value that braid refuses.
    pub(super) fn refused(&self, err: &cni::Error) -> SourceError {
        let why = format!("{} {}: {err}", self.verb, self.what());
        if err.kind == Kind::TryAgain {
            SourceError::Passing { why }
        } else {
            SourceError::Lasting { why }
        }
    }

    fn what(&self) -> String {
        let kind = self.kind.name();
        if self.object.name.is_empty() {
            format!("{kind}s")
        } else {
            format!("{kind} {}", self.object)
        }
    }
}

/// True if a retry may succeed after this HTTP status.
pub(super) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..)
}

/// True if `name` is a valid object name, so it cannot change a URL path.
fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    name.len() <= NAME_MAX
        && name.bytes().all(is_good)
        && name
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests;
