//! Plugin list that makes the container runtime of a node attach pods with braid, built from the
//! node's current CNI configuration.
//!
//! ```text
//!  first file of the folder ─┬─ plain network ─► becomes the default network
//!                            └─ Multus, braid ─► its keys, its default network, plugins before and after
//!  former list of braid ───────────────────────► entries that other tools added
//! ```

use super::settings::key_of_pods;
use super::text_at;
use crate::cni::{Error, Json};
use std::collections::BTreeMap;

/// CNI plugin type of braid.
const BRAID: &str = "braid";
/// CNI plugin types of Multus: the standalone plugin, and the client of the Multus daemon.
pub const MULTUS: [&str; 2] = ["multus", "multus-shim"];
/// Keys with a value that is, or can be, a path.
const PATHS: [&str; 5] = [
    "clusterNetwork",
    "confDir",
    "binDir",
    "cniDir",
    "readinessindicatorfile",
];
/// Keys that define the default network, in order of precedence.
const ORIGINS: [&str; 4] = ["clusterNetwork", "delegates", "plugins", "network"];
/// Keys copied from the configuration of the Multus daemon if its client does not set them.
const OF_DAEMON: [&str; 10] = [
    "namespaceIsolation",
    "globalNamespaces",
    "systemNamespaces",
    "multusNamespace",
    "defaultNetworks",
    "auxiliaryCNIChainName",
    "confDir",
    "binDir",
    "cniDir",
    "readinessindicatorfile",
];
/// Keys that are generated for braid's entry in the list. Earlier values are not kept.
const OF_ENTRY: [&str; 5] = ["type", "name", "cniVersion", "kubeconfig", "capabilities"];
/// Keys that are generated for the list itself. Earlier values are not kept.
const OF_LIST: [&str; 4] = ["cniVersion", "name", "plugins", ONLY_INLINED];
/// Key of a list (CNI 1.1) that forbids runtimes to append the plugins in the folder named after
/// the list.
const ONLY_INLINED: &str = "loadOnlyInlinedPlugins";

/// A CNI configuration file in the runtime's folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Conf {
    /// Path on the node.
    pub path: String,
    /// Content of the file.
    pub json: Json,
}

/// Inputs from which [`list`] builds the plugin list.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Path of the plugin list on the node.
    pub own: String,
    /// Path of the kubeconfig file that the plugin list refers to.
    pub kubeconfig: String,
    /// Configuration that the runtime would use without braid's plugin list.
    pub first: Conf,
    /// Configurations after `first`, in file name order.
    pub others: Vec<Conf>,
    /// Earlier version of braid's plugin list, if any.
    pub former: Option<Json>,
    /// Configuration of the Multus daemon, if any.
    pub daemon: Option<Json>,
    /// Path on the node for each path that [`paths`] returns.
    pub paths: BTreeMap<String, String>,
    /// Configurations on the node by value of `clusterNetwork`, which is a path or a network name.
    pub named: BTreeMap<String, Json>,
}

/// Returns the plugins of a list, or the configuration itself if it is a single plugin.
pub fn plugins_of(found: &Json) -> &[Json] {
    match found.get("plugins") {
        Some(Json::Array(plugins)) if found.get("type").is_none() => plugins,
        Some(_) | None => std::slice::from_ref(found),
    }
}

/// Returns the absolute paths in a configuration and in the configuration of the Multus daemon. The
/// daemon's paths are valid in the daemon's container.
pub fn paths<'a>(first: &'a Json, daemon: Option<&'a Json>) -> Vec<&'a str> {
    let mut plugins: Vec<&Json> = plugins_of(first).iter().collect();
    plugins.extend(daemon);
    let mut paths = Vec::new();
    for plugin in plugins {
        for key in PATHS {
            if let Some(path) = text_at(plugin, key)
                && path.starts_with('/')
            {
                paths.push(path);
            }
        }
    }
    paths
}
/// Returns the values of `clusterNetwork` in the plugins of a configuration.
pub fn names(first: &Json) -> Vec<&str> {
    let mut names = Vec::new();
    for plugin in plugins_of(first) {
        match text_at(plugin, "clusterNetwork") {
            None | Some("") => {}
            Some(name) => names.push(name),
        }
    }
    names
}
/// True if a plugin attaches pods to the networks that their annotations select: Multus, or braid
/// with a key such as `kubeconfig`.
fn attaches_pods(plugin: &Json) -> bool {
    let is_multus = text_at(plugin, "type").is_some_and(|kind| MULTUS.contains(&kind));
    is_multus || key_of_pods(plugin).is_some()
}

fn is_braid(plugin: &Json) -> bool {
    text_at(plugin, "type") == Some(BRAID)
}

/// True if braid's entry replaces this plugin in the list.
fn is_taken_over(plugin: &Json) -> bool {
    attaches_pods(plugin) || is_braid(plugin)
}

/// True if the configuration is a list of plugins, not a single plugin.
fn is_list(found: &Json) -> bool {
    found.get("plugins").is_some() && found.get("type").is_none()
}
/// Returns the plugin list with braid's entry. Fails if two plugins of the present list attach
/// pods, or if braid would be its own default network.
pub fn list(known: &Known) -> Result<Json, Error> {
    let found = &known.first.json;
    let plugins = plugins_of(found);
    let at = plugins.iter().position(is_taken_over);
    let (mut own, before, behind) = match at {
        Some(at) => (
            taken_over(&plugins[at], known)?,
            &plugins[..at],
            &plugins[at + 1..],
        ),
        None => (
            with_settings_of(known.former.as_ref(), naming(&known.first)),
            &[][..],
            &[][..],
        ),
    };
    if before.iter().any(attaches_pods) || behind.iter().any(attaches_pods) {
        return Err(Error::config(format!(
            "{}: two plugins of the list attach pods to networks",
            known.first.path
        )));
    }
    for key in ["name", "cniVersion"] {
        own.remove(key);
    }
    own.set("type", BRAID);
    own.set("kubeconfig", known.kubeconfig.as_str());
    let name = text_at(found, "name").unwrap_or(BRAID);
    let only_inlined = is_only_inlined(found, &own, name, known);
    let version = text_at(found, "cniVersion").unwrap_or("1.0.0");
    let mut list = Json::object_of([("cniVersion", version.into()), ("name", name.into())]);
    if let Some(former) = &known.former {
        keep_keys(&mut list, former);
    }
    if at.is_some() && is_list(found) {
        keep_keys(&mut list, found);
    }
    if only_inlined {
        list.set(ONLY_INLINED, true);
    }
    let [former_before, former_behind] = match &known.former {
        Some(former) => entries_of_others(former),
        None => [Vec::new(), Vec::new()],
    };
    let mut entries = joined(former_before, before);
    entries.push(own);
    entries.extend(joined(former_behind, behind));
    list.set("plugins", entries);
    Ok(list)
}

/// Copies all keys of `earlier` to `list`, except the generated keys in [`OF_LIST`].
fn keep_keys(list: &mut Json, earlier: &Json) {
    for (key, value) in earlier.fields() {
        if !OF_LIST.contains(&key.as_str()) {
            list.set(key, value.clone());
        }
    }
}

/// Returns an entry for braid with `network` as the default network.
fn naming(network: &Conf) -> Json {
    let mut own = Json::object_of([
        ("capabilities", Json::object_of([])),
        ("clusterNetwork", network.path.as_str().into()),
    ]);
    add_capabilities(&mut own, &network.json);
    own
}

/// Copies the settings that an operator added to braid's entry in the former list. Used only if
/// braid does not replace Multus; otherwise, settings belong in Multus' file.
fn with_settings_of(former: Option<&Json>, mut own: Json) -> Json {
    let Some(former) = former else {
        return own;
    };
    let Some(entry) = plugins_of(former).iter().find(|plugin| is_braid(plugin)) else {
        return own;
    };
    for (key, value) in entry.fields() {
        if !OF_ENTRY.contains(&key.as_str()) && !ORIGINS.contains(&key.as_str()) {
            own.set(key, value.clone());
        }
    }
    own
}

/// Adds the capabilities of the network's plugins to braid's entry `own`.
fn add_capabilities(own: &mut Json, network: &Json) {
    let mut capabilities = match own.get("capabilities") {
        Some(given @ Json::Object(_)) => Some(given.clone()),
        Some(_) | None => None,
    };
    for plugin in plugins_of(network) {
        let Some(offered) = plugin.get("capabilities") else {
            continue;
        };
        for (key, value) in offered.fields() {
            if *value == Json::Bool(true) {
                let all = capabilities.get_or_insert_with(|| Json::object_of([]));
                all.set(key, true);
            }
        }
    }
    if let Some(capabilities) = capabilities {
        own.set("capabilities", capabilities);
    }
}
/// Returns the entry for braid that replaces `plugin`. The entry has the keys of `plugin`, with
/// paths converted to paths on the node. If braid or Multus itself would be the default network,
/// another default network is chosen.
fn taken_over(plugin: &Json, known: &Known) -> Result<Json, Error> {
    let mut own = plugin.clone();
    let is_client = text_at(plugin, "type") == Some(MULTUS[1]);
    if is_client && let Some(daemon) = &known.daemon {
        for key in OF_DAEMON {
            if plugin.get(key).is_none()
                && let Some(value) = daemon.get(key)
            {
                own.set(key, value.clone());
            }
        }
    }
    for key in PATHS {
        if let Some(text) = text_at(&own, key)
            && let Some(path) = known.paths.get(text)
        {
            own.set(key, path.as_str());
        }
    }
    let first_delegate = match own.get("delegates") {
        Some(Json::Array(delegates)) => delegates.first(),
        Some(_) | None => None,
    };
    let network = match text_at(plugin, "clusterNetwork") {
        None | Some("") => first_delegate,
        Some(name) => known.named.get(name),
    };
    let is_own_path = text_at(&own, "clusterNetwork") == Some(&known.own);
    match network.cloned() {
        Some(network) if plugins_of(&network).iter().any(attaches_pods) => {
            replace(&mut own, &network, known)?;
        }
        None if is_own_path => replace(&mut own, &Json::Null, known)?,
        Some(_) | None => {}
    }
    Ok(own)
}

/// Replaces the default network `circle` in braid's entry `own`, because `circle` attaches pods
/// itself. Uses the next configuration of the folder that is a plain network, or else the inline
/// default network inside `circle`.
fn replace(own: &mut Json, circle: &Json, known: &Known) -> Result<(), Error> {
    let is_network = |conf: &&Conf| !plugins_of(&conf.json).iter().any(is_taken_over);
    let inner = default_network_of(circle);
    let more = match own.get("delegates") {
        Some(Json::Array(delegates)) if own.get("clusterNetwork").is_none() => {
            delegates.get(1..).unwrap_or(&[]).to_vec()
        }
        Some(_) | None => Vec::new(),
    };
    let next = known.others.iter().find(is_network);
    for key in ORIGINS {
        own.remove(key);
    }
    match (next, inner) {
        (Some(next), _) if more.is_empty() => own.set("clusterNetwork", next.path.as_str()),
        (Some(next), _) => own.set("delegates", [vec![next.json.clone()], more].concat()),
        (None, Some((key, value))) if key != "clusterNetwork" && !is_circle(&value) => {
            own.set(key, value);
        }
        (None, _) => {
            let file = &known.first.path;
            let sentence =
                "its default network is braid itself, and the folder has no other configuration";
            return Err(Error::config(format!("{file}: {sentence}")));
        }
    }
    if let Some(next) = next {
        add_capabilities(own, &next.json);
    }
    Ok(())
}

/// Returns the key and value that define the default network in the plugin of `circle` that
/// attaches pods.
fn default_network_of(circle: &Json) -> Option<(&'static str, Json)> {
    let plugin = plugins_of(circle).iter().find(|it| attaches_pods(it))?;
    for key in ORIGINS {
        if let Some(value) = plugin.get(key) {
            return Some((key, value.clone()));
        }
    }
    None
}

/// True if `value` has a network that attaches pods. `value` is an inline network or a list of
/// networks.
fn is_circle(value: &Json) -> bool {
    let all = match value {
        Json::Array(all) => all.as_slice(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
            std::slice::from_ref(value)
        }
    };
    all.iter()
        .any(|network| plugins_of(network).iter().any(attaches_pods))
}

/// True if the generated list must set [`ONLY_INLINED`]. This is so if the configuration `found` is
/// a list that sets it, or is a single plugin. It is also so if `clusterNetwork` is a file with the
/// network name `name`, because the folder's plugins then run with that network.
fn is_only_inlined(found: &Json, own: &Json, name: &str, known: &Known) -> bool {
    let is_forbidden = found.get(ONLY_INLINED) == Some(&Json::Bool(true));
    let file = text_at(own, "clusterNetwork");
    let is_named = |conf: &Conf| Some(conf.path.as_str()) == file;
    let network = if is_named(&known.first) {
        Some(&known.first)
    } else {
        known.others.iter().find(|conf| is_named(conf))
    };
    let has_same_name = network.is_some_and(|conf| text_at(&conf.json, "name") == Some(name));
    is_forbidden || !is_list(found) || has_same_name
}

/// Returns the entries before and after braid's entry, without plugins that attach pods.
fn entries_of_others(list: &Json) -> [Vec<Json>; 2] {
    let plugins = plugins_of(list);
    let Some(at) = plugins.iter().position(is_braid) else {
        return [Vec::new(), Vec::new()];
    };
    let others = |plugins: &[Json]| {
        plugins
            .iter()
            .filter(|plugin| !is_taken_over(plugin))
            .cloned()
            .collect()
    };
    [others(&plugins[..at]), others(&plugins[at + 1..])]
}

/// Merges the entries of the former list with the found entries. A found entry replaces a former
/// entry of the same type. Other found entries are appended.
fn joined(mut former: Vec<Json>, found: &[Json]) -> Vec<Json> {
    let mut unmatched: Vec<usize> = (0..former.len()).collect();
    for plugin in found {
        let same_type = unmatched
            .iter()
            .position(|at| former[*at].get("type") == plugin.get("type"));
        match same_type {
            Some(found_at) => former[unmatched.remove(found_at)] = plugin.clone(),
            None => former.push(plugin.clone()),
        }
    }
    former
}

#[cfg(test)]
mod tests;
