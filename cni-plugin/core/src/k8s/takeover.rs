//! The list that makes a node's runtime attach pods with braid, built from the node's present
//! configuration.
//!
//! ```text
//!  first file of the folder ─┬─ a network ───────► named as the default network
//!                            └─ Multus, braid ───► its keys, its default network, the plugins chained before and after
//!  the former list ──────────► entries that others added, in their place
//! ```

use super::settings::key_of_pods;
use super::text_at;
use crate::cni::{Error, Json};
use std::collections::BTreeMap;

/// braid's own type.
const BRAID: &str = "braid";
/// Types of Multus: the plugin, and the client of its daemon.
pub const MULTUS: [&str; 2] = ["multus", "multus-shim"];
/// Keys that hold a path, or may hold one.
const PATHS: [&str; 5] = [
    "clusterNetwork",
    "confDir",
    "binDir",
    "cniDir",
    "readinessindicatorfile",
];
/// Keys of the default network, in order of precedence.
const ORIGINS: [&str; 4] = ["clusterNetwork", "delegates", "plugins", "network"];
/// Keys of Multus' daemon that its client's configuration may lack.
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
/// Keys of braid's entry that are generated.
const OF_ENTRY: [&str; 5] = ["type", "name", "cniVersion", "kubeconfig", "capabilities"];
/// Keys of a list that are generated.
const OF_LIST: [&str; 4] = ["cniVersion", "name", "plugins", ONLY_INLINED];
/// Key that stops a runtime from appending the plugins of the folder with the list's name (CNI
/// 1.1).
const ONLY_INLINED: &str = "loadOnlyInlinedPlugins";

/// A configuration in the runtime's folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Conf {
    /// Path on the node.
    pub path: String,
    /// Content.
    pub json: Json,
}

/// Inputs of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// Path of the list.
    pub own: String,
    /// Path of the kubeconfig that the list names.
    pub kubeconfig: String,
    /// Configuration that the runtime would use without the list.
    pub first: Conf,
    /// Configurations after it, in the order of their names.
    pub others: Vec<Conf>,
    /// The current list, if any.
    pub former: Option<Json>,
    /// Configuration of Multus' daemon, if any.
    pub daemon: Option<Json>,
    /// Paths on the node, by the paths that [`paths`] returns.
    pub paths: BTreeMap<String, String>,
    /// Content of the node's network for a value of `clusterNetwork`, which is a path or a name, by
    /// that value.
    pub named: BTreeMap<String, Json>,
}

/// Returns the plugins of a configuration or a list.
pub fn plugins_of(found: &Json) -> &[Json] {
    match found.get("plugins") {
        Some(Json::Array(plugins)) if found.get("type").is_none() => plugins,
        Some(_) | None => std::slice::from_ref(found),
    }
}

/// Returns the absolute paths in a configuration and in the daemon's. Paths of Multus' daemon are
/// valid in its container.
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
/// Returns the texts that name the default network in a configuration.
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
/// True if a plugin attaches a pod to all networks of its annotation.
fn attaches_pods(plugin: &Json) -> bool {
    let is_multus = text_at(plugin, "type").is_some_and(|kind| MULTUS.contains(&kind));
    is_multus || key_of_pods(plugin).is_some()
}

fn is_braid(plugin: &Json) -> bool {
    text_at(plugin, "type") == Some(BRAID)
}

/// True if braid takes over the plugin's keys.
fn is_taken_over(plugin: &Json) -> bool {
    attaches_pods(plugin) || is_braid(plugin)
}

/// True if the configuration is a list of plugins, not a single plugin.
fn is_list(found: &Json) -> bool {
    found.get("plugins").is_some() && found.get("type").is_none()
}
/// Returns the list that attaches pods.
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

/// Copies the keys of an earlier list that are not generated.
fn keep_keys(list: &mut Json, earlier: &Json) {
    for (key, value) in earlier.fields() {
        if !OF_LIST.contains(&key.as_str()) {
            list.set(key, value.clone());
        }
    }
}

/// Returns braid's entry with this network as the default one.
fn naming(network: &Conf) -> Json {
    let mut own = Json::object_of([
        ("capabilities", Json::object_of([])),
        ("clusterNetwork", network.path.as_str().into()),
    ]);
    add_capabilities(&mut own, &network.json);
    own
}

/// Adds the keys of braid's entry in the former list, which are settings of an operator. If Multus'
/// keys are taken over, settings belong in Multus' file instead.
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

/// Adds the capabilities of a network's plugins.
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
/// Returns the keys of a plugin that attaches pods, with the node's paths. Replaces a default
/// network that is braid again, or Multus.
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

/// Replaces the default network with the next configuration of the folder that is a network.
/// Without one, uses the inline network of `circle`, which attaches pods itself.
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

/// Returns the key and value of the default network of a plugin in `circle` that attaches pods.
fn default_network_of(circle: &Json) -> Option<(&'static str, Json)> {
    let plugin = plugins_of(circle).iter().find(|it| attaches_pods(it))?;
    for key in ORIGINS {
        if let Some(value) = plugin.get(key) {
            return Some((key, value.clone()));
        }
    }
    None
}

/// True if a network of an inline value attaches pods.
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

/// True if a runtime must not append the plugins of the folder with the list's name. If
/// `clusterNetwork` names a file beside the list with the same network name, the plugins run with
/// that network. A single plugin has no such folder.
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

/// Returns the entries of a list before and after braid's own.
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

/// Merges entries of the former list with the found ones. A found entry replaces a former one of
/// its type, and the other found entries are appended.
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
