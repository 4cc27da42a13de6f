//! Lists, patches and events in the API server's format. `braid_core::k8s::object` parses single
//! objects.

use braid_core::k8s::dynamic::{DEVICE_ID, Offered, RESOURCE};
use braid_core::k8s::source::{Event, Severity, TRACE_ANNOTATION};
use braid_core::k8s::{IpamClaim, ObjectName};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Error, Value, json};
use std::collections::BTreeMap;

/// Longest note of an event in bytes; the API server's limit.
const NOTE_MAX: usize = 1024;

#[derive(Deserialize)]
struct SliceList {
    metadata: ListMeta,
    items: Vec<SliceObject>,
}

#[derive(Deserialize)]
struct SliceObject {
    spec: SliceSpec,
}

#[derive(Deserialize)]
struct SliceSpec {
    pool: Pool,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Pool {
    name: String,
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
struct Device {
    name: String,
    #[serde(default)]
    attributes: BTreeMap<String, Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    string: Option<String>,
}

/// A page of a list of objects.
pub(super) struct Page {
    pub(super) uids: Vec<String>,
    /// Token of the next page; empty for the last one.
    pub(super) next: String,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    /// Objects of the page. A list of metadata has null instead of an empty array. A missing key is
    /// an error, so that another kind of object is not taken for a list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
struct WholeList {
    metadata: ListMeta,
    /// Objects of the page, as in [`List`].
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Listed {
    metadata: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: String,
}

/// Parses a page of a list. Fails if an object has no uid.
pub(super) fn page(body: &[u8]) -> Result<Page, Error> {
    let List {
        metadata: ListMeta { next },
        items,
    } = serde_json::from_slice(body)?;
    let mut uids = Vec::new();
    for listed in items.unwrap_or_default() {
        uids.push(listed.metadata.uid);
    }
    Ok(Page { uids, next })
}

/// Returns the objects of a page of a list, and the token of the next page.
pub(super) fn whole(body: &[u8]) -> Result<(Vec<Value>, String), Error> {
    let WholeList {
        metadata: ListMeta { next },
        items,
    } = serde_json::from_slice(body)?;
    Ok((items.unwrap_or_default(), next))
}

/// Returns the devices of a page of `ResourceSlices`, and the token of the next page.
pub(super) fn offered(body: &[u8]) -> Result<(Vec<Offered>, String), Error> {
    let SliceList {
        metadata: ListMeta { next },
        items,
    } = serde_json::from_slice(body)?;
    let mut offered = Vec::new();
    for SliceObject { spec } in items {
        for mut device in spec.devices {
            offered.push(Offered {
                pool: spec.pool.name.clone(),
                generation: spec.pool.generation,
                id: device.take(DEVICE_ID),
                resource: device.take(RESOURCE),
                device: device.name,
            });
        }
    }
    Ok((offered, next))
}

impl Device {
    /// Removes an attribute and returns its text. The text is empty if the attribute is missing or
    /// not a string.
    fn take(&mut self, key: &str) -> String {
        match self.attributes.remove(key) {
            Some(Attribute { string: Some(text) }) => text,
            Some(Attribute { string: None }) | None => String::new(),
        }
    }
}

/// Returns a JSON Patch that sets an annotation of the pod with this uid, if the annotation still
/// has its value in `present`. The server omits an empty map, so a pod's first annotation adds the
/// map. A `test` for null matches a missing value.
pub fn annotation(
    uid: &str,
    (key, value): (&str, &str),
    present: &BTreeMap<String, String>,
) -> Value {
    const ALL: &str = "/metadata/annotations";
    let own = format!("{ALL}/{}", key.replace('~', "~0").replace('/', "~1"));
    let (path, before, after) = match present.get(key) {
        Some(before) => (own.as_str(), json!(before), json!(value)),
        None if present.is_empty() => (ALL, Value::Null, json!({key: value})),
        None => (own.as_str(), Value::Null, json!(value)),
    };
    json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": before},
        {"op": "add", "path": path, "value": after},
    ])
}

/// Returns the uid of an object; empty if it has none.
pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns a reference to an annotation of an object. Adds null if the annotation is missing.
pub(super) fn annotation_of<'o>(object: &'o mut Value, key: &str) -> &'o mut Value {
    &mut object["metadata"]["annotations"][key]
}

/// Returns a merge patch that sets the status of a claim, if the claim has not changed since it was
/// read.
pub(super) fn status_of_claim(claim: &IpamClaim) -> Value {
    let mut conditions: Vec<Value> = Vec::new();
    for condition in &claim.conditions {
        conditions.extend(serde_json::from_str(&condition.to_string()).ok());
    }
    let mut status = json!({"ips": claim.ips, "conditions": conditions});
    if let Some(owner) = &claim.owner_pod {
        status["ownerPod"] = json!({"name": owner});
    }
    json!({"metadata": {"resourceVersion": claim.version}, "status": status})
}

pub(super) fn event(
    pod: &ObjectName,
    uid: &str,
    event: &Event,
    node: &str,
    now: Timestamp,
) -> Value {
    let severity = match event.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let mut metadata = json!({"namespace": pod.namespace, "generateName": event_name(&pod.name)});
    if let Some(trace) = &event.trace {
        metadata["annotations"] = json!({TRACE_ANNOTATION: trace.to_string()});
    }
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": metadata,
        "eventTime": MicroTime(now),
        "reportingController": "braid",
        "reportingInstance": node,
        "action": "Attach",
        "reason": event.reason,
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": uid},
        "note": event.message[..event.message.floor_char_boundary(NOTE_MAX)],
        "type": severity,
    })
}

/// Returns the `generateName` of an event about this pod. The server keeps at most 58 bytes of it,
/// and appends random characters.
fn event_name(pod: &str) -> String {
    let pod = &pod[..pod.floor_char_boundary(57)];
    format!("{}-", pod.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests;
