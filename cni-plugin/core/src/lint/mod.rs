//! Linter for NetworkAttachmentDefinitions and network annotations.

mod place;

use crate::cni::bounds::shortened;
use crate::cni::{Error, Json, NetConf};
use crate::ipam::configuration::{self, Configuration};
use crate::k8s::annotation::{self, Invalid};
use crate::k8s::nad::{Definition, is_on_disk};
use crate::k8s::request::{BuiltIn, Handling, missing};
use crate::k8s::selection::Selection;
use crate::k8s::{DEFAULT_NETWORK, NETWORKS, Nad, RESOURCE_NAME, names};
use crate::plugins::{self, Addresses};
use place::{Step, line_of, named};
use std::fmt;

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
    "io.kubernetes.cri.pod-annotations",
];
/// Types that do nothing without runtime configuration, each with its capability and the keys that
/// replace it.
const IDLE: [(&str, &str, &[&str]); 2] = [
    ("portmap", "portMappings", &[]),
    ("bandwidth", "bandwidth", &["ingressRate", "egressRate"]),
];

/// Types that braid implements.
const BUILT_IN: BuiltIn<'_> = BuiltIn {
    plugins: plugins::TYPES,
    ipams: configuration::TYPES,
    mac_by: plugins::mac_by,
};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Works, but maybe not as intended.
    Warning,
    /// Pods that use it do not start.
    Error,
}

/// A fault in a definition or annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Line in the annotation or in `spec.config`, from 1.
    pub line: usize,
    /// Key; empty if the finding is about the whole text.
    pub key: String,
    /// Value, shortened.
    pub value: String,
    /// The fault.
    pub what: String,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// Formats a finding without its line, because only the caller knows the file.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.level)?;
        for part in [&self.key, &self.value]
            .into_iter()
            .filter(|part| !part.is_empty())
        {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// A text under examination, and its findings.
struct Judge<'a> {
    text: &'a str,
    json: &'a Json,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    /// Adds a finding about the value at `path`.
    fn note(&mut self, level: Level, path: &[Step], what: impl Into<String>) {
        let value = path.iter().try_fold(self.json, |json, step| match step {
            Step::Key(key) => json.get(key),
            Step::Index(index) => json.list_item(*index),
        });
        let keys = path.iter().rev().find_map(|step| {
            if let Step::Key(key) = step {
                Some(key.clone())
            } else {
                None
            }
        });
        self.findings.push(Finding {
            level,
            line: line_of(self.text, path),
            key: keys.unwrap_or_default(),
            value: value
                .filter(|_| !path.is_empty())
                .map(|value| told(&value.to_string()))
                .unwrap_or_default(),
            what: what.into(),
        });
    }

    /// Adds an error about a value inside the value at `path`.
    fn note_error(&mut self, path: &[Step], value: &Json, error: &Error) {
        let (inner, _) = named(value, &error.msg);
        let path: Vec<Step> = path.iter().cloned().chain(inner).collect();
        self.note(Level::Error, &path, error.to_string());
    }
}

impl Json {
    fn list_item(&self, index: usize) -> Option<&Self> {
        if let Self::Array(items) = self {
            items.get(index)
        } else {
            None
        }
    }
}

fn key(key: &str) -> Step {
    Step::Key(key.to_owned())
}

/// Returns a finding about the whole text. A message of the JSON parser contains the line.
fn of_whole(level: Level, key: &str, what: String) -> Finding {
    let line = what
        .rsplit_once(" at line ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap_or(1);
    Finding {
        level,
        line,
        key: key.to_owned(),
        value: String::new(),
        what,
    }
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
            findings.push(of_whole(Level::Error, CONFIG, error.msg));
            return findings;
        }
    };
    let mut judge = Judge {
        text: &nad.config,
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
            line: 1,
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
        Err(error) => return judge.note_error(&[], json, &error),
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
    let is_list = json.get("plugins").is_some();
    for (at, plugin) in definition.plugins().iter().enumerate() {
        let path = if is_list {
            vec![key("plugins"), Step::Index(at)]
        } else {
            Vec::new()
        };
        of_plugin(judge, &path, &definition, plugin);
    }
}

fn of_plugin(judge: &mut Judge<'_>, path: &[Step], definition: &Definition, plugin: &Json) {
    let path_to = |more: &[&str]| {
        path.iter()
            .cloned()
            .chain(more.iter().map(|word| key(word)))
            .collect::<Vec<_>>()
    };
    let mut complete = plugin.clone();
    complete.set("name", definition.name());
    complete.set("cniVersion", definition.version().as_str());
    let conf = match NetConf::from_json(complete) {
        Ok(conf) => conf,
        Err(error) => return judge.note_error(path, plugin, &error),
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
        Err(error) => return judge.note_error(path, plugin, &error),
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
    for (_, capability, keys) in IDLE.iter().filter(|(name, ..)| *name == kind) {
        let is_on = plugin
            .get("capabilities")
            .is_some_and(|all| all.get(capability) == Some(&Json::Bool(true)));
        if !is_on && !keys.iter().any(|key| plugin.get(key).is_some()) {
            judge.note(
                Level::Warning,
                &path_to(&["type"]),
                format!("it does nothing without the capability {capability:?}"),
            );
        }
    }
}

fn of_capabilities(judge: &mut Judge<'_>, path: &[Step], plugin: &Json) {
    for (name, _) in plugin.get("capabilities").map_or(&[][..], Json::fields) {
        if !CAPABILITIES.contains(&name.as_str()) {
            let path: Vec<Step> = path
                .iter()
                .cloned()
                .chain([key("capabilities"), key(name)])
                .collect();
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

fn of_ipam(judge: &mut Judge<'_>, at: &[Step], path: &[Step], kind: &str, conf: &NetConf) {
    match Configuration::parse(kind, conf, "") {
        Ok(Some(_)) => {}
        Ok(None) if plugins::TYPES.contains(&kind) => {
            judge.note(Level::Error, at, "a network plugin, not an IPAM plugin");
        }
        Ok(None) => judge.note(
            Level::Warning,
            at,
            "not a built-in type: each node needs a program with this name",
        ),
        Err(error) => judge.note_error(path, &conf.json, &error),
    }
}

/// Returns the faults of the annotation [`NETWORKS`] of a pod in this namespace.
pub fn networks(text: &str, namespace: &str) -> Vec<Finding> {
    judged(NETWORKS, text, annotation::networks(text, namespace))
}

/// Returns the faults of the annotation [`DEFAULT_NETWORK`]; `namespace` is the default namespace.
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
        text,
        json: &json,
        findings: Vec::new(),
    };
    match selections {
        Err(invalid) => judge.findings.push(of_invalid(text, invalid)),
        Ok(selections) => selections
            .iter()
            .for_each(|selection| of_selection(&mut judge, selection)),
    }
    judge.findings
}

fn of_invalid(text: &str, invalid: Invalid) -> Finding {
    let Invalid {
        item,
        key,
        value,
        why,
        ..
    } = invalid;
    let Finding { line, .. } = of_whole(Level::Error, "", why.clone());
    let line = if item > 0 {
        line_of_item(text, item, &key)
    } else {
        line
    };
    Finding {
        level: Level::Error,
        line,
        key,
        value,
        what: why,
    }
}

/// Returns the line of an item's key in either format.
fn line_of_item(text: &str, item: usize, name: &str) -> usize {
    let index = item.saturating_sub(1);
    if text.trim_start().starts_with('[') {
        let item = [Step::Index(index)];
        let line = line_of(text, &[&item[..], &[key(name)]].concat());
        // A missing key has the line of its item.
        return line.max(line_of(text, &item));
    }
    let before: usize = text.split(',').take(index).map(|part| part.len() + 1).sum();
    let blanks = text
        .get(before..)
        .map_or(0, |rest| rest.len() - rest.trim_start().len());
    1 + text
        .bytes()
        .take(before + blanks)
        .filter(|byte| *byte == b'\n')
        .count()
}

fn of_selection(judge: &mut Judge<'_>, selection: &Selection) {
    let path_to = |name: &str| vec![Step::Index(selection.item.saturating_sub(1)), key(name)];
    for name in &selection.unknown {
        judge.note(
            Level::Warning,
            &path_to(name),
            "unknown key; custom keys contain a dot, as in example.com/key",
        );
    }
    let item = judge
        .json
        .list_item(selection.item.saturating_sub(1))
        .unwrap_or(&Json::Null);
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

/// Returns a finding about an item of the annotation `text`.
pub fn of_item(text: &str, selection: &Selection, level: Level, what: String) -> Finding {
    Finding {
        line: line_of_item(text, selection.item, ""),
        ..of_whole(level, "", what)
    }
}

/// Returns the keys of a selection that its network can't serve; `text` is the annotation.
pub fn capabilities(text: &str, selection: &Selection, definition: &Definition) -> Vec<Finding> {
    let json = Json::parse(text.as_bytes(), NETWORKS).unwrap_or(Json::Null);
    let mut judge = Judge {
        text,
        json: &json,
        findings: Vec::new(),
    };
    for one in missing(selection, definition, BUILT_IN) {
        let path = [Step::Index(selection.item.saturating_sub(1)), key(one.key)];
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

/// Shortens a value; empty for objects, which may contain secrets.
fn told(value: &str) -> String {
    if value.starts_with('{') || value.starts_with("[{") {
        String::new()
    } else {
        shortened(value)
    }
}

#[cfg(test)]
mod tests;
