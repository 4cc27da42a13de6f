//! Objects of the API server, parsed with only the fields that braid needs.

use super::{IpamClaim, Nad, ObjectName, Pod};
use crate::cni::Json;
use serde::Deserialize;
use serde_json::{Error, Value};
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    uid: String,
    #[serde(rename = "resourceVersion")]
    version: String,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct PodObject {
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
    resource_claims: Vec<Claim>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    /// Names of the resource claims that were generated from templates.
    resource_claim_statuses: Vec<Claim>,
    /// The resource claim that was generated for extended resources.
    extended_resource_claim_status: Claim,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Claim {
    resource_claim_name: Option<String>,
}

#[derive(Deserialize)]
struct NadObject {
    metadata: Meta,
    #[serde(default)]
    spec: NadSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NadSpec {
    config: String,
}

#[derive(Deserialize)]
struct ClaimObject {
    metadata: Meta,
    spec: ClaimSpec,
    #[serde(default)]
    status: ClaimStatus,
}

#[derive(Deserialize)]
struct ClaimSpec {
    network: String,
    interface: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    ips: Vec<String>,
    owner_pod: Option<OwnerPod>,
    conditions: Vec<Value>,
}

/// Owner of a claim, in the formats of different CRD versions.
#[derive(Deserialize)]
#[serde(untagged)]
enum OwnerPod {
    Object { name: String },
    Name(String),
}

/// Parses a pod. It gets this name.
pub fn pod(name: &ObjectName, body: &[u8]) -> Result<Pod, Error> {
    let PodObject {
        metadata,
        spec,
        status,
    } = serde_json::from_slice(body)?;
    let mut claims = spec.resource_claims;
    claims.extend(status.resource_claim_statuses);
    claims.push(status.extended_resource_claim_status);
    let mut resource_claims = Vec::new();
    for claim in claims {
        resource_claims.extend(claim.resource_claim_name);
    }
    resource_claims.sort_unstable();
    resource_claims.dedup();
    let is_over = matches!(status.phase.as_str(), "Succeeded" | "Failed");
    let Meta {
        uid, annotations, ..
    } = metadata;
    Ok(Pod {
        name: name.clone(),
        uid,
        annotations,
        resource_claims,
        node: spec.node_name,
        is_over,
    })
}

/// Parses a NetworkAttachmentDefinition with this name.
pub fn nad(name: &ObjectName, body: &[u8]) -> Result<Nad, Error> {
    let NadObject { metadata, spec } = serde_json::from_slice(body)?;
    Ok(Nad {
        name: name.clone(),
        config: spec.config,
        annotations: metadata.annotations,
    })
}

/// Parses an IPAMClaim with this name.
pub fn claim(name: &ObjectName, body: &[u8]) -> Result<IpamClaim, Error> {
    let ClaimObject {
        metadata,
        spec: ClaimSpec { network, interface },
        status,
    } = serde_json::from_slice(body)?;
    let Meta { uid, version, .. } = metadata;
    let owner_pod = status.owner_pod.map(|owner| match owner {
        OwnerPod::Object { name } | OwnerPod::Name(name) => name,
    });
    let mut conditions = Vec::new();
    for value in &status.conditions {
        conditions.extend(Json::parse(value.to_string().as_bytes(), "").ok());
    }
    let ips = status.ips;
    Ok(IpamClaim {
        name: name.clone(),
        uid,
        network,
        interface,
        version,
        ips,
        owner_pod,
        conditions,
    })
}

#[cfg(test)]
mod tests;
