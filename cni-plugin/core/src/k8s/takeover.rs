//! The list that makes a node's runtime attach pods with braid, built from the node's present
//! configuration.
//!
//! ```text
//!  first file of the folder ─┬─ a network ───────► named as the default network
//!                            └─ Multus, braid ───► its keys, its default network, the plugins chained before and after
//!  the former list ──────────► entries that others added, in their place
//! ```

use super::settings::key_of_pods;
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
    let all = plugins_of(first).iter().chain(daemon);
    let values = all.flat_map(|plugin| PATHS.iter().filter_map(|key| plugin.get(key)?.as_str()));
    values.filter(|text| text.starts_with('/')).collect()
}

/// Returns the texts that name the default network in a configuration.
pub fn names(first: &Json) -> Vec<&str> {
    let values = plugins_of(first)
        .iter()
        .filter_map(|plugin| plugin.get("clusterNetwork")?.as_str());
    values.filter(|text| !text.is_empty()).collect()
}

/// True if a plugin attaches a pod to all networks of its annotation.
fn attaches_pods(plugin: &Json) -> bool {
    plugin
        .get("type")
        .and_then(Json::as_str)
        .is_some_and(|kind| MULTUS.contains(&kind))
        || key_of_pods(plugin).is_some()
}

/// True if braid takes over the plugin's keys.
fn is_taken_over(plugin: &Json) -> bool {
    attaches_pods(plugin) || plugin.get("type").and_then(Json::as_str) == Some(BRAID)
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
    if before.iter().chain(behind).any(attaches_pods) {
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
    let text = |key: &str| found.get(key).and_then(Json::as_str);
    let name = text("name").unwrap_or(BRAID);
    let only_inlined = is_only_inlined(found, &own, name, known);
    let [former_before, former_behind] = known
        .former
        .as_ref()
        .map(entries_of_others)
        .unwrap_or_default();
    let mut all = joined(former_before, before);
    all.push(own);
    all.extend(joined(former_behind, behind));
    let mut list = Json::object_of([
        ("cniVersion", text("cniVersion").unwrap_or("1.0.0").into()),
        ("name", name.into()),
    ]);
    let is_list = at.is_some() && found.get("plugins").is_some() && found.get("type").is_none();
    let kept = [known.former.as_ref(), is_list.then_some(found)]
        .into_iter()
        .flatten()
        .flat_map(Json::fields);
    for (key, value) in kept.filter(|(key, _)| !OF_LIST.contains(&key.as_str())) {
        list.set(key, value.clone());
    }
    if only_inlined {
        list.set(ONLY_INLINED, true);
    }
    list.set("plugins", all);
    Ok(list)
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
    let is_own = |plugin: &&Json| plugin.get("type").and_then(Json::as_str) == Some(BRAID);
    let entry = former.and_then(|list| plugins_of(list).iter().find(is_own));
    for (key, value) in entry.into_iter().flat_map(Json::fields) {
        if !OF_ENTRY.contains(&key.as_str()) && !ORIGINS.contains(&key.as_str()) {
            own.set(key, value.clone());
        }
    }
    own
}

/// Adds the capabilities of a network's plugins.
fn add_capabilities(own: &mut Json, network: &Json) {
    let mut all = own
        .get("capabilities")
        .filter(|all| matches!(all, Json::Object(_)))
        .cloned();
    let of_plugins = plugins_of(network)
        .iter()
        .filter_map(|plugin| plugin.get("capabilities"));
    for (key, _) in of_plugins
        .flat_map(Json::fields)
        .filter(|(_, value)| *value == Json::Bool(true))
    {
        all.get_or_insert_with(|| Json::object_of([]))
            .set(key, true);
    }
    if let Some(all) = all {
        own.set("capabilities", all);
    }
}

/// Returns the keys of a plugin that attaches pods, with the node's paths. Replaces a default
/// network that is braid again, or Multus.
fn taken_over(plugin: &Json, known: &Known) -> Result<Json, Error> {
    let mut own = plugin.clone();
    let is_client = plugin.get("type").and_then(Json::as_str) == Some(MULTUS[1]);
    for key in OF_DAEMON.into_iter().filter(|_| is_client) {
        if let (None, Some(value)) = (
            plugin.get(key),
            known.daemon.as_ref().and_then(|daemon| daemon.get(key)),
        ) {
            own.set(key, value.clone());
        }
    }
    let default = own
        .get("clusterNetwork")
        .and_then(Json::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned);
    for key in PATHS {
        let path = own
            .get(key)
            .and_then(Json::as_str)
            .and_then(|text| known.paths.get(text))
            .cloned();
        if let Some(path) = path {
            own.set(key, path);
        }
    }
    let first_delegate = match own.get("delegates") {
        Some(Json::Array(delegates)) => delegates.first(),
        Some(_) | None => None,
    };
    let network = default
        .as_ref()
        .map_or(first_delegate, |name| known.named.get(name));
    let is_own_path = own.get("clusterNetwork").and_then(Json::as_str) == Some(&known.own);
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
    let inner = plugins_of(circle)
        .iter()
        .find(|plugin| attaches_pods(plugin));
    let inner = inner.and_then(|inner| {
        ORIGINS
            .iter()
            .find_map(|key| Some((*key, inner.get(key)?.clone())))
    });
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

/// True if a network of an inline value attaches pods.
fn is_circle(value: &Json) -> bool {
    let all = match value {
        Json::Array(all) => all.as_slice(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Object(_) => {
            std::slice::from_ref(value)
        }
    };
    all.iter().flat_map(plugins_of).any(attaches_pods)
}

/// True if a runtime must not append the plugins of the folder with the list's name. If
/// `clusterNetwork` names a file beside the list with the same network name, the plugins run with
/// that network. A single plugin has no such folder.
fn is_only_inlined(found: &Json, own: &Json, name: &str, known: &Known) -> bool {
    let is_list = found.get("plugins").is_some() && found.get("type").is_none();
    let is_forbidden = found.get(ONLY_INLINED) == Some(&Json::Bool(true));
    let file = own.get("clusterNetwork").and_then(Json::as_str);
    let network = [&known.first]
        .into_iter()
        .chain(&known.others)
        .find(|conf| Some(conf.path.as_str()) == file);
    let has_same_name =
        network.is_some_and(|conf| conf.json.get("name").and_then(Json::as_str) == Some(name));
    is_forbidden || !is_list || has_same_name
}

/// Returns the entries of a list before and after braid's own.
fn entries_of_others(list: &Json) -> [Vec<Json>; 2] {
    let plugins = plugins_of(list);
    let is_own = |plugin: &Json| plugin.get("type").and_then(Json::as_str) == Some(BRAID);
    let Some(at) = plugins.iter().position(is_own) else {
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
