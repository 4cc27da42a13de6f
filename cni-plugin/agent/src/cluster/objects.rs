//! Objects for calls, by name, updated by their watches.
//!
//! Of each object only its uid and a text stay in memory: JSON in the format of the API server, with
//! the fields that calls read.

use braid_core::k8s::ObjectName;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::watcher::Event;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Annotation with a copy of the whole object, which no call reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object with the fields that calls read. All others, such as `managedFields`, are skipped while
/// parsing.
#[derive(Debug, Clone, Deserialize)]
pub struct Slim<S, T> {
    #[serde(deserialize_with = "metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: S,
    #[serde(default)]
    pub(super) status: T,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let SlimMeta {
        name,
        namespace,
        uid,
        resource_version,
        mut annotations,
    } = SlimMeta::deserialize(deserializer)?;
    if let Some(copy) = annotations
        .as_mut()
        .and_then(|annotations| annotations.get_mut(LAST_APPLIED))
    {
        // The key stays: a patch of a pod's first annotation differs from one of another.
        *copy = String::new();
    }
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        annotations,
        ..ObjectMeta::default()
    })
}

impl<S, T> Resource for Slim<S, T> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        kind.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// An object that is kept as a text.
pub trait Kept {
    /// Namespace and name; `None` without them, which no API server sends.
    fn name(&self) -> Option<ObjectName>;

    /// Uid and text.
    fn entry(&self) -> Entry;
}

/// Metadata in a text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Text<'a, S, T> {
    metadata: Meta<'a>,
    spec: &'a S,
    status: &'a T,
}

impl<S: Serialize, T: Serialize> Slim<S, T> {
    pub(super) fn object_name(&self) -> Option<ObjectName> {
        Some(ObjectName {
            namespace: self.metadata.namespace.clone()?,
            name: self.metadata.name.clone()?,
        })
    }

    /// Returns the entry. The version is in the text of objects that calls write.
    pub(super) fn entry_with(&self, has_version: bool) -> Entry {
        let version = self.metadata.resource_version.as_deref();
        let none = BTreeMap::new();
        let annotations = self.metadata.annotations.as_ref().unwrap_or(&none);
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let text = Text {
            metadata: Meta {
                uid,
                resource_version: version.filter(|_| has_version),
                annotations,
            },
            spec: &self.spec,
            status: &self.status,
        };
        Entry {
            uid: uid.to_owned(),
            text: serde_json::to_string(&text).unwrap_or_default(),
        }
    }
}

/// A kept object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `metadata.uid`.
    pub uid: String,
    /// JSON on one line.
    pub text: String,
}

impl Entry {
    /// Returns the annotations.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        #[derive(Deserialize)]
        struct Annotated {
            metadata: Annotations,
        }
        #[derive(Deserialize)]
        struct Annotations {
            annotations: BTreeMap<String, String>,
        }
        serde_json::from_str(&self.text).map_or_else(
            |_| BTreeMap::new(),
            |annotated: Annotated| annotated.metadata.annotations,
        )
    }
}

/// Objects of one kind, as far as they are known.
#[derive(Debug, Default)]
pub struct Objects {
    known: BTreeMap<ObjectName, Entry>,
    /// Objects of a list that is still arriving. They replace the others at its end.
    arriving: Option<BTreeMap<ObjectName, Entry>>,
    is_complete: bool,
}

impl Objects {
    /// Updates the objects by an event of their watch. Returns true if one differs.
    pub fn update(&mut self, event: &Event<impl Kept>) -> bool {
        match event {
            Event::Init => {
                self.arriving = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                if let Some(name) = object.name() {
                    let arriving = self.arriving.get_or_insert_default();
                    arriving.insert(name, object.entry());
                }
                false
            }
            Event::InitDone => {
                let arriving = self.arriving.take().unwrap_or_default();
                let is_changed = !self.is_complete || arriving != self.known;
                self.known = arriving;
                self.is_complete = true;
                is_changed
            }
            Event::Apply(object) => object.name().is_some_and(|name| {
                let entry = object.entry();
                let before = self.known.insert(name, entry.clone());
                before != Some(entry)
            }),
            Event::Delete(object) => object
                .name()
                .is_some_and(|name| self.known.remove(&name).is_some()),
        }
    }

    /// Forgets all objects, because the API has no such kind any more.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// True after the first complete list. Then an object that is not known does not exist, or is
    /// very new.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns an object by name.
    pub fn get(&self, name: &ObjectName) -> Option<&Entry> {
        self.known.get(name)
    }

    /// Returns all objects.
    pub fn all(&self) -> impl Iterator<Item = (&ObjectName, &Entry)> {
        self.known.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pods::PodObject;
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, uid: &str, more: &Value) -> PodObject {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "7",
                "managedFields": [{"manager": "kubelet"}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        serde_json::from_value(object).expect("an object")
    }

    fn names(objects: &Objects) -> Vec<&str> {
        objects.all().map(|(name, _)| name.name.as_str()).collect()
    }

    #[test]
    fn a_new_list_replaces_the_objects_only_at_its_end() {
        let mut objects = Objects::default();
        let none = json!({});
        for event in [
            Event::Init,
            Event::InitApply(pod("a", "1", &none)),
            Event::InitApply(pod("b", "2", &none)),
        ] {
            assert!(!objects.update(&event));
        }
        assert!(!objects.is_complete() && names(&objects).is_empty());
        assert!(objects.update(&Event::<PodObject>::InitDone) && objects.is_complete());
        objects.update(&Event::<PodObject>::Init);
        objects.update(&Event::InitApply(pod("b", "2", &none)));
        assert_eq!(names(&objects), ["a", "b"]);
        assert!(objects.update(&Event::<PodObject>::InitDone));
        assert_eq!(names(&objects), ["b"]);
        assert!(objects.update(&Event::Delete(pod("b", "2", &none))));
        objects.forget();
        assert!(!objects.is_complete());
    }

    #[test]
    fn only_changed_fields_that_calls_read_count_as_a_change() {
        let mut objects = Objects::default();
        assert!(objects.update(&Event::Apply(pod("a", "1", &json!({})))));
        let status = json!({"status": {"podIP": "10.1.0.2", "conditions": [{}]}});
        assert!(!objects.update(&Event::Apply(pod("a", "1", &status))));
        let status = json!({"status": {"phase": "Succeeded"}});
        assert!(objects.update(&Event::Apply(pod("a", "1", &status))));
        assert!(objects.update(&Event::Apply(pod("a", "2", &status))));
    }

    #[test]
    fn annotations_stay_and_the_copy_of_the_object_becomes_empty() {
        let annotations = json!({"a": "b", LAST_APPLIED: "{…}"});
        let metadata =
            json!({"name": "p", "namespace": "ns", "uid": "1", "annotations": annotations});
        let entry = pod("p", "1", &json!({"metadata": metadata})).entry();
        let expected = [("a", "b"), (LAST_APPLIED, "")];
        let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(entry.annotations(), BTreeMap::from(expected));
        assert!(!entry.text.contains("containers") && !entry.text.contains("resourceVersion"));
    }
}
