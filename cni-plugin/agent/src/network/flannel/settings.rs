//! Sources of flannel's configuration: its `ConfigMap`, a file of the agent, and the node.

use super::net_conf::{DEFAULT_ID, NetConf};
use crate::cluster::flannel::Annotations;
use crate::error::Error;
use crate::network::vxlan::Settings as LinkSettings;
use braid_core::plugins::meta::flannel::{SUBNET_FILE, Subnet};
use braid_node::source::files;
use braid_node::sys::replace::replace;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

/// File with the settings for the time after a reboot.
pub const KEPT: &str = "/var/lib/braid/flannel.json";
/// Mode of the file.
const MODE: u32 = 0o600;
/// Namespaces of flannel's own manifests, the newer one first.
const NAMESPACES: [&str; 2] = ["kube-flannel", "kube-system"];
/// Name of the `ConfigMap` in all of them.
const CONFIG_MAP: &str = "kube-flannel-cfg";
const KEY: &str = "net-conf.json";

/// Flannel's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) conf: NetConf,
    /// Value of `FLANNEL_IPMASQ`: false if each plugin call masquerades.
    pub(super) is_masquerading: bool,
}

/// Content of [`KEPT`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    net_conf: String,
    ip_masq: bool,
}

/// Reads `net-conf.json` of flannel's `ConfigMap`. The inner error is the reason why there is none. An
/// API server that does not say whether there is one is an error: another source may be out of date.
pub(super) async fn config_map(client: &Client) -> Result<Result<String, String>, Error> {
    let mut reasons = Vec::new();
    for namespace in NAMESPACES {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let name = format!("ConfigMap {namespace}/{CONFIG_MAP}");
        match api.get_opt(CONFIG_MAP).await {
            Ok(Some(map)) => match map.data.and_then(|mut data| data.remove(KEY)) {
                Some(text) => return Ok(Ok(text)),
                None => reasons.push(format!("{name} has no {KEY}")),
            },
            Ok(None) => reasons.push(format!("there is no {name}")),
            // A cluster without flannel's objects, such as k3s, may grant no right to them.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                reasons.push(format!("read {name}: {}", status.message));
            }
            Err(err) => return Err(Error::new(format_args!("read {name}"), err)),
        }
    }
    Ok(Err(reasons.join("; ")))
}

/// Returns the settings with this `net-conf.json`, and keeps them for the time after a reboot.
pub(super) fn settings(net_conf: String) -> Result<Settings, Error> {
    let conf =
        NetConf::parse(&net_conf).map_err(|why| Error::new("read flannel's settings", why))?;
    let is_masquerading = match (subnet_file(), kept()) {
        (Some(file), _) => file.is_masqueraded,
        (None, Some(kept)) => kept.ip_masq,
        // As flannel's own manifest starts flanneld.
        (None, None) => true,
    };
    let text = json!(Kept {
        net_conf,
        ip_masq: is_masquerading,
    });
    replace(KEPT.as_ref(), &format!("{text}\n"), MODE)
        .map_err(|err| Error::new(format_args!("write {KEPT}"), err))?;
    Ok(Settings {
        conf,
        is_masquerading,
    })
}

/// Returns `net-conf.json` of a cluster without flannel's `ConfigMap`, such as k3s: as kept before,
/// or as flanneld left the node. `link` are the settings of its VXLAN link.
pub(super) fn of_node(own: &Annotations, link: Option<LinkSettings>) -> Option<String> {
    if let Some(kept) = kept() {
        return Some(kept.net_conf);
    }
    let backend = match (link, own.get(crate::cluster::flannel::BACKEND_TYPE)) {
        (Some(link), None | Some("vxlan")) => {
            json!({"Type": "vxlan", "VNI": link.id, "Port": link.port})
        }
        (None, Some("vxlan")) => json!({"Type": "vxlan", "VNI": vni(own)}),
        (_, Some(other)) => json!({"Type": other}),
        (None, None) => return None,
    };
    let mut conf = json!({"EnableIPv4": false, "Backend": backend});
    for network in subnet_file()?.networks {
        let (enabled, key) = if network.addr().is_ipv4() {
            ("EnableIPv4", "Network")
        } else {
            ("EnableIPv6", "IPv6Network")
        };
        conf[enabled] = true.into();
        conf[key] = network.to_string().into();
    }
    Some(conf.to_string())
}

/// Returns the VXLAN network identifier that the own Node published, or flannel's default.
pub(super) fn vni(own: &Annotations) -> u32 {
    own.vni().unwrap_or(DEFAULT_ID)
}

fn subnet_file() -> Option<Subnet> {
    Subnet::parse(&text(SUBNET_FILE)?).ok()
}

fn kept() -> Option<Kept> {
    serde_json::from_str(&text(KEPT)?).ok()
}

fn text(path: &str) -> Option<String> {
    String::from_utf8(files::bytes(Path::new(path)).ok()?).ok()
}
