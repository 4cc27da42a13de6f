//! The methods that the kubelet calls.

use super::messages::{
    AllHealth, AllPrepared, AllUnprepared, Claim, Claims, DeviceHealth, DeviceId, HealthRequest,
    InfoRequest, PluginInfo, Prepared, PreparedDevice, RegistrationStatus,
    RegistrationStatusResponse, Unprepared,
};
use futures_util::future::join_all;
use futures_util::stream::{BoxStream, StreamExt};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

const INFO: &str = "/pluginregistration.Registration/GetInfo";
const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
/// Methods of both versions of the driver's service. The messages of `v1beta1` lack one field.
const PREPARE: [&str; 2] = [
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
];
const UNPREPARE: [&str; 2] = [
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
];
const HEALTH: &str = "/v1alpha1.DRAResourceHealth/NodeWatchResources";
/// Time after which the kubelet no longer believes a health. The driver repeats it before.
const HEALTH_SECONDS: i64 = 180;
const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;
/// Versions, the preferred one first: the kubelet takes the first one that it knows.
pub(super) const VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

/// A claim, as the kubelet names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

/// A prepared device of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Name of the request, without that of a subrequest.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Id of the share, for a device that others share.
    pub share_id: Option<String>,
}

/// Health of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Reason why the device can't be used; `None` if it can.
    pub fault: Option<&'static str>,
    /// Time at which this was so.
    pub at: SystemTime,
}

/// A driver, which the kubelet asks about each claim of a pod before its sandbox and after it.
pub trait Driver: Send + Sync + 'static {
    /// Prepares the devices of a claim. The kubelet asks again, also for a claim that is prepared.
    fn prepare(&self, claim: &ClaimRef)
    -> impl Future<Output = Result<Vec<Device>, String>> + Send;

    /// Forgets a claim. One that is not known is a success.
    fn unprepare(&self, claim: &ClaimRef) -> impl Future<Output = Result<(), String>> + Send;

    /// Returns the health of all devices: now, after each change, and at least each other minute.
    fn health(&self) -> BoxStream<'static, Vec<Health>>;
}

/// Answers requests to the driver's socket.
pub(super) async fn driver<D: Driver>(
    driver: Arc<D>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    let path = request.uri().path();
    if PREPARE.contains(&path) {
        let prepare = service_fn(move |request: Request<Claims>| {
            prepare(Arc::clone(&driver), request.into_inner())
        });
        let codec = ProstCodec::<AllPrepared, Claims>::default();
        return Ok(Grpc::new(codec).unary(prepare, request).await);
    }
    if UNPREPARE.contains(&path) {
        let unprepare = service_fn(move |request: Request<Claims>| {
            unprepare(Arc::clone(&driver), request.into_inner())
        });
        let codec = ProstCodec::<AllUnprepared, Claims>::default();
        return Ok(Grpc::new(codec).unary(unprepare, request).await);
    }
    if path == HEALTH {
        let watch = service_fn(move |_: Request<HealthRequest>| {
            let all = driver.health().map(|all| {
                let devices = all.into_iter().map(health_message).collect();
                Ok::<_, Status>(AllHealth { devices })
            });
            async move { Ok::<_, Status>(Response::new(all)) }
        });
        let codec = ProstCodec::<AllHealth, HealthRequest>::default();
        return Ok(Grpc::new(codec).server_streaming(watch, request).await);
    }
    Ok(unknown(path))
}

/// Answers requests to the registration socket.
pub(super) async fn registration(
    info: PluginInfo,
    told: Arc<dyn Fn(Result<(), String>) + Send + Sync>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    match request.uri().path() {
        INFO => {
            let answer = service_fn(move |_: Request<InfoRequest>| {
                let info = info.clone();
                async move { Ok::<_, Status>(Response::new(info)) }
            });
            let codec = ProstCodec::<PluginInfo, InfoRequest>::default();
            Ok(Grpc::new(codec).unary(answer, request).await)
        }
        NOTIFY => {
            let answer = service_fn(move |status: Request<RegistrationStatus>| {
                let status = status.into_inner();
                told(if status.plugin_registered {
                    Ok(())
                } else {
                    Err(status.error)
                });
                async { Ok::<_, Status>(Response::new(RegistrationStatusResponse {})) }
            });
            let codec = ProstCodec::<RegistrationStatusResponse, RegistrationStatus>::default();
            Ok(Grpc::new(codec).unary(answer, request).await)
        }
        path => Ok(unknown(path)),
    }
}

fn unknown(path: &str) -> http::Response<Body> {
    Status::unimplemented(format!("no method {path}")).into_http()
}

async fn prepare<D: Driver>(
    driver: Arc<D>,
    Claims { claims }: Claims,
) -> Result<Response<AllPrepared>, Status> {
    let all = claims.into_iter().map(async |claim| {
        let claim = reference(claim);
        let prepared = match driver.prepare(&claim).await {
            Ok(devices) => Prepared {
                devices: devices.into_iter().map(message).collect(),
                error: String::new(),
            },
            Err(error) => Prepared {
                devices: Vec::new(),
                error,
            },
        };
        (claim.uid, prepared)
    });
    let claims: HashMap<String, Prepared> = join_all(all).await.into_iter().collect();
    Ok(Response::new(AllPrepared { claims }))
}

async fn unprepare<D: Driver>(
    driver: Arc<D>,
    Claims { claims }: Claims,
) -> Result<Response<AllUnprepared>, Status> {
    let all = claims.into_iter().map(async |claim| {
        let claim = reference(claim);
        let error = driver.unprepare(&claim).await.err().unwrap_or_default();
        (claim.uid, Unprepared { error })
    });
    let claims: HashMap<String, Unprepared> = join_all(all).await.into_iter().collect();
    Ok(Response::new(AllUnprepared { claims }))
}

fn reference(claim: Claim) -> ClaimRef {
    ClaimRef {
        namespace: claim.namespace,
        name: claim.name,
        uid: claim.uid,
    }
}

fn message(device: Device) -> PreparedDevice {
    PreparedDevice {
        request_names: vec![device.request],
        pool_name: device.pool,
        device_name: device.device,
        share_id: device.share_id,
    }
}

fn health_message(health: Health) -> DeviceHealth {
    let at = health.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    DeviceHealth {
        device: Some(DeviceId {
            pool_name: health.pool,
            device_name: health.device,
        }),
        health: health.fault.map_or(HEALTHY, |_| UNHEALTHY),
        last_updated_time: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
        health_check_timeout_seconds: HEALTH_SECONDS,
        message: health.fault.unwrap_or_default().to_owned(),
    }
}
