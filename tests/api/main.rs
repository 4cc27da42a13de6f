//! braid's client of the API server, tested with a real one: etcd and kube-apiserver, TLS, and RBAC
//! with the shipped role.
//!
//! ```text
//!  test's sandbox: Api, or braid ─► Proxy (faults) ──┐
//!  sandbox shared by all tests:                      └─► kube-apiserver ─► etcd
//! ```

#![expect(clippy::expect_used, reason = "a test fails by a panic")]

mod access;
mod agent;
mod audit;
mod claims_docs;
mod faults;
mod kubelet;
mod objects;
mod pods;
mod policies;
mod proxy;
mod server;
mod token;
mod whereabouts;

use braid_client::api::{Access, Api};
use braid_core::k8s::source::{Edit, Source, SourceError};
use braid_core::k8s::{NETWORK_STATUS, ObjectName};
use braid_node::source::client::protocol::Limits;
use braid_tests::{Sandbox, Value, json};
use proxy::{Fault, Proxy};
use server::Server;
use std::fs;
use std::path::PathBuf;

/// A test's sandbox, its Kubernetes namespace on the shared API server, and a proxy to this server.
struct World {
    server: &'static Server,
    proxy: Proxy,
    namespace: String,
    /// Last field, so that it is dropped after everything that runs in it.
    sandbox: Sandbox,
}

impl World {
    /// Creates a world whose Kubernetes namespace is `namespace`, with faultless connections.
    /// `None` without an API server.
    fn new(namespace: &str) -> Option<Self> {
        Self::with(namespace, Vec::new(), Fault::None)
    }

    /// Creates a world whose proxy applies one of `faults` to each of the first connections, and
    /// `then` to all later ones. `None` without an API server.
    fn with(namespace: &str, faults: Vec<Fault>, then: Fault) -> Option<Self> {
        let server = server::get(&format!("api::{namespace}"))?;
        Some(Self::on(server, namespace, faults, then))
    }

    /// Creates a world on the server with the admission policies, with faultless connections. `None`
    /// without an API server.
    fn guarded(namespace: &str) -> Option<Self> {
        let server = server::guarded(&format!("api::{namespace}"))?;
        Some(Self::on(server, namespace, Vec::new(), Fault::None))
    }

    /// Creates a world on a server for many objects, with faultless connections. `None` without an
    /// API server.
    fn loaded(namespace: &str) -> Option<Self> {
        let server = server::loaded(&format!("api::{namespace}"))?;
        Some(Self::on(server, namespace, Vec::new(), Fault::None))
    }

    fn on(server: &'static Server, namespace: &str, faults: Vec<Fault>, then: Fault) -> Self {
        let sandbox = Sandbox::new();
        server.kubectl(&["create", "namespace", namespace], None);
        Self {
            server,
            proxy: Proxy::new(server, faults, then),
            namespace: namespace.to_owned(),
            sandbox,
        }
    }

    fn name(&self, name: &str) -> ObjectName {
        ObjectName {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// Creates an object in the test's Kubernetes namespace and returns it.
    fn create(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = self.namespace.clone().into();
        let made = self
            .server
            .kubectl(&["create", "-o", "json", "-f", "-"], Some(&object));
        serde_json::from_str(&made).expect("kubectl prints JSON")
    }

    /// Creates a pod that is not assigned to a node.
    fn create_pod(&self, name: &str, annotations: &Value) -> Value {
        let container = json!({"name": "c", "image": "none"});
        let metadata = json!({"name": name, "annotations": annotations});
        self.create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}),
        )
    }

    fn create_nad(&self, name: &str, spec: &Value) -> Value {
        let [api, kind] = ["k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"];
        self.create(
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}),
        )
    }

    /// Returns the current object without `managedFields` and `resourceVersion`, because every
    /// change updates them.
    fn get(&self, kind: &str, name: &str) -> Value {
        let json = self.server.kubectl(
            &["get", kind, name, "-n", &self.namespace, "-o", "json"],
            None,
        );
        steady(serde_json::from_str(&json).expect("kubectl prints JSON"))
    }

    /// Returns braid's client of the API server for the shipped service account. `user` is the user
    /// entry of its kubeconfig.
    fn api(&self, user: &Value, limits: Limits) -> Api {
        Api::new(Access::new(self.kubeconfig(user)), limits)
    }

    /// Returns braid's client of the API server with the credentials and time limits of a real
    /// node.
    fn source(&self) -> Api {
        self.api(&json!({"token": self.server.token}), Limits::default())
    }

    fn kubeconfig(&self, user: &Value) -> PathBuf {
        let authority = "/run/ca.crt";
        fs::write(authority, &self.server.authority).expect("write the authority's certificate");
        let cluster = json!({"server": self.proxy.url(), "certificate-authority": authority});
        write_kubeconfig(&cluster, user)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Tests of the policies send requests that are refused.
        if !std::thread::panicking() && !self.server.is_guarded {
            audit::assert_allowed(self.server);
        }
    }
}

fn write_kubeconfig(cluster: &Value, user: &Value) -> PathBuf {
    let config = json!({
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "current-context": "c",
    });
    let path = PathBuf::from("/run/kubeconfig");
    fs::write(&path, config.to_string()).expect("write a kubeconfig");
    path
}

fn steady(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !["managedFields", "resourceVersion"].contains(&key.as_str()));
    }
    object
}

/// Writes the `network-status` annotation of a pod. `seen` holds the pod's annotations as the
/// caller has read them.
fn annotate(
    source: &mut Api,
    name: &ObjectName,
    uid: &str,
    seen: &Value,
    value: &str,
) -> Result<(), SourceError> {
    let seen = seen.as_object().into_iter().flatten();
    let seen = seen
        .map(|(key, value)| (key.clone(), value.as_str().expect("a text").to_owned()))
        .collect();
    source.annotate(
        name,
        uid,
        &Edit {
            key: NETWORK_STATUS,
            seen: Some(&seen),
            value: &|_| Some(value.to_owned()),
        },
    )
}

/// Returns the annotations of an object.
fn annotations(object: &Value) -> &Value {
    &object["metadata"]["annotations"]
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"]
        .as_str()
        .expect("an object has a uid")
}
