//! Network configurations that packages install as examples.

use braid_core::cni::Json;
use braid_core::k8s::takeover::plugins_of;
use braid_core::k8s::text_at;

/// True if the network is an example that a package installs, or the loopback interface. Pods of a
/// cluster do not use it. Judged by content, because administrators rename the files.
pub fn is_example(network: &Json) -> bool {
    let plugins = plugins_of(network);
    if plugins
        .iter()
        .all(|plugin| text_at(plugin, "type") == Some("loopback"))
    {
        return true;
    }
    let name = text_at(network, "name").unwrap_or_default();
    plugins.iter().any(|plugin| {
        let bridge = text_at(plugin, "bridge").unwrap_or_default();
        text_at(plugin, "type") == Some("bridge")
            && (bridge.starts_with(PODMAN_BRIDGE)
                || name.starts_with(CRIO_NAME) && has_range(plugin, CRIO_RANGE))
    })
}

/// Start of the names of podman's bridges: `87-podman-bridge.conflist`, and networks that a user of
/// podman 3 or 4 created.
const PODMAN_BRIDGE: &str = "cni-podman";
/// Start of the name of CRI-O's networks: `10-crio-bridge.conflist`, `100-crio-bridge.conflist`,
/// `11-crio-ipv4-bridge.conflist`.
const CRIO_NAME: &str = "crio";
/// IPv4 range of all of them. An administrator who gave the network the node's range uses it.
const CRIO_RANGE: &str = "10.85.0.0/16";

/// True if the plugin's `ipam` has this range, as `subnet` or in `ranges`.
fn has_range(plugin: &Json, range: &str) -> bool {
    let Some(ipam) = plugin.get("ipam") else {
        return false;
    };
    let mut sets = vec![ipam];
    if let Some(Json::Array(ranges)) = ipam.get("ranges") {
        for set in ranges {
            match set {
                Json::Array(set) => sets.extend(set),
                Json::Null
                | Json::Bool(_)
                | Json::Number(_)
                | Json::String(_)
                | Json::Object(_) => {}
            }
        }
    }
    sets.iter().any(|set| text_at(set, "subnet") == Some(range))
}
