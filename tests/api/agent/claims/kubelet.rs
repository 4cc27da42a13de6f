//! A client in the place of the kubelet: it registers the agent's plugin, and asks for claims.

use crate::uid;
use braid_tests::Value;
use http::uri::PathAndQuery;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
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
    pub(super) name: String,
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

pub(super) const HEALTHY: i32 = 1;
pub(super) const UNHEALTHY: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct AllHealth {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<DeviceHealth>,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceHealth {
    #[prost(message, optional, tag = "1")]
    device: Option<DeviceId>,
    #[prost(int32, tag = "2")]
    health: i32,
    #[prost(string, tag = "5")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceId {
    #[prost(string, tag = "1")]
    pool_name: String,
    #[prost(string, tag = "2")]
    device_name: String,
}

/// Watch of the devices' health.
pub(super) struct Health<'k> {
    kubelet: &'k Kubelet,
    stream: Streaming<AllHealth>,
}

impl Health<'_> {
    /// Waits until all devices are of this pool, with this health and message.
    #[track_caller]
    pub(super) fn await_devices(&mut self, pool: &str, expected: &BTreeMap<String, (i32, String)>) {
        let limit = Duration::from_secs(20);
        let mut last = BTreeMap::new();
        while last != *expected {
            let next = async { timeout(limit, self.stream.message()).await };
            let next = self.kubelet.running.block_on(next);
            let next = next.unwrap_or_else(|_| panic!("{last:?}, not {expected:?}"));
            let all = next.expect("a message").expect("a stream");
            last.clear();
            for health in all.devices {
                let device = health.device.expect("a device");
                assert_eq!(device.pool_name, pool);
                last.insert(device.device_name, (health.health, health.message));
            }
        }
    }
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
        let sockets = fs::read_dir(format!("{FOLDER}/plugins_registry")).ok()?;
        let registers = async |socket: PathBuf| {
            let info = "/pluginregistration.Registration/GetInfo";
            let socket = socket.to_string_lossy();
            let info: PluginInfo = ask(&socket, info, Empty {}).await.ok()?;
            let status = RegistrationStatus {
                plugin_registered: true,
            };
            let notify = "/pluginregistration.Registration/NotifyRegistrationStatus";
            let _: Empty = ask(&socket, notify, status).await.ok()?;
            Some(info)
        };
        // A killed agent leaves its socket.
        let mut sockets = sockets.flatten().map(|socket| socket.path());
        let info = sockets.find_map(|socket| running.block_on(registers(socket)))?;
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

    /// Begins to watch the health of devices.
    pub(super) fn health(&self) -> Health<'_> {
        let watch = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
        let stream = self.running.block_on(async {
            let mut client = client(&self.endpoint).await?;
            let codec = ProstCodec::<Empty, AllHealth>::default();
            let watch = PathAndQuery::from_static(watch);
            client
                .server_streaming(Request::new(Empty {}), watch, codec)
                .await
        });
        Health {
            kubelet: self,
            stream: stream.expect("a stream").into_inner(),
        }
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

async fn client(socket: &str) -> Result<Grpc<Channel>, Status> {
    let unavailable = |err: tonic::transport::Error| Status::unavailable(err.to_string());
    let endpoint = Endpoint::from_shared(format!("unix://{socket}")).map_err(unavailable)?;
    let channel: Channel = endpoint.connect().await.map_err(unavailable)?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(unavailable)?;
    Ok(client)
}

async fn ask<Q, A>(socket: &str, method: &'static str, question: Q) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = client(socket).await?;
    let codec = ProstCodec::<Q, A>::default();
    let method = PathAndQuery::from_static(method);
    let answer = client.unary(Request::new(question), method, codec).await;
    answer.map(tonic::Response::into_inner)
}
