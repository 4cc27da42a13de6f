//! Properties of a cluster that all its nodes share, also those that join later. `up` decides them
//! and saves them in the cluster's folder.

use crate::state::Cluster;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// Properties of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Nodes and pods also have IPv6 addresses.
    pub(crate) has_ipv6: bool,
    /// MTU of the links between nodes, in bytes.
    pub(crate) mtu: u16,
    /// The nodes have routes to the pods of other nodes, as if an administrator had made them.
    pub(crate) has_routes: bool,
    /// Each node runs kube-proxy.
    pub(crate) has_kube_proxy: bool,
}

impl Layout {
    pub(crate) fn save(self, cluster: &Cluster) -> Result<()> {
        let text = json!({
            "hasIpv6": self.has_ipv6,
            "mtu": self.mtu,
            "hasRoutes": self.has_routes,
            "hasKubeProxy": self.has_kube_proxy,
        });
        let path = path(cluster);
        fs::write(&path, text.to_string()).with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let path = path(cluster);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let saved: Value =
            serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        let is_set = |key: &str| saved[key].as_bool().unwrap_or_default();
        let mtu = saved["mtu"].as_u64().and_then(|mtu| mtu.try_into().ok());
        Ok(Self {
            has_ipv6: is_set("hasIpv6"),
            mtu: mtu.with_context(|| format!("{} has no MTU", path.display()))?,
            has_routes: is_set("hasRoutes"),
            has_kube_proxy: is_set("hasKubeProxy"),
        })
    }
}

fn path(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("layout.json")
}
