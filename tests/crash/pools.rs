//! A pod with an address of the IPAM `whereabouts`, on a real API server, and checks of its objects.

use crate::cluster::{self, KUBECONFIG};
use crate::proxy::{Fault, Proxy};
use crate::server::{self, Server};
use braid_testbed::sh;
use braid_tests::{Sandbox, Value, json, state};
use std::path::Path;
use std::sync::Once;

const POD: &str = "web";
const API: &str = "/apis/whereabouts.cni.cncf.io/v1alpha1";
/// Folder of the node's journals. They outlive their containers.
pub(crate) const JOURNALS: &str = "/var/lib/braid/ipam";
/// Kinds of Whereabouts' objects.
const KINDS: [&str; 2] = ["ippools", "overlappingrangeipreservations"];
/// The kinds are applied once: two of `kubectl apply` at the same time fail.
static APPLIED: Once = Once::new();

/// A pod, and a connection to the API server with its pool.
pub(crate) struct Pools {
    server: &'static Server,
    _proxy: Proxy,
    namespace: String,
    /// Token of the node's account.
    token: String,
}

impl Pools {
    /// Creates a pod in a new Kubernetes namespace, and a sandbox that is its node. `None` without an
    /// API server.
    pub(crate) fn new(namespace: &str) -> Option<(Self, Sandbox)> {
        let server = server::get(&format!("api::crash-{namespace}"))?;
        let host = Sandbox::new();
        server.kubectl(&["create", "namespace", namespace], None);
        APPLIED.call_once(|| {
            let manifest = sh::root().join("deploy/ipam.yaml");
            server.kubectl(&["apply", "-f", &manifest.to_string_lossy()], None);
            let kinds = KINDS.map(|kind| format!("crd/{kind}.whereabouts.cni.cncf.io"));
            let wait = ["wait", "--for=condition=Established", &kinds[0], &kinds[1]];
            server.kubectl(&wait, None);
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}});
        server.kubectl(&["create", "-f", "-"], Some(&node));
        let container = json!({"name": "c", "image": "none"});
        let spec = json!({"nodeName": namespace, "containers": [container]});
        let metadata = json!({"name": POD});
        cluster::create(
            server,
            namespace,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        );
        let account = ["create", "serviceaccount", namespace, "-n", "kube-system"];
        server.kubectl(&account, None);
        let subject = format!("--serviceaccount=kube-system:{namespace}");
        let admin = "--clusterrole=cluster-admin";
        let bind = ["create", "clusterrolebinding", namespace, admin, &subject];
        server.kubectl(&bind, None);
        let token = server.create_token(namespace).trim().to_owned();
        let proxy = Proxy::new(server, Vec::new(), Fault::None);
        cluster::write_credentials(server, &proxy, &token, namespace);
        let pools = Self {
            server,
            _proxy: proxy,
            namespace: namespace.to_owned(),
            token,
        };
        Some((pools, host))
    }

    /// Returns `CNI_ARGS` of a call for the pod.
    pub(crate) fn args(&self) -> String {
        let namespace = &self.namespace;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={POD}")
    }

    /// Returns the entries of the pool, the reservations, and addresses that the node's journal has.
    pub(crate) fn left(&self) -> Vec<String> {
        let [pools, reservations] = KINDS.map(|kind| {
            let path = format!("{API}/namespaces/{}/{kind}", self.namespace);
            let list = cluster::get(self.server, &self.token, &path);
            list["items"].as_array().cloned().expect("a list")
        });
        let mut left = Vec::new();
        for pool in pools {
            for (offset, entry) in pool["spec"]["allocations"]
                .as_object()
                .into_iter()
                .flatten()
            {
                left.push(format!("entry {offset} of the pool: {entry}"));
            }
        }
        left.extend(reservations.iter().map(|reservation| {
            let name = &reservation["metadata"]["name"];
            format!("reservation {name}: {}", reservation["spec"])
        }));
        for (path, text) in state::tree(Path::new(JOURNALS)) {
            let own = text.find("\"own\":{").map(|at| &text[at..]);
            if own.is_some_and(|own| !own.starts_with("\"own\":{}")) {
                left.push(format!("{path}: {text}"));
            }
        }
        left
    }

    /// Deletes all objects of the pool.
    pub(crate) fn wipe(&self) {
        for kind in KINDS {
            let kind = format!("{kind}.whereabouts.cni.cncf.io");
            let delete = ["delete", &kind, "--all", "-n", &self.namespace];
            self.server.kubectl(&delete, None);
        }
    }
}

/// Returns the configuration of the address. Five addresses are for containers.
pub(crate) fn ipam() -> Value {
    json!({
        "type": "whereabouts",
        "range": "10.1.0.0/29",
        "range_start": "10.1.0.2",
        "gateway": "10.1.0.1",
        "kubernetes": {"kubeconfig": KUBECONFIG},
    })
}
