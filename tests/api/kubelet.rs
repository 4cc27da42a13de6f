//! A server for the kubelet's pod-resources socket: gRPC with the kubelet's own proto,
//! `k8s.io/kubelet/pkg/apis/podresources/v1`.

use prost::Message;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

const FOLDER: &str = "/var/lib/kubelet";
const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetPodResourcesRequest {
    #[prost(string, tag = "1")]
    pod_name: String,
    #[prost(string, tag = "2")]
    pod_namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetPodResourcesResponse {
    #[prost(message, optional, tag = "1")]
    pod_resources: Option<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPodResourcesRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "3")]
    cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    memory: Vec<ContainerMemory>,
    #[prost(message, repeated, tag = "5")]
    dynamic_resources: Vec<DynamicResource>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerMemory {
    #[prost(string, tag = "1")]
    memory_type: String,
    #[prost(uint64, tag = "2")]
    size: u64,
    #[prost(message, optional, tag = "3")]
    topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerDevices {
    #[prost(string, tag = "1")]
    resource_name: String,
    #[prost(string, repeated, tag = "2")]
    device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    topology: Option<TopologyInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<NumaNode>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NumaNode {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[expect(clippy::struct_field_names, reason = "as in the kubelet's proto")]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DynamicResource {
    #[prost(string, tag = "2")]
    claim_name: String,
    #[prost(string, tag = "3")]
    claim_namespace: String,
    #[prost(message, repeated, tag = "4")]
    claim_resources: Vec<ClaimResource>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClaimResource {
    #[prost(message, repeated, tag = "1")]
    cdi_devices: Vec<CdiDevice>,
    #[prost(string, tag = "2")]
    driver_name: String,
    #[prost(string, tag = "3")]
    pool_name: String,
    #[prost(string, tag = "4")]
    device_name: String,
    #[prost(string, optional, tag = "5")]
    share_id: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    name: String,
}

/// The kubelet of a test's node. Dropping the value ends it.
pub(crate) struct Kubelet {
    asked: Arc<Mutex<Vec<String>>>,
    _running: Runtime,
}

/// Behaviour of a [`Kubelet`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner {
    /// True for a kubelet that is too old for the method `Get`.
    pub(crate) is_old: bool,
    /// Number of requests that the kubelet refuses by its rate limit before it answers.
    pub(crate) busy: usize,
}

#[derive(Clone)]
struct Service {
    pods: Vec<PodResources>,
    manner: Manner,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Returns a pod with a single container. `devices` lists the container's devices by resource.
/// `claimed` lists the devices of its resource claim, each by driver, pool and name.
pub(crate) fn pod(
    namespace: &str,
    name: &str,
    devices: &[(&str, &[&str])],
    claimed: &[[&str; 3]],
) -> PodResources {
    let topology = || {
        Some(TopologyInfo {
            nodes: vec![NumaNode { id: 1 }],
        })
    };
    let of_plugin = |(resource, ids): &(&str, &[&str])| ContainerDevices {
        resource_name: (*resource).to_owned(),
        device_ids: ids.iter().map(ToString::to_string).collect(),
        topology: topology(),
    };
    let of_claim = |[driver, pool, device]: &[&str; 3]| ClaimResource {
        cdi_devices: vec![CdiDevice {
            name: format!("{driver}/net={device}"),
        }],
        driver_name: (*driver).to_owned(),
        pool_name: (*pool).to_owned(),
        device_name: (*device).to_owned(),
        share_id: None,
    };
    let claim = DynamicResource {
        claim_name: "nics".to_owned(),
        claim_namespace: namespace.to_owned(),
        claim_resources: claimed.iter().map(of_claim).collect(),
    };
    let container = ContainerResources {
        name: "c".to_owned(),
        devices: devices.iter().map(of_plugin).collect(),
        cpu_ids: vec![0, 5],
        memory: vec![ContainerMemory {
            memory_type: "memory".to_owned(),
            size: 1 << 40,
            topology: topology(),
        }],
        dynamic_resources: if claimed.is_empty() {
            Vec::new()
        } else {
            vec![claim]
        },
    };
    PodResources {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        containers: vec![container],
    }
}

impl Kubelet {
    /// Starts a kubelet that listens in the sandbox of this thread.
    pub(crate) fn start(pods: Vec<PodResources>, manner: Manner) -> Self {
        // In a sandbox this path is a symlink to the real host's folder.
        if Path::new(FOLDER).is_symlink() {
            fs::remove_file(FOLDER).expect("a link less");
        }
        let _ = fs::remove_file(SOCKET);
        fs::create_dir_all(Path::new(SOCKET).parent().expect("a folder"))
            .expect("the folder of the socket");
        let running = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = running
            .block_on(async { UnixListener::bind(SOCKET) })
            .expect("bound");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let service = Service {
            pods,
            manner,
            asked: Arc::clone(&asked),
        };
        running.spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Self {
            asked,
            _running: running,
        }
    }

    /// Returns the gRPC methods that were called since the last call of this function.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }
}

impl NamedService for Service {
    const NAME: &'static str = "v1.PodResourcesLister";
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let method = request
                .uri()
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let refused = service.refuses(&method);
            Ok(if method == "Get" {
                let get = service_fn(move |request: Request<GetPodResourcesRequest>| {
                    let answer = refused
                        .clone()
                        .map_or_else(|| service.get(request.get_ref()), Err);
                    async move { answer.map(Response::new) }
                });
                let codec =
                    ProstCodec::<GetPodResourcesResponse, GetPodResourcesRequest>::default();
                tonic::server::Grpc::new(codec).unary(get, request).await
            } else {
                let list = service_fn(move |_: Request<ListPodResourcesRequest>| {
                    let all = || {
                        Ok(ListPodResourcesResponse {
                            pod_resources: service.pods.clone(),
                        })
                    };
                    let answer = refused.clone().map_or_else(all, Err);
                    async move { answer.map(Response::new) }
                });
                let codec =
                    ProstCodec::<ListPodResourcesResponse, ListPodResourcesRequest>::default();
                tonic::server::Grpc::new(codec).unary(list, request).await
            })
        })
    }
}

impl Service {
    fn refuses(&self, method: &str) -> Option<Status> {
        let mut asked = self.asked.lock().expect("no panic");
        asked.push(method.to_owned());
        if method == "Get" && self.manner.is_old {
            return Some(Status::unimplemented(
                "unknown method Get for service v1.PodResourcesLister",
            ));
        }
        (asked.len() <= self.manner.busy)
            .then(|| Status::resource_exhausted("rejected by rate limit"))
    }

    fn get(&self, asked: &GetPodResourcesRequest) -> Result<GetPodResourcesResponse, Status> {
        let is_it = |pod: &&PodResources| {
            pod.name == asked.pod_name && pod.namespace == asked.pod_namespace
        };
        let found = self.pods.iter().find(is_it).cloned();
        let why = || {
            Status::unknown(format!(
                "pod {} in namespace {} not found",
                asked.pod_name, asked.pod_namespace
            ))
        };
        found
            .map(|pod| GetPodResourcesResponse {
                pod_resources: Some(pod),
            })
            .ok_or_else(why)
    }
}
