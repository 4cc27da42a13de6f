//! One object of a manifest, with the fields that a pod's networks depend on.

use super::Placed;
use super::any_value::AnyValue;
use super::device_claims::RESOURCE_CLAIMS;
use braid_core::k8s::{IpamClaim, Nad, ObjectName, Pod};
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;

/// Namespace of an object without one.
pub(super) const DEFAULT: &str = "default";

/// An object, or a list of objects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    pub(super) kind: String,
    metadata: Meta,
    spec: Option<Spec>,
    status: Option<Status>,
    pub(super) items: Vec<Document>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: Option<Spanned<String>>,
    namespace: Option<String>,
    uid: Option<String>,
    annotations: Option<BTreeMap<String, Spanned<String>>>,
}

/// Keys in `spec` of all supported kinds together.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    /// Key of a NetworkAttachmentDefinition. A `DeviceClass` has a list.
    config: Option<Spanned<AnyValue>>,
    /// Key of an IPAMClaim.
    network: Option<Text>,
    /// Key of an IPAMClaim.
    interface: Option<Text>,
    /// Key of a Deployment and similar kinds.
    template: Option<Template>,
    /// Key of a `CronJob`.
    job_template: Option<Box<Document>>,
    /// Key of a pod.
    resource_claims: Option<Spanned<AnyValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Meta,
    spec: Option<TemplateSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    resource_claims: Option<Spanned<AnyValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    ips: Vec<String>,
}

type Text = Spanned<String>;

impl Document {
    /// Parses all documents of a text. The error has the line and the fault.
    pub(super) fn all(text: &str) -> Result<Vec<Self>, (usize, String)> {
        let documents = serde_saphyr::from_multiple::<Option<Self>>(text).map_err(|err| {
            let line = err.location().map_or(1, |place| place.line());
            let line = usize::try_from(line).unwrap_or(1);
            (line, err.without_snippet().to_string().replace('\n', " "))
        })?;
        Ok(documents.into_iter().flatten().collect())
    }

    pub(super) fn nad(self) -> Placed<Nad> {
        let (name, mut places) = self.metadata.name();
        let mut config = String::new();
        if let Some(text) = self.spec.unwrap_or_default().config {
            places.insert("spec.config".to_owned(), line(&text));
            config = text.value.text();
        }
        let annotations = self.metadata.annotations(&mut places);
        Placed {
            object: Nad {
                name,
                config,
                annotations,
            },
            places,
        }
    }

    pub(super) fn claim(self) -> IpamClaim {
        let (name, _) = self.metadata.name();
        let Spec {
            network, interface, ..
        } = self.spec.unwrap_or_default();
        let text = |text: Option<Text>| text.map(|text| text.value).unwrap_or_default();
        let ips = self.status.unwrap_or_default().ips;
        let uid = self.metadata.uid.unwrap_or_default();
        let (network, interface) = (text(network), text(interface));
        IpamClaim {
            name,
            uid,
            network,
            interface,
            version: String::new(),
            ips,
            owner_pod: None,
            conditions: Vec::new(),
        }
    }

    /// Returns the pod, or the pod of an object's template; `None` if it has neither.
    pub(super) fn pod(self) -> Option<Placed<Pod>> {
        let (name, mut places) = self.metadata.name();
        let uid = self.metadata.uid.clone().unwrap_or_default();
        let (metadata, claims) = if self.kind == "Pod" {
            (self.metadata, self.spec.unwrap_or_default().resource_claims)
        } else {
            let Template { metadata, spec } = self.spec?.template()?;
            (metadata, spec.unwrap_or_default().resource_claims)
        };
        if let Some(claims) = claims {
            places.insert(RESOURCE_CLAIMS.to_owned(), line(&claims));
        }
        let annotations = metadata.annotations(&mut places);
        let pod = Pod {
            name,
            uid,
            annotations,
            resource_claims: Vec::new(),
            node: String::new(),
            is_over: false,
        };
        Some(Placed {
            object: pod,
            places,
        })
    }
}

impl Spec {
    fn template(self) -> Option<Template> {
        self.template.or_else(|| self.job_template?.spec?.template)
    }
}

impl Meta {
    /// Returns the object's name. The map has the line of the name under the keys `metadata.name`
    /// and `""`.
    fn name(&self) -> (ObjectName, BTreeMap<String, usize>) {
        let namespace = match &self.namespace {
            Some(namespace) if !namespace.is_empty() => namespace.clone(),
            Some(_) | None => DEFAULT.to_owned(),
        };
        let mut name = String::new();
        let mut places = BTreeMap::new();
        if let Some(text) = &self.name {
            name.clone_from(&text.value);
            places.insert("metadata.name".to_owned(), line(text));
            places.insert(String::new(), line(text));
        }
        (ObjectName { namespace, name }, places)
    }

    fn annotations(self, places: &mut BTreeMap<String, usize>) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::new();
        for (key, text) in self.annotations.unwrap_or_default() {
            places.insert(key.clone(), line(&text));
            annotations.insert(key, text.value);
        }
        annotations
    }
}

fn line<T>(text: &Spanned<T>) -> usize {
    usize::try_from(text.referenced.line()).unwrap_or(1)
}
