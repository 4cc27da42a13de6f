//! NetworkAttachmentDefinitions and IPAMClaims: the fields that calls read.

use super::objects::{Entry, Kept, Slim};
use braid_core::k8s::ObjectName;
use kube::core::ApiResource;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A NetworkAttachmentDefinition. Its `spec` is kept as it is: a CRD without a schema admits
/// anything, and one bad object must not end the watch.
pub type NetworkObject = Slim<Value, Skipped>;
/// An IPAMClaim.
pub type ClaimObject = Slim<Value, Value>;

/// A field that no call reads.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(transparent)]
pub struct Skipped(IgnoredAny);

impl Serialize for Skipped {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(std::iter::empty::<((), ())>())
    }
}

impl Kept for NetworkObject {
    fn name(&self) -> Option<ObjectName> {
        self.object_name()
    }

    fn entry(&self) -> Entry {
        self.entry_with(false)
    }
}

impl Kept for ClaimObject {
    fn name(&self) -> Option<ObjectName> {
        self.object_name()
    }

    fn entry(&self) -> Entry {
        self.entry_with(true)
    }
}

/// Returns the resource of [`NetworkObject`] for the API.
pub fn network_resource() -> ApiResource {
    resource(
        "v1",
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
    )
}

/// Returns the resource of [`ClaimObject`] for the API.
pub fn claim_resource() -> ApiResource {
    resource("v1alpha1", "IPAMClaim", "ipamclaims")
}

fn resource(version: &str, kind: &str, plural: &str) -> ApiResource {
    const GROUP: &str = "k8s.cni.cncf.io";
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_network_keeps_its_configuration_as_it_is() {
        for (spec, kept) in [
            (
                json!({"config": "{\n\"a\": 1}"}),
                r#"{"config":"{\n\"a\": 1}"}"#,
            ),
            (json!({"config": {"a": 1}}), r#"{"config":{"a":1}}"#),
            (json!("x"), r#""x""#),
            (json!(null), "null"),
        ] {
            let metadata = json!({"name": "a", "namespace": "lan", "uid": "1"});
            let object = json!({"metadata": metadata, "spec": spec, "status": {"x": [1]}});
            let object: NetworkObject = serde_json::from_value(object).expect("an object");
            assert_eq!(
                object.entry().text,
                format!(
                    r#"{{"metadata":{{"uid":"1","annotations":{{}}}},"spec":{kept},"status":{{}}}}"#
                )
            );
        }
    }

    #[test]
    fn a_claim_keeps_its_version() {
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "1", "resourceVersion": "7"});
        let object = json!({"metadata": metadata, "spec": {"network": "n", "interface": "i"}});
        let object: ClaimObject = serde_json::from_value(object).expect("an object");
        assert!(object.entry().text.contains(r#""resourceVersion":"7""#));
    }
}
