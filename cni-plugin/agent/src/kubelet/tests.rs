//! Tests with a client in the place of the kubelet.

use super::messages::{
    AllPrepared, AllUnprepared, Claim, Claims, InfoRequest, PluginInfo, RegistrationStatus,
    RegistrationStatusResponse,
};
use super::{ClaimRef, Device, Driver, Plugin, Registration};
use http::uri::PathAndQuery;
use std::path::Path;
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
}

async fn ask<Q, A>(socket: &Path, method: &'static str, question: Q) -> Result<A, Status>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let channel: Channel = endpoint
        .expect("a path")
        .connect()
        .await
        .expect("connected");
    let mut client = Grpc::new(channel);
    client.ready().await.expect("ready");
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

/// Registers the plugin as the kubelet does, and returns the socket of the driver.
async fn register(folder: &Path) -> PluginInfo {
    let socket = folder.join("plugins_registry/braid.dev-reg.sock");
    let info = "/pluginregistration.Registration/GetInfo";
    let info: PluginInfo = ask(&socket, info, InfoRequest {}).await.expect("an answer");
    let status = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    let notify = "/pluginregistration.Registration/NotifyRegistrationStatus";
    let told: Result<RegistrationStatusResponse, Status> = ask(&socket, notify, status).await;
    told.expect("an answer");
    info
}

#[tokio::test(flavor = "current_thread")]
async fn a_kubelet_registers_the_plugin_and_prepares_claims() {
    let folder = TempDir::new().expect("a folder");
    // A socket that a killed agent has left is replaced.
    let killed = Plugin::start(folder.path(), NAME, One).expect("started");
    std::mem::forget(killed);
    let plugin = Plugin::start(folder.path(), NAME, One).expect("started");
    assert_eq!(*plugin.registration().borrow(), Registration::Pending);
    let info = register(folder.path()).await;
    assert_eq!(*plugin.registration().borrow(), Registration::Registered);
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
    let health = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
    let refused: Result<AllPrepared, Status> = ask(socket, health, claims(&[])).await;
    assert_eq!(
        refused.map_err(|status| status.code()),
        Err(Code::Unimplemented)
    );
    drop(plugin);
    assert!(
        !folder
            .path()
            .join("plugins_registry/braid.dev-reg.sock")
            .exists()
    );
}
