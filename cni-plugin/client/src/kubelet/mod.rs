//! Client of the kubelet's pod-resources socket: the devices allocated to a pod. It is used only if
//! a network needs a device.
//!
//! The gRPC messages of `v1.PodResourcesLister` are written by hand, with only the fields that are
//! read, so no code is generated.

use crate::runtime;
use braid_core::k8s::ObjectName;
use braid_core::k8s::dynamic::{Allocated, Given};
use braid_core::k8s::source::SourceError;
use http::uri::PathAndQuery;
use prost::Message;
use std::path::Path;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

const GET: &str = "/v1.PodResourcesLister/Get";
const LIST: &str = "/v1.PodResourcesLister/List";
/// Timeout of all requests together. The call then fails with CNI code 11, and the runtime repeats
/// it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after the kubelet refuses a request because of its rate limit. The limit counts the
/// requests of all clients per second.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest response in bytes, the kubelet's own limit.
const MAX_BYTES: usize = 16 << 20;

#[derive(Clone, PartialEq, prost::Message)]
struct GetRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GetResponse {
    #[prost(message, optional, tag = "1")]
    pod: Option<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerResources {
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    dynamic: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ContainerDevices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DynamicResource {
    #[prost(message, repeated, tag = "4")]
    resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ClaimResource {
    #[prost(string, tag = "2")]
    driver: String,
    #[prost(string, tag = "3")]
    pool: String,
    #[prost(string, tag = "4")]
    device: String,
}

/// Returns the devices of a pod's containers. Fails with CNI code 11 (try again later) if the
/// kubelet does not return them.
pub fn devices(socket: &Path, pod: &ObjectName) -> Result<Given, SourceError> {
    let fail = |why: String| SourceError::Passing {
        why: format!("devices of pod {pod}: {}: {why}", socket.display()),
    };
    let runtime = runtime::start().map_err(fail)?;
    let asked = runtime.block_on(async { timeout(PATIENCE, ask(socket, pod)).await });
    let Ok(answer) = asked else {
        return Err(fail(format!("no response within {PATIENCE:?}")));
    };
    let found = answer
        .map_err(fail)?
        .ok_or_else(|| fail("the kubelet does not know the pod".to_owned()))?;
    Ok(given(found))
}

fn given(found: PodResources) -> Given {
    let mut given = Given::default();
    for ContainerResources { devices, dynamic } in found.containers {
        for ContainerDevices { resource, ids } in devices {
            given.by_resource.entry(resource).or_default().extend(ids);
        }
        for DynamicResource { resources } in dynamic {
            for resource in resources {
                let allocated = Allocated {
                    driver: resource.driver,
                    pool: resource.pool,
                    device: resource.device,
                };
                // Containers may share a claim.
                if !given.allocated.contains(&allocated) {
                    given.allocated.push(allocated);
                }
            }
        }
    }
    given
}

/// Returns the devices of each pod in a `Get` or `List` response; for tests without a kubelet.
pub fn read(answer: &[u8]) -> Vec<Given> {
    let mut found = Vec::new();
    if let Ok(GetResponse { pod: Some(pod) }) = GetResponse::decode(answer) {
        found.push(given(pod));
    }
    if let Ok(ListResponse { pods }) = ListResponse::decode(answer) {
        found.extend(pods.into_iter().map(given));
    }
    found
}

/// Requests the pod's devices with `Get`. If the kubelet is too old for `Get`, or has `Get`
/// disabled, requests the devices of all pods with `List`.
async fn ask(socket: &Path, pod: &ObjectName) -> Result<Option<PodResources>, String> {
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .map_err(|err| err.to_string())?;
    let channel = channel.connect().await.map_err(|err| innermost(&err))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(MAX_BYTES);
    let get = GetRequest {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
    };
    if let Ok(GetResponse { pod: Some(found) }) = call(&mut client, GET, get).await {
        return Ok(Some(found));
    }
    let ListResponse { pods } = call(&mut client, LIST, ListRequest {})
        .await
        .map_err(|status| format!("{LIST}: {:?}: {}", status.code(), status.message()))?;
    Ok(pods
        .into_iter()
        .find(|found| found.name == pod.name && found.namespace == pod.namespace))
}

/// Sends a request. Repeats it while the kubelet refuses it because of the rate limit.
async fn call<Q, A>(
    client: &mut Grpc<Channel>,
    method: &'static str,
    question: Q,
) -> Result<A, Status>
where
    Q: prost::Message + Clone + 'static,
    A: prost::Message + Default + 'static,
{
    loop {
        client
            .ready()
            .await
            .map_err(|err| Status::unavailable(innermost(&err)))?;
        let codec = ProstCodec::<Q, A>::default();
        let request = Request::new(question.clone());
        match client
            .unary(request, PathAndQuery::from_static(method), codec)
            .await
        {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) if status.code() == tonic::Code::ResourceExhausted => sleep(PAUSE).await,
            Err(status) => return Err(status),
        }
    }
}

/// Returns the text of the innermost cause. The outer causes say only "transport error".
fn innermost(err: &tonic::transport::Error) -> String {
    let mut last: &dyn std::error::Error = err;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests;
