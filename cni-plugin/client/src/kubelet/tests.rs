//! Tests against a kubelet that the test starts on its own socket.

use super::*;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Response;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tower::service_fn;

type Devices = Result<Given, SourceError>;

/// Responses of the test's kubelet.
#[derive(Clone, Default)]
struct Kubelet {
    pods: Vec<PodResources>,
    has_get: bool,
    /// Number of requests to refuse before the first answer.
    busy: usize,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NamedService for Kubelet {
    const NAME: &'static str = "v1.PodResourcesLister";
}

type Answer = Result<http::Response<Body>, Infallible>;

impl tower::Service<http::Request<Body>> for Kubelet {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let kubelet = self.clone();
        Box::pin(async move {
            let is_get = request.uri().path() == GET;
            let refused = kubelet.refuses(request.uri().path());
            if is_get {
                let get = service_fn(move |request: Request<GetRequest>| {
                    let answer = refused
                        .clone()
                        .map_or_else(|| kubelet.get(request.get_ref()), Err);
                    async move { answer.map(Response::new) }
                });
                let codec = ProstCodec::<GetResponse, GetRequest>::default();
                Ok(tonic::server::Grpc::new(codec).unary(get, request).await)
            } else {
                let list = service_fn(move |_: Request<ListRequest>| {
                    let answer = refused.clone().map_or_else(
                        || {
                            Ok(ListResponse {
                                pods: kubelet.pods.clone(),
                            })
                        },
                        Err,
                    );
                    async move { answer.map(Response::new) }
                });
                let codec = ProstCodec::<ListResponse, ListRequest>::default();
                Ok(tonic::server::Grpc::new(codec).unary(list, request).await)
            }
        })
    }
}

impl Kubelet {
    fn refuses(&self, path: &str) -> Option<Status> {
        let mut asked = self.asked.lock().expect("no panic");
        asked.push(path.rsplit('/').next().unwrap_or_default().to_owned());
        (asked.len() <= self.busy).then(|| Status::resource_exhausted("rejected by rate limit"))
    }

    fn get(&self, asked: &GetRequest) -> Result<GetResponse, Status> {
        if !self.has_get {
            return Err(Status::unknown("PodResources API Get method disabled"));
        }
        let is_it =
            |pod: &&PodResources| pod.name == asked.name && pod.namespace == asked.namespace;
        let pod = self.pods.iter().find(is_it).cloned();
        pod.map(|pod| GetResponse { pod: Some(pod) })
            .ok_or_else(|| Status::unknown("pod not found"))
    }

    /// Requests the devices of pod `ns/web`. Returns them and the methods called.
    fn devices(self) -> (Devices, Vec<String>) {
        let folder = TempDir::new().expect("a folder");
        let socket = folder.path().join("kubelet.sock");
        let asked = Arc::clone(&self.asked);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime
            .block_on(async { UnixListener::bind(&socket) })
            .expect("bound");
        runtime.spawn(
            Server::builder()
                .add_service(self)
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        let devices = devices(&socket, &web());
        let asked = asked.lock().expect("no panic").clone();
        (devices, asked)
    }
}

fn web() -> ObjectName {
    ObjectName {
        namespace: "ns".to_owned(),
        name: "web".to_owned(),
    }
}

fn pod(name: &str, containers: &[&[(&str, &[&str])]]) -> PodResources {
    let device = |(resource, ids): &(&str, &[&str])| ContainerDevices {
        resource: (*resource).to_owned(),
        ids: ids.iter().map(ToString::to_string).collect(),
    };
    let container = |devices: &&[(&str, &[&str])]| ContainerResources {
        devices: devices.iter().map(device).collect(),
        dynamic: Vec::new(),
    };
    PodResources {
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        containers: containers.iter().map(container).collect(),
    }
}

#[test]
fn devices_of_all_containers_are_returned_by_resource() {
    let web = pod(
        "web",
        &[
            &[("a/vf", &["2", "1"]), ("b/vf", &["x"])],
            &[("a/vf", &["3"])],
        ],
    );
    let pods = vec![pod("other", &[&[("a/vf", &["9"])]]), web];
    for (has_get, methods) in [(true, &["Get"][..]), (false, &["Get", "List"])] {
        let (devices, asked) = Kubelet {
            pods: pods.clone(),
            has_get,
            ..Kubelet::default()
        }
        .devices();
        let devices = devices.expect("devices").by_resource;
        assert_eq!(
            (devices["a/vf"].join(" "), devices["b/vf"].join(" ")),
            ("2 1 3".to_owned(), "x".to_owned())
        );
        assert_eq!(asked, methods);
    }
}

#[test]
fn device_of_a_claim_shared_by_containers_is_returned_once() {
    let resource = |device: &str| {
        let [driver, pool, device] = ["nic", "p", device].map(str::to_owned);
        ClaimResource {
            driver,
            pool,
            device,
        }
    };
    let container = |devices: &[&str]| {
        let resources = devices.iter().copied().map(resource).collect();
        ContainerResources {
            devices: Vec::new(),
            dynamic: vec![DynamicResource { resources }],
        }
    };
    let mut web = pod("web", &[]);
    web.containers = vec![container(&["d1", "d2"]), container(&["d1"])];
    let (devices, _) = Kubelet {
        pods: vec![web],
        has_get: true,
        ..Kubelet::default()
    }
    .devices();
    let named: Vec<String> = devices
        .expect("devices")
        .allocated
        .into_iter()
        .map(|one| one.device)
        .collect();
    assert_eq!(named, ["d1", "d2"]);
}

#[test]
fn busy_kubelet_is_queried_again() {
    let kubelet = Kubelet {
        pods: vec![pod("web", &[])],
        has_get: true,
        busy: 2,
        ..Kubelet::default()
    };
    let (devices, asked) = kubelet.devices();
    assert_eq!(
        (devices.expect("an answer"), asked.len()),
        (Given::default(), 3)
    );
}

#[test]
fn missing_kubelet_or_unknown_pod_makes_the_runtime_try_again() {
    let (unknown, _) = Kubelet {
        pods: vec![pod("other", &[])],
        ..Kubelet::default()
    }
    .devices();
    let unknown = unknown.expect_err("another pod");
    assert!(
        matches!(&unknown, SourceError::Passing { why } if why.contains("ns/web")),
        "{unknown}"
    );
    let none = devices(Path::new("/nowhere/kubelet.sock"), &web()).expect_err("no socket");
    assert!(
        matches!(&none, SourceError::Passing { why } if why.contains("/nowhere/kubelet.sock: No such file")),
        "{none}"
    );
}

#[test]
fn kubelet_response_is_read_back() {
    let devices = |resource: &str, ids: &[&str]| ContainerDevices {
        resource: resource.to_owned(),
        ids: ids.iter().map(ToString::to_string).collect(),
    };
    let container = |devices| ContainerResources {
        devices,
        dynamic: Vec::new(),
    };
    let containers = vec![
        container(vec![
            devices("a/vf", &["0000:18:02.1"]),
            devices("b/vf", &[]),
        ]),
        container(vec![devices("a/vf", &["0000:18:02.2"])]),
    ];
    let pod = PodResources {
        name: "web".to_owned(),
        namespace: "ns".to_owned(),
        containers,
    };
    let entry = |resource: &str, ids: &[&str]| {
        (
            resource.to_owned(),
            ids.iter().map(ToString::to_string).collect(),
        )
    };
    let by_resource = [
        entry("a/vf", &["0000:18:02.1", "0000:18:02.2"]),
        entry("b/vf", &[]),
    ]
    .into();
    let expected = Given {
        by_resource,
        ..Given::default()
    };
    // A list of one pod has the same bytes as the answer to `Get`.
    let written = GetResponse {
        pod: Some(pod.clone()),
    }
    .encode_to_vec();
    assert_eq!(read(&written), [expected.clone(), expected.clone()]);
    assert_eq!(
        read(
            &ListResponse {
                pods: vec![pod.clone(), pod]
            }
            .encode_to_vec()
        )
        .last(),
        Some(&expected)
    );
    assert!(read(&written[..written.len() - 1]).is_empty());
}
