//! Linter for NetworkAttachmentDefinitions and network annotations.

pub mod device_claims;
mod finding;
mod judge;
mod repeated;

pub use finding::{Finding, Level};
pub use repeated::range_on_every_node;

use crate::cni::bounds::shortened;
use crate::cni::{FaultPlace, Json, NetConf, PathPart};
use crate::ipam::configuration::{self, Configuration};
use crate::k8s::annotation::{self, Invalid};
use crate::k8s::nad::{Definition, is_on_disk};
use crate::k8s::request::{BuiltIn, Handling, missing};
use crate::k8s::runtime_annotations::POD_ANNOTATIONS;
use crate::k8s::selection::Selection;
use crate::k8s::{DEFAULT_NETWORK, NETWORKS, Nad, RESOURCE_NAME, names, text_at};
use crate::plugins::{self, Addresses};
use judge::{Judge, inside, key};

/// Capabilities that runtimes and annotations provide.
const CAPABILITIES: [&str; 11] = [
    "portMappings",
    "bandwidth",
    "ips",
    "mac",
    "infinibandGUID",
    "CNIDeviceInfoFile",
    "ipRanges",
    "dns",
    "aliases",
    "deviceID",
    POD_ANNOTATIONS,
];
/// Plugin types that do nothing without runtime configuration. Each entry has the plugin type, the
/// capability that passes the runtime configuration, and the keys that can be set instead.
const IDLE: [(&str, &str, &[&str]); 2] = [
    ("portmap", "portMappings", &[]),
    ("bandwidth", "bandwidth", &["ingressRate", "egressRate"]),
];

/// Plugin and IPAM types that braid implements.
const BUILT_IN: BuiltIn<'_> = BuiltIn {
    plugins: plugins::TYPES,
    ipams: configuration::TYPES,
    mac_by: plugins::mac_by,
};

/// Returns a finding about the whole text.
fn of_whole(level: Level, key: &str, what: String) -> Finding {
    Finding {
        level,
        place: FaultPlace::Path(Vec::new()),
        key: key.to_owned(),
        value: String::new(),
        what,
    }
}

/// Removes the position from the end of a parser's message. The parser counts lines within the
/// text, but the caller prints the line in the file.
fn without_position(msg: &str, place: &FaultPlace) -> String {
    let FaultPlace::Position { line, column } = place else {
        return msg.to_owned();
    };
    let position = format!(" at line {line} column {column}");
    msg.strip_suffix(&position).unwrap_or(msg).to_owned()
}

/// Returns the faults of a NetworkAttachmentDefinition.
pub fn nad(nad: &Nad) -> Vec<Finding> {
    const CONFIG: &str = "spec.config";
    let mut findings = of_metadata(nad);
    if is_on_disk(nad) {
        let what = format!(
            "no configuration: each node needs a file with network {:?}",
            shortened(&nad.name.name)
        );
        findings.push(of_whole(Level::Warning, CONFIG, what));
        return findings;
    }
    let json = match Json::parse(nad.config.as_bytes(), CONFIG) {
        Ok(json) => json,
        Err(error) => {
            let place = error.place();
            let what = without_position(&error.msg, &place);
            findings.push(Finding {
                place,
                ..of_whole(Level::Error, CONFIG, what)
            });
            return findings;
        }
    };
    let mut judge = Judge {
        json: &json,
        findings,
    };
    of_config(&mut judge, &nad.name.name);
    judge.findings
}

fn of_metadata(nad: &Nad) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |level, key: &str, value: &str, what: &str| {
        let value = format!("{:?}", shortened(value));
        findings.push(Finding {
            level,
            place: FaultPlace::Path(Vec::new()),
            key: key.to_owned(),
            value,
            what: what.to_owned(),
        });
    };
    let name = nad.name.name.as_str();
    if !names::is_object(name) {
        note(
            Level::Error,
            "metadata.name",
            name,
            "not the name of an object: lower case letters, digits, - and .",
        );
    }
    if let Some(resource) = nad.annotations.get(RESOURCE_NAME)
        && !resource
            .split_once('/')
            .is_some_and(|(domain, name)| !domain.is_empty() && !name.is_empty())
    {
        note(
            Level::Warning,
            RESOURCE_NAME,
            resource,
            "not the name of a resource, as in example.com/device",
        );
    }
    findings
}

fn of_config(judge: &mut Judge<'_>, name: &str) {
    let json = judge.json;
    let definition = match Definition::parse(json.clone(), name) {
        Ok(definition) => definition,
        Err(error) => return judge.note_error(&[], &error),
    };
    if definition.name() != name {
        judge.note(
            Level::Warning,
            &[key("name")],
            format!("the object is named {name:?}; use one name for both"),
        );
    }
    if ["cniVersion", "cniVersions"]
        .iter()
        .all(|key| json.get(key).is_none())
    {
        judge.note(
            Level::Warning,
            &[],
            "no cniVersion, which means 0.1.0: plugins are not called for CHECK",
        );
    }
    for (index, plugin) in definition.plugins().iter().enumerate() {
        of_plugin(judge, &path_of(json, index), &definition, plugin);
    }
}

/// Returns the path of plugin `index` in a configuration. A `braid` plugin may have its list in
/// `network`.
fn path_of(json: &Json, index: usize) -> Vec<PathPart> {
    const PLUGINS: &str = "plugins";
    if json.get(PLUGINS).is_some() {
        return vec![key(PLUGINS), PathPart::Index(index)];
    }
    match json.get("network").filter(|_| is_braid(json)) {
        Some(network) if network.get(PLUGINS).is_some() => {
            vec![key("network"), key(PLUGINS), PathPart::Index(index)]
        }
        Some(_) => vec![key("network")],
        None => Vec::new(),
    }
}

fn is_braid(json: &Json) -> bool {
    text_at(json, "type") == Some("braid")
}

fn of_plugin(judge: &mut Judge<'_>, path: &[PathPart], definition: &Definition, plugin: &Json) {
    let path_to = |more: &[&str]| {
        let mut path = path.to_vec();
        for word in more {
            path.push(key(word));
        }
        path
    };
    let mut complete = plugin.clone();
    complete.set("name", definition.name());
    complete.set("cniVersion", definition.version().as_str());
    let conf = match NetConf::from_json(complete) {
        Ok(conf) => conf,
        Err(error) => return judge.note_error(path, &error),
    };
    of_capabilities(judge, path, plugin);
    let kind = conf.plugin.as_str();
    if configuration::TYPES.contains(&kind) {
        return judge.note(
            Level::Error,
            &path_to(&["type"]),
            "an IPAM plugin, not a network plugin",
        );
    }
    match plugins::parse(&conf, "") {
        Err(error) => return judge.note_error(path, &error),
        Ok(None) => {
            judge.note(
                Level::Warning,
                &path_to(&["type"]),
                "not a built-in type: each node needs a program with this name",
            );
        }
        Ok(Some(known)) => match (known.addresses(), conf.ipam.as_str()) {
            (Addresses::Never, _) | (Addresses::Optional, "") => {}
            (Addresses::Required, "") => judge.note(
                Level::Error,
                &path_to(&["type"]),
                "it requires an \"ipam\" with a type",
            ),
            (Addresses::Optional | Addresses::Required, ipam) => {
                of_ipam(judge, &path_to(&["ipam", "type"]), path, ipam, &conf);
            }
        },
    }
    of_idle(judge, path, kind, plugin);
}

/// Adds a warning for a plugin that does nothing, because the network does not enable its
/// capability.
fn of_idle(judge: &mut Judge<'_>, path: &[PathPart], kind: &str, plugin: &Json) {
    let mut type_path = path.to_vec();
    type_path.push(key("type"));
    for (name, capability, keys) in &IDLE {
        if *name != kind {
            continue;
        }
        let is_on = plugin
            .get("capabilities")
            .is_some_and(|all| all.get(capability) == Some(&Json::Bool(true)));
        if !is_on && !keys.iter().any(|key| plugin.get(key).is_some()) {
            judge.note(
                Level::Warning,
                &type_path,
                format!("it does nothing without the capability {capability:?}"),
            );
        }
    }
}

fn of_capabilities(judge: &mut Judge<'_>, path: &[PathPart], plugin: &Json) {
    for (name, _) in plugin.get("capabilities").map_or(&[][..], Json::fields) {
        if !CAPABILITIES.contains(&name.as_str()) {
            let mut path = path.to_vec();
            path.extend([key("capabilities"), key(name)]);
            let meant = CAPABILITIES
                .iter()
                .find(|known| known.eq_ignore_ascii_case(name));
            let hint = meant.map_or(String::new(), |known| format!("; did you mean {known:?}?"));
            judge.note(
                Level::Warning,
                &path,
                format!("no runtime provides this capability{hint}"),
            );
        }
    }
}

fn of_ipam(judge: &mut Judge<'_>, at: &[PathPart], path: &[PathPart], kind: &str, conf: &NetConf) {
    match Configuration::parse(kind, conf, "") {
        Ok(Some(ipam)) => {
            if let Some(fault) = repeated::fault(&conf.plugin, &conf.json, &ipam) {
                judge.note(Level::Warning, at, fault);
            }
        }
        Ok(None) if plugins::TYPES.contains(&kind) => {
            judge.note(Level::Error, at, "a network plugin, not an IPAM plugin");
        }
        Ok(None) => judge.note(
            Level::Warning,
            at,
            "not a built-in type: each node needs a program with this name",
        ),
        Err(error) => judge.note_error(path, &error),
    }
}

/// Returns the faults of a pod's annotation [`NETWORKS`]; `namespace` is the pod's namespace.
pub fn networks(text: &str, namespace: &str) -> Vec<Finding> {
    judged(NETWORKS, text, annotation::networks(text, namespace))
}

/// Returns the faults of the annotation [`DEFAULT_NETWORK`]. A network without a namespace is in
/// `namespace`.
pub fn default_network(text: &str, namespace: &str) -> Vec<Finding> {
    judged(
        DEFAULT_NETWORK,
        text,
        annotation::default_network(text, namespace).map(Vec::from_iter),
    )
}

fn judged(name: &str, text: &str, selections: Result<Vec<Selection>, Invalid>) -> Vec<Finding> {
    let json = Json::parse(text.as_bytes(), name).unwrap_or(Json::Null);
    let mut judge = Judge {
        json: &json,
        findings: Vec::new(),
    };
    match selections {
        Err(invalid) => judge.findings.push(of_invalid(invalid)),
        Ok(selections) => selections
            .iter()
            .for_each(|selection| of_selection(&mut judge, selection)),
    }
    judge.findings
}

fn of_invalid(invalid: Invalid) -> Finding {
    let Invalid {
        key,
        value,
        why,
        place,
        ..
    } = invalid;
    Finding {
        level: Level::Error,
        what: without_position(&why, &place),
        place,
        key,
        value,
    }
}

fn of_selection(judge: &mut Judge<'_>, selection: &Selection) {
    let index = PathPart::Index(selection.item.saturating_sub(1));
    let path_to = |name: &str| vec![index.clone(), key(name)];
    for name in &selection.unknown {
        judge.note(
            Level::Warning,
            &path_to(name),
            "unknown key; custom keys contain a dot, as in example.com/key",
        );
    }
    let item = inside(judge.json, &index).unwrap_or(&Json::Null);
    if item.get("interfaceRequest").is_some() {
        judge.note(
            Level::Warning,
            &path_to("interfaceRequest"),
            "deprecated name of \"interface\"",
        );
    }
    if selection.mac.is_some_and(|mac| mac.0[0] & 1 == 1) {
        judge.note(
            Level::Error,
            &path_to("mac"),
            "a multicast address, which no interface can have",
        );
    }
    if selection.ipam_claim.is_some() && !selection.ips.is_empty() {
        judge.note(
            Level::Error,
            &path_to("ips"),
            "\"ips\" and \"ipam-claim-reference\" can't both be set",
        );
    }
}

/// Returns a finding about an item of an annotation.
pub fn of_item(selection: &Selection, level: Level, what: String) -> Finding {
    Finding {
        place: annotation::place_of(selection.item, ""),
        ..of_whole(level, "", what)
    }
}

/// Returns a finding for each key of `selection` that its network can't serve; `text` is the
/// annotation.
pub fn capabilities(text: &str, selection: &Selection, definition: &Definition) -> Vec<Finding> {
    let json = Json::parse(text.as_bytes(), NETWORKS).unwrap_or(Json::Null);
    let mut judge = Judge {
        json: &json,
        findings: Vec::new(),
    };
    for one in missing(selection, definition, BUILT_IN) {
        let path = [
            PathPart::Index(selection.item.saturating_sub(1)),
            key(one.key),
        ];
        let lacks = format!(
            "no plugin of network {} has the capability {:?}",
            selection.object, one.capability
        );
        let (level, how) = match one.handling {
            Handling::Refuse => (Level::Error, ""),
            Handling::Grant(_) | Handling::Append(_) => (
                Level::Warning,
                "; braid supports it anyway, other implementations may not",
            ),
            Handling::Args => (
                Level::Warning,
                "; it is passed in CNI_ARGS, which not every plugin reads",
            ),
        };
        judge.note(level, &path, format!("{lacks}{how}"));
    }
    judge.findings
}

#[cfg(test)]
mod tests;
