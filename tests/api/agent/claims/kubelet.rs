//! A client in the place of the kubelet: it registers the agent's plugin, and asks for claims.

use crate::uid;
use braid_tests::Value;
use http::uri::PathAndQuery;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Folder of the kubelet of a test's node.
pub(super) const FOLDER: &str = "/run/kubelet";

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct PluginInfo {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    endpoint: String,
}

#[derive(Clone, PartialEq, Message)]
struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    plugin_registered: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Claims {
    #[prost(message, repeated, tag = "1")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Message)]
struct Claim {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct AllPrepared {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, Prepared>,
}

#[derive(Clone, PartialEq, Message)]
struct Prepared {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Device {
    #[prost(string, repeated, tag = "1")]
    pub(super) request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pub(super) pool_name: String,
    #[prost(string, tag = "3")]
    pub(super) device_name: String,
    #[prost(string, optional, tag = "5")]
    pub(super) share_id: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct AllUnprepared {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, Unprepared>,
}

#[derive(Clone, PartialEq, Message)]
struct Unprepared {
    #[prost(string, tag = "1")]
    error: String,
}

/// A kubelet that has registered the plugin.
pub(super) struct Kubelet {
    running: Runtime,
    endpoint: String,
}

impl Kubelet {
    /// Registers the plugin. `None` if the agent has none.
    pub(super) fn register() -> Option<Self> {
        let running = Builder::new_current_thread().enable_all().build();
        let running = running.expect("a runtime");
        let socket = format!("{FOLDER}/plugins_registry/braid.dev-reg.sock");
        let asked = running.block_on(async {
            let info = "/pluginregistration.Registration/GetInfo";
            let info: PluginInfo = ask(&socket, info, Empty {}).await.ok()?;
            let status = RegistrationStatus {
                plugin_registered: true,
            };
            let notify = "/pluginregistration.Registration/NotifyRegistrationStatus";
            let _: Empty = ask(&socket, notify, status).await.ok()?;
            Some(info)
        });
        let info = asked?;
        assert_eq!((&*info.kind, &*info.name), ("DRAPlugin", "braid.dev"));
        assert!(Path::new(&info.endpoint).starts_with(FOLDER));
        Some(Self {
            running,
            endpoint: info.endpoint,
        })
    }

    /// Prepares claims in one request. Returns devices or error by the claim's name.
    pub(super) fn prepare(
        &self,
        claims: &[&Value],
    ) -> BTreeMap<String, Result<Vec<Device>, String>> {
        let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
        let mut all: AllPrepared = self.ask(method, claims);
        let mut answers = BTreeMap::new();
        for claim in claims {
            let answer = all.claims.remove(uid(claim)).expect("each claim");
            let answer = if answer.error.is_empty() {
                Ok(answer.devices)
            } else {
                assert_eq!(answer.devices, []);
                Err(answer.error)
            };
            answers.insert(name(claim), answer);
        }
        assert!(all.claims.is_empty(), "{all:?}");
        answers
    }

    /// Prepares one claim.
    pub(super) fn prepare_one(&self, claim: &Value) -> Result<Vec<Device>, String> {
        let mut answers = self.prepare(&[claim]);
        answers.remove(&name(claim)).expect("an answer")
    }

    pub(super) fn unprepare(&self, claim: &Value) {
        let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";
        let all: AllUnprepared = self.ask(method, &[claim]);
        assert_eq!(all.claims[uid(claim)].error, "");
    }

    fn ask<A: Message + Default + 'static>(&self, method: &'static str, claims: &[&Value]) -> A {
        let claim = |claim: &&Value| Claim {
            namespace: text(&claim["metadata"]["namespace"]),
            uid: uid(claim).to_owned(),
            name: name(claim),
        };
        let claims = Claims {
            claims: claims.iter().map(claim).collect(),
        };
        let answer = self.running.block_on(ask(&self.endpoint, method, claims));
        answer.expect("an answer")
    }
}

fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

async fn ask<Q, A>(socket: &str, method: &'static str, question: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let unavailable = |err: tonic::transport::Error| Status::unavailable(err.to_string());
    let endpoint = Endpoint::from_shared(format!("unix://{socket}")).map_err(unavailable)?;
    let channel: Channel = endpoint.connect().await.map_err(unavailable)?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(unavailable)?;
    let codec = ProstCodec::<Q, A>::default();
    let method = PathAndQuery::from_static(method);
    let answer = client.unary(Request::new(question), method, codec).await;
    answer.map(tonic::Response::into_inner)
}
