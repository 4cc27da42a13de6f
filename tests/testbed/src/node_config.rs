//! Configuration files of a node's containerd and kubelet.

use crate::cni;
use crate::state::{Cluster, Node};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub(crate) const CONTAINERD: &str = "containerd.toml";
pub(crate) const KUBELET: &str = "kubelet.json";
/// Address of containerd's metrics, in the node's network namespace.
pub const METRICS: &str = "127.0.0.1:1338";

/// Writes the configurations of containerd and of the kubelet into the node's folder.
pub(crate) fn write(cluster: &Cluster, node: Node) -> Result<()> {
    let dir = cluster.node_dir(node);
    for (file, text) in [
        (CONTAINERD, containerd(&dir)),
        (KUBELET, kubelet(cluster, node).to_string()),
    ] {
        let path = dir.join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn containerd(dir: &Path) -> String {
    let template = dir.join(cni::TEMPLATE);
    let of_network = if template.exists() {
        format!(
            "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  conf_template = '{}'\n",
            template.display()
        )
    } else {
        String::new()
    };
    format!(
        "version = 3
[metrics]
  address = '{METRICS}'
[plugins.'io.containerd.internal.v1.opt']
  path = '{}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
{of_network}",
        dir.join("opt").display()
    )
}

fn kubelet(cluster: &Cluster, node: Node) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": cluster.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": cluster.pki(&format!("{node}.crt")),
        "tlsPrivateKeyFile": cluster.pki(&format!("{node}.key")),
        // The machine may have a hybrid of cgroup v1 and v2, in which the kubelet cannot keep its
        // own hierarchy.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "volumePluginDir": cluster.node_dir(node).join("volume-plugins"),
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "imageMinimumGCAge": "100h",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1Gi"},
    })
}
