//! braid's source on a real API server: etcd and kube-apiserver, TLS, RBAC with the shipped role.
//!
//! ```text
//!  test's sandbox: Api, or braid ─► Proxy (faults) ──┐
//!  another one, shared by all tests:                └─► kube-apiserver ─► etcd
//! ```

#![expect(clippy::expect_used, reason = "a test fails by a panic")]

mod access;
mod audit;
mod faults;
mod kubelet;
mod objects;
mod pods;
mod proxy;
mod server;
mod token;

use braid_core::k8s::source::{Edit, Source, SourceError};
use braid_core::k8s::{NETWORK_STATUS, ObjectName};
use braid_node::source::api::{Access, Api, Limits};
use braid_tests::{Sandbox, Value, json};
use proxy::{Fault, Proxy};
use server::Server;
use std::fs;
use std::path::PathBuf;

/// Sandbox of a test, its namespace on the API server, and a proxy in front of the server.
struct World {
    server: &'static Server,
    proxy: Proxy,
    namespace: String,
    /// Dropped last, after everything that runs in it.
    sandbox: Sandbox,
}

impl World {
    /// Creates a namespace with the given name; without faults.
    fn new(namespace: &str) -> Option<Self> {
        Self::with(namespace, Vec::new(), Fault::None)
    }

    /// Gives the first connections one of `faults` each, and all others `then`. `None` without an
    /// API server.
    fn with(namespace: &str, faults: Vec<Fault>, then: Fault) -> Option<Self> {
        let server = server::get(&format!("api::{namespace}"))?;
        let sandbox = Sandbox::new();
        server.kubectl(&["create", "namespace", namespace], None);
        Some(Self {
            server,
            proxy: Proxy::new(server, faults, then),
            namespace: namespace.to_owned(),
            sandbox,
        })
    }

    fn name(&self, name: &str) -> ObjectName {
        ObjectName {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// Creates an object in the test's namespace and returns it.
    fn create(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = self.namespace.clone().into();
        let made = self
            .server
            .kubectl(&["create", "-o", "json", "-f", "-"], Some(&object));
        serde_json::from_str(&made).expect("kubectl prints JSON")
    }

    /// Creates a pod without a node.
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

    /// Returns the current object without the fields that each change updates.
    fn get(&self, kind: &str, name: &str) -> Value {
        let json = self.server.kubectl(
            &["get", kind, name, "-n", &self.namespace, "-o", "json"],
            None,
        );
        steady(serde_json::from_str(&json).expect("kubectl prints JSON"))
    }

    /// Returns a source for the shipped service account; its kubeconfig has the user `user`.
    fn api(&self, user: &Value, limits: Limits) -> Api {
        Api::new(Access::Kubeconfig(self.kubeconfig(user)), limits)
    }

    /// Returns a source as configured on a node.
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
        if !std::thread::panicking() {
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

/// Writes the status annotation of a pod whose annotations were read as `seen`.
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
