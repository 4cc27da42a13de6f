//! Tests with a client in the place of the kubelet.

use super::messages::{
    AllHealth, AllPrepared, AllUnprepared, Claim, Claims, HealthRequest, InfoRequest, PluginInfo,
    RegistrationStatus, RegistrationStatusResponse,
};
use super::{ClaimRef, Device, Driver, Health, Plugin, Registration};
use futures_util::stream::{BoxStream, StreamExt, iter};
use http::Uri;
use http::uri::PathAndQuery;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

const NAME: &str = "braid.dev";

/// A driver with one device for each claim, except those with the name `bad`.
struct One;

impl Driver for One {
    async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<Device>, String> {
        if claim.name == "bad" {
            return Err("request nic: no".to_owned());
        }
        Ok(vec![Device {
            request: "nic".to_owned(),
            pool: "n1".to_owned(),
            device: "eth1".to_owned(),
            share_id: Some(claim.uid.clone()),
        }])
    }

    async fn unprepare(&self, claim: &ClaimRef) -> Result<(), String> {
        (claim.name == "good")
            .then_some(())
            .ok_or("busy".to_owned())
    }

    fn health(&self) -> BoxStream<'static, Vec<Health>> {
        let health = |fault| {
            vec![Health {
                pool: "n1".to_owned(),
                device: "eth1".to_owned(),
                fault,
                at: UNIX_EPOCH + Duration::from_secs(7),
            }]
        };
        iter([health(None), health(Some("no carrier"))]).boxed()
    }
}

/// Returns the origin of requests to a socket, as the kubelet's client has it.
fn origin(socket: &Path) -> Uri {
    let path = socket.display().to_string().replace('/', "%2F");
    let authority = if path.contains("dra-") {
        "localhost"
    } else {
        &path
    };
    let origin = format!("http://{authority}");
    origin.parse().expect("a valid authority")
}

async fn client(socket: &Path) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let channel: Channel = endpoint
        .expect("a path")
        .connect()
        .await
        .expect("connected");
    let mut client = Grpc::with_origin(channel, origin(socket));
    client.ready().await.expect("ready");
    client
}

async fn ask<Q, A>(socket: &Path, method: &'static str, question: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut client = client(socket).await;
    let codec = ProstCodec::<Q, A>::default();
    let method = PathAndQuery::from_static(method);
    let answer = client.unary(Request::new(question), method, codec).await;
    answer.map(tonic::Response::into_inner)
}

fn claims(names: &[&str]) -> Claims {
    let claim = |name: &&str| Claim {
        namespace: "ns".to_owned(),
        uid: format!("uid-{name}"),
        name: (*name).to_owned(),
    };
    Claims {
        claims: names.iter().map(claim).collect(),
    }
}

/// Lists the sockets in a folder of the kubelet.
fn sockets(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join(name)).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort_unstable();
    paths
}

/// Registers a plugin as the kubelet does, and returns the socket of the driver.
async fn register(socket: &Path) -> PluginInfo {
    let info = "/pluginregistration.Registration/GetInfo";
    let info: PluginInfo = ask(socket, info, InfoRequest {}).await.expect("an answer");
    let status = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    let notify = "/pluginregistration.Registration/NotifyRegistrationStatus";
    let told: Result<RegistrationStatusResponse, Status> = ask(socket, notify, status).await;
    told.expect("an answer");
    info
}

#[tokio::test(flavor = "current_thread")]
async fn a_kubelet_registers_the_plugin_and_prepares_claims() {
    let folder = TempDir::new().expect("a folder");
    // Sockets that a killed agent has left stay until another one is registered.
    let killed = Plugin::start(folder.path(), NAME, One).expect("started");
    std::mem::forget(killed);
    let of_killed = sockets(folder.path(), "plugins_registry");
    let plugin = Plugin::start(folder.path(), NAME, One).expect("started");
    assert_eq!(*plugin.registration().borrow(), Registration::Pending);
    let mut all = sockets(folder.path(), "plugins_registry");
    assert_eq!(all.len(), 2, "{all:?}");
    all.retain(|path| !of_killed.contains(path));
    let info = register(&all[0]).await;
    assert_eq!(*plugin.registration().borrow(), Registration::Registered);
    assert_eq!(sockets(folder.path(), "plugins_registry"), all);
    let driver = sockets(folder.path(), "plugins/braid.dev");
    assert_eq!(driver, [PathBuf::from(&info.endpoint)]);
    assert_eq!((&*info.kind, &*info.name), ("DRAPlugin", NAME));
    assert_eq!(
        info.supported_versions,
        ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    );
    let socket = Path::new(&info.endpoint);
    for method in [
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
    ] {
        let prepared: AllPrepared = ask(socket, method, claims(&["good", "bad"]))
            .await
            .expect("an answer");
        assert_eq!(prepared.claims.len(), 2);
        let [device] = &prepared.claims["uid-good"].devices[..] else {
            panic!("{prepared:?}");
        };
        assert_eq!(device.request_names, ["nic"]);
        assert_eq!(device.share_id.as_deref(), Some("uid-good"));
        assert_eq!(prepared.claims["uid-bad"].error, "request nic: no");
    }
    let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources";
    let unprepared: AllUnprepared = ask(socket, method, claims(&["good", "bad"]))
        .await
        .expect("an answer");
    assert_eq!(unprepared.claims["uid-good"].error, "");
    assert_eq!(unprepared.claims["uid-bad"].error, "busy");
    let method = "/k8s.io.kubelet.pkg.apis.dra.v2.DRAPlugin/NodePrepareResources";
    let refused: Result<AllPrepared, Status> = ask(socket, method, claims(&[])).await;
    assert_eq!(
        refused.map_err(|status| status.code()),
        Err(Code::Unimplemented)
    );
    drop(plugin);
    for name in ["plugins_registry", "plugins/braid.dev"] {
        assert_eq!(sockets(folder.path(), name), [""; 0].map(PathBuf::from));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_kubelet_watches_the_health_of_devices() {
    let folder = TempDir::new().expect("a folder");
    let _plugin = Plugin::start(folder.path(), NAME, One).expect("started");
    let socket = sockets(folder.path(), "plugins_registry");
    let info = register(&socket[0]).await;
    let method = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
    let codec = ProstCodec::<HealthRequest, AllHealth>::default();
    let mut client = client(Path::new(&info.endpoint)).await;
    let method = PathAndQuery::from_static(method);
    let request = Request::new(HealthRequest {});
    let stream = client.server_streaming(request, method, codec).await;
    let mut stream = stream.expect("a stream").into_inner();
    let mut seen = Vec::new();
    while let Some(all) = stream.message().await.expect("a message") {
        for health in all.devices {
            let device = health.device.expect("a device");
            assert_eq!((&*device.pool_name, &*device.device_name), ("n1", "eth1"));
            assert_eq!(health.last_updated_time, 7);
            seen.push((health.health, health.message));
        }
    }
    assert_eq!(seen, [(1, String::new()), (2, "no carrier".to_owned())]);
}
