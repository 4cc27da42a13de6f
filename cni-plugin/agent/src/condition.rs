//! The condition `NetworkUnavailable` of this node. Clouds set it until the node has routes, and no
//! pod is placed on the node while it is true.

use crate::cluster::node::{NETWORK_UNAVAILABLE, Node, resource};
use crate::error::Error;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::json;

/// Ends the condition.
pub(crate) async fn clear(client: &Client, own: &Node) -> Result<(), Error> {
    let node = own.name.as_str();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let now = Time(Timestamp::now());
    // A strategic merge patch changes the condition of this type, and no other.
    let patch = Patch::Strategic(json!({"status": {"conditions": [{
        "type": NETWORK_UNAVAILABLE,
        "status": "False",
        "reason": "BraidIsReady",
        "message": "braid serves the pods of this node",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }]}}));
    api.patch_status(node, &PatchParams::default(), &patch)
        .await
        .map_err(|err| {
            let doing = format!("clear the condition {NETWORK_UNAVAILABLE} of Node {node:?}");
            let right = "the chart's node.clearNetworkUnavailable has the right";
            Error::new(doing, format_args!("{err} ({right})"))
        })?;
    tracing::info!(node, "cleared the condition {NETWORK_UNAVAILABLE}");
    Ok(())
}
