//! Flannel's network of this node: settings, kernel, file and annotations.

use super::settings::{self, Settings};
use super::{plan, subnet_file};
use crate::cluster::config::Config;
use crate::cluster::flannel::Family;
use crate::cluster::node::{Node, resource};
use crate::error::Error;
use crate::network::fabric::{Fabric, Outcome, Wanted};
use crate::network::mark;
use crate::repair::Repairs;
use braid_core::plugins::meta::flannel::SUBNET_FILE;
use braid_node::sys::replace::replace;
use ipnet::IpNet;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;

/// Mode of flanneld's file. Plugin calls of other users may read it.
const FILE_MODE: u32 = 0o644;

/// Flannel's network of this node.
pub struct Flannel {
    client: Client,
    /// Settings as read in the first comparison. Flanneld too reads them only at its start.
    settings: Option<Settings>,
}

/// Result of a comparison.
#[derive(Debug)]
pub struct Network {
    /// Result of the comparison of the kernel.
    pub outcome: Outcome,
    /// Networks of all pods.
    pub pods: Vec<IpNet>,
    /// MTU of pods in bytes.
    pub mtu: u32,
}

impl Flannel {
    /// Returns the network before its first comparison.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            settings: None,
        }
    }

    /// Compares the node with the cluster, and changes the node: the kernel, flanneld's file, and the
    /// annotations of the Node. `drift` is true if the uplink has changed since the last comparison.
    pub async fn compare(
        &mut self,
        fabric: &mut Fabric,
        wanted: Wanted<'_>,
        drift: (bool, &mut Repairs),
    ) -> Result<Network, Error> {
        let settings = match self.settings.take() {
            Some(settings) => settings,
            None => self.read(fabric, wanted.own).await?,
        };
        let Settings {
            conf,
            is_masquerading,
        } = self.settings.insert(settings).clone();
        let conf = &conf;
        mark::set()?;
        let (outcome, ends) = fabric.compare_flannel(&wanted, conf, drift).await?;
        let uplink_mtu = ends.uplink_mtu.unwrap_or(wanted.uplink.mtu);
        let mtu = pod_mtu(wanted.config, plan::mtu(conf, uplink_mtu));
        let ranges = ranges(wanted.own);
        // Without a range, flanneld writes no file.
        let mut families = Family::ALL.into_iter();
        let is_complete = families.all(|family| {
            conf.network(family).is_none() || ranges.iter().any(|range| family.has_range(range))
        });
        if is_complete && !fabric.is_dead() {
            let text = subnet_file::text(conf, &ranges, mtu, is_masquerading);
            let is_new = replace(SUBNET_FILE.as_ref(), &text, FILE_MODE)
                .map_err(|err| Error::new(format_args!("write {SUBNET_FILE}"), err))?;
            if is_new {
                tracing::info!(path = SUBNET_FILE, "wrote flannel's file");
            }
            let missing = plan::annotations(conf, &wanted.own.flannel, &ends.published);
            self.publish(&wanted.own.name, missing).await?;
        }
        let mut pods = Vec::new();
        for family in Family::ALL {
            pods.extend(conf.network(family));
        }
        Ok(Network { outcome, pods, mtu })
    }

    /// Reads the settings.
    async fn read(&self, fabric: &mut Fabric, own: &Node) -> Result<Settings, Error> {
        let text = match settings::config_map(&self.client).await? {
            Ok(text) => text,
            Err(why) => {
                let link = fabric.flannel_link(settings::vni(&own.flannel)).await?;
                let text = settings::of_node(&own.flannel, link);
                let text = text.ok_or_else(|| Error::new("read flannel's settings", &why))?;
                tracing::info!(reason = why, "took flannel's settings from the node");
                text
            }
        };
        let settings = settings::settings(text)?;
        tracing::info!(
            backend = settings.conf.backend.name(),
            "read flannel's settings"
        );
        Ok(settings)
    }

    /// Writes annotations of the own Node.
    async fn publish(
        &self,
        node: &str,
        annotations: BTreeMap<String, String>,
    ) -> Result<(), Error> {
        if annotations.is_empty() {
            return Ok(());
        }
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource());
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        api.patch_metadata(node, &PatchParams::default(), &patch)
            .await
            .map_err(|err| {
                let doing = format!("write flannel's annotations of Node {node:?}");
                Error::new(
                    doing,
                    format_args!("{err} (deploy/flannel.yaml has the right)"),
                )
            })?;
        tracing::info!(node, "wrote flannel's annotations");
        Ok(())
    }
}

/// Returns the MTU of pods: the configured one, or flannel's.
fn pod_mtu(config: &Config, flannels: u32) -> u32 {
    config.mtu.unwrap_or(flannels)
}

fn ranges(own: &Node) -> Vec<IpNet> {
    own.ranges.iter().flatten().copied().collect()
}
