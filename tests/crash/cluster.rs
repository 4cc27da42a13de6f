//! A pod with three networks on a real API server, and checks of its `network-status` annotation.

use crate::proxy::{Fault, Proxy};
use crate::server::{self, Server};
use crate::world::PARENT;
use braid_testbed::API_SERVER;
use braid_tests::{Ns, Sandbox, Value, json};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

const POD: &str = "web";
const DEFAULT: &str = "/etc/cni/default.conflist";
/// Kubeconfig of the node.
pub(crate) const KUBECONFIG: &str = "/run/kubeconfig";
const AUTHORITY: &str = "/run/ca.crt";
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// Key of the container ID in an entry of the pod's status.
const CONTAINER: &str = "io.braid/container";
/// Interfaces of the pod in the order of its networks, one for each.
pub(crate) const INTERFACES: [&str; 3] = ["eth0", "net1", "net2"];

/// Entries about a container that the pod's status must have after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// An entry for each network, or a record that the status is still to be published: the ADD
    /// succeeded.
    All,
    /// No entries: the ADD failed and reported its failure.
    Nothing,
    /// All entries or none: the call was interrupted, or was not an ADD.
    Either,
}

/// A pod, and a connection to the API server that has it.
pub(crate) struct Cluster {
    server: &'static Server,
    proxy: Proxy,
    namespace: String,
    uid: String,
}

impl Cluster {
    /// Creates a pod in a new Kubernetes namespace, and a sandbox that is a node of the pod's
    /// cluster. `None` without an API server.
    pub(crate) fn new(namespace: &str) -> Option<(Self, Sandbox)> {
        let server = server::get(&format!("api::crash-{namespace}"))?;
        let host = Sandbox::new();
        server.kubectl(&["create", "namespace", namespace], None);
        for network in &networks()[1..] {
            let [api, kind] = ["k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"];
            let spec = json!({"config": network.to_string()});
            create(
                server,
                namespace,
                json!({"apiVersion": api, "kind": kind, "metadata": {"name": network["name"]}, "spec": spec}),
            );
        }
        let annotations = json!({"k8s.v1.cni.cncf.io/networks": asked().to_string(), STATUS: json!([stale()]).to_string()});
        let spec = json!({"containers": [{"name": "c", "image": "none"}]});
        let metadata = json!({"name": POD, "annotations": annotations});
        let pod = create(
            server,
            namespace,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        );
        let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let cluster = Self {
            server,
            proxy: Proxy::new(server, Vec::new(), Fault::None),
            namespace: namespace.to_owned(),
            uid,
        };
        fs::write(DEFAULT, networks()[0].to_string()).expect("write the default network");
        write_credentials(server, &cluster.proxy, &server.token, namespace);
        Some((cluster, host))
    }

    /// Returns `CNI_ARGS` of a call for the pod.
    pub(crate) fn args(&self) -> String {
        let Self { namespace, uid, .. } = self;
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={POD};K8S_POD_UID={uid}"
        )
    }

    /// Fails if the pod's status is wrong about the container `id`. A correct status has either no
    /// entries about this container, or one for each network. The entries must have the addresses
    /// of the interfaces that exist in `pod`.
    pub(crate) fn judge_status(&self, id: &str, pod: &Ns, due: Due) -> Result<(), String> {
        let status = self.status();
        let wrong = |why: &str| {
            Err(format!(
                "network-status {why}: {}",
                Value::from(status.clone())
            ))
        };
        let own: Vec<&Value> = status
            .iter()
            .filter(|entry| entry[CONTAINER] == id)
            .collect();
        if own.is_empty() {
            return if due == Due::All && !is_owed(id) {
                wrong(&format!("says nothing of container {id}"))
            } else {
                Ok(())
            };
        }
        if own.len() < status.len() {
            return wrong("keeps entries that ADD has read");
        }
        if due == Due::Nothing {
            return wrong(&format!("tells of container {id}, whose ADD failed"));
        }
        let there = addresses(pod);
        let names = [
            String::from("net"),
            format!("{}/side", self.namespace),
            format!("{}/shaped", self.namespace),
        ];
        let expected = names
            .iter()
            .zip(INTERFACES)
            .map(|(name, interface)| (name.as_str(), interface));
        let told = own
            .iter()
            .map(|entry| (text(&entry["name"]), text(&entry["interface"])));
        if !told.eq(expected) {
            return wrong("has not all networks");
        }
        for entry in own {
            let interface = text(&entry["interface"]);
            let kernels: Vec<&str> = there
                .iter()
                .filter(|(link, _)| link == interface)
                .map(|(_, ip)| ip.as_str())
                .collect();
            let told: Vec<&str> = entry["ips"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect();
            if told.len() != 1 || (due == Due::All || !kernels.is_empty()) && told != kernels {
                return wrong(&format!("is not what {interface} has: {kernels:?}"));
            }
        }
        Ok(())
    }

    /// Returns the entries of the pod's `network-status` annotation on the server.
    fn status(&self) -> Vec<Value> {
        let path = format!("/api/v1/namespaces/{}/pods/{POD}", self.namespace);
        let pod = get(self.server, &self.server.token, &path);
        let status = pod["metadata"]["annotations"][STATUS]
            .as_str()
            .expect("a status, if only of others");
        serde_json::from_str(status).unwrap_or_else(|err| panic!("{err}: {status}"))
    }
}

/// Writes the node's credentials for the API server, with this default namespace.
pub(crate) fn write_credentials(server: &Server, proxy: &Proxy, token: &str, namespace: &str) {
    fs::write(AUTHORITY, &server.authority).expect("write the authority's certificate");
    let cluster = json!({"server": proxy.url(), "certificate-authority": AUTHORITY});
    let context = json!({"cluster": "k", "user": "u", "namespace": namespace});
    let config = json!({
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": context}],
        "current-context": "c",
    });
    fs::write(KUBECONFIG, config.to_string()).expect("write a kubeconfig");
}

/// Gets an object from the API server. The client is independent of braid. It starts no
/// process, because it runs thousands of times.
pub(crate) fn get(server: &Server, token: &str, path: &str) -> Value {
    let mut roots = RootCertStore::empty();
    let authority =
        CertificateDer::from_pem_slice(server.authority.as_bytes()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let config =
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
    let config = config
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::from(std::net::IpAddr::from(API_SERVER));
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(client, server.connect());
    let request = format!("GET {path} HTTP/1.0\r\nauthorization: Bearer {token}\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("the server reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the server answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|err| panic!("{err}: {answer}"))
}

/// Returns the configurations of the default network and of the two requested networks. Each has
/// few addresses.
pub(crate) fn networks() -> [Value; 3] {
    let ipam = |number: u8| json!({"type": "host-local", "subnet": format!("10.{number}.0.0/29")});
    let mut first = ipam(1);
    first["routes"] = json!([{"dst": "0.0.0.0/0"}]);
    let bridge = |name: &str, ipam: Value| json!({"type": "bridge", "bridge": name, "isGateway": true, "ipMasq": true, "ipam": ipam});
    let conf = |name: &str, plugins: Value| json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins});
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    [
        conf("net", json!([bridge("br0", first)])),
        conf(
            "side",
            json!([{"type": "macvlan", "master": PARENT, "ipam": ipam(2)}]),
        ),
        conf(
            "shaped",
            json!([bridge("br1", ipam(3)), bandwidth, portmap]),
        ),
    ]
}

/// Returns the annotation with which the pod requests networks.
fn asked() -> Value {
    let bandwidth = json!({"ingressRate": 10_000_000, "ingressBurst": 800_000, "egressRate": 10_000_000, "egressBurst": 800_000});
    let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
    json!([{"name": "side"}, {"name": "shaped", "bandwidth": bandwidth, "portMappings": [mapping]}])
}

/// Returns the CNI configuration of a call.
pub(crate) fn conf() -> Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "braid", "kubeconfig": KUBECONFIG, "clusterNetwork": DEFAULT})
}

/// Returns a status entry that another program has written.
fn stale() -> Value {
    json!({"name": "others/hot", "interface": "hot0", "ips": ["192.0.2.9"], "default": false})
}

pub(crate) fn create(server: &Server, namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    let made = server.kubectl(&["create", "-o", "json", "-f", "-"], Some(&object));
    serde_json::from_str(&made).expect("kubectl prints JSON")
}

/// Returns interface and address of each IPv4 address in the container.
fn addresses(pod: &Ns) -> Vec<(String, String)> {
    let links = pod.list("ip -j -4 addr");
    let of = |link: &Value| {
        let infos = link["addr_info"].as_array().cloned().unwrap_or_default();
        let name = text(&link["ifname"]).to_owned();
        infos
            .into_iter()
            .map(move |info| (name.clone(), text(&info["local"]).to_owned()))
    };
    links.iter().flat_map(of).collect()
}

/// True if a record of the container says that the pod's status is still to be published.
fn is_owed(id: &str) -> bool {
    let folder = Path::new("/run/braid/attachments").join(id);
    let records = fs::read_dir(folder).into_iter().flatten().flatten();
    records
        .into_iter()
        .any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains("\"owed\"")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
