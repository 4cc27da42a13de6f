//! A network's list of plugins, and the configuration that each of them is called with.

use super::netconf::{VALID_ATTACHMENTS, check_plugin_type, network_name};
use super::version::parse_numbers;
use super::{AddResult, Error, Json, NetConf, Version};

/// A network's list of plugins.
#[derive(Debug, Clone)]
pub struct NetConfList {
    /// The network's name.
    pub name: String,
    /// The version all plugins are called with.
    pub version: Version,
    /// `disableCheck`: CHECK is answered without calling a plugin.
    pub disable_check: bool,
    /// `disableGC`: GC is answered without calling a plugin.
    pub disable_gc: bool,
    /// The plugins' own objects, in order, not yet completed with name, version and runtimeConfig.
    pub plugins: Vec<Json>,
}

/// What a runtime adds to a plugin's configuration for one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Injected<'a> {
    /// All that the runtime offers; a plugin gets the keys that its `capabilities` ask for.
    pub runtime_config: Option<&'a Json>,
    /// The result so far (ADD) or the final one (CHECK, DEL).
    pub prev_result: Option<&'a AddResult>,
    /// For GC: the attachments to keep, as (container id, ifname).
    pub valid_attachments: Option<&'a [(String, String)]>,
}

impl NetConfList {
    /// Parses a conflist: code 6 for a wrong type, 7 for a wrong name, a wrong type or no plugin, 1 for a version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_json(&Json::parse(bytes, "network config list")?)
    }

    /// [`Self::parse`] for a conflist that is parsed already.
    pub fn from_json(json: &Json) -> Result<Self, Error> {
        Self::read(json, network_name(json)?, list_version(json)?)
    }

    /// The list inside a `braid` plugin's configuration: its `plugins`, or its `network`, which is a conflist or a single
    /// plugin. `None` where it has neither. Name and version default to those of `conf`.
    pub fn from_braid(conf: &NetConf) -> Result<Option<Self>, Error> {
        let json = &conf.json;
        let list = match (json.get("plugins"), json.object("network")?) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(Error::config("\"plugins\" and \"network\" exclude each other")),
            (Some(_), None) => Self::read(json, conf.name.clone(), conf.version),
            (None, Some(network)) => Self::from_network(network, conf).map_err(|e| e.context("network")),
        }?;
        match list.plugins.iter().position(|plugin| plugin.get("type").and_then(Json::as_str) == Some("braid")) {
            Some(index) => Err(Error::config(format!("plugins[{index}]: \"braid\" can't be part of its own list"))),
            None => Ok(Some(list)),
        }
    }

    fn from_network(network: &Json, conf: &NetConf) -> Result<Self, Error> {
        let name = if network.has("name") { network_name(network)? } else { conf.name.clone() };
        let versioned = network.has("cniVersion") || network.has("cniVersions");
        let version = if versioned { list_version(network)? } else { conf.version };
        if network.has("plugins") {
            return Self::read(network, name, version);
        }
        let plugins = vec![plugin(network)?];
        Ok(Self { name, version, disable_check: false, disable_gc: false, plugins })
    }

    fn read(json: &Json, name: String, version: Version) -> Result<Self, Error> {
        let plugins = json.each("plugins", plugin)?;
        if plugins.is_empty() {
            return Err(Error::config(format!("network {name:?}: no plugins in the list")));
        }
        let (disable_check, disable_gc) = (flag(json, "disableCheck")?, flag(json, "disableGC")?);
        Ok(Self { name, version, disable_check, disable_gc, plugins })
    }

    /// The configuration to call plugin `index` with: its own object with the network's name and version, and `injected`.
    ///
    /// What only a runtime may say is never taken from the list: a `prevResult` or a list of valid attachments in it goes.
    pub fn plugin_conf(&self, index: usize, injected: &Injected<'_>) -> Result<NetConf, Error> {
        let (name, count) = (&self.name, self.plugins.len());
        let own = self
            .plugins
            .get(index)
            .ok_or_else(|| Error::internal(format!("network {name:?}: no plugin {index} in a list of {count}")))?;
        let mut json = own.clone();
        json.set("name", name.as_str());
        json.set("cniVersion", self.version.as_str());
        for key in VALID_ATTACHMENTS {
            json.remove(key);
            if let Some(valid) = injected.valid_attachments {
                json.set(key, valid.iter().map(attachment_json).collect::<Vec<_>>());
            }
        }
        json.remove("prevResult");
        if let Some(prev) = injected.prev_result {
            json.set("prevResult", prev.to_json(self.version)?);
        }
        if let Some(wanted) = wanted_runtime_config(own, injected.runtime_config)? {
            json.set("runtimeConfig", wanted);
        }
        NetConf::from_json(json).map_err(|e| e.context(format_args!("network {name:?}: plugins[{index}]")))
    }
}

/// One item of `plugins`: an object with a valid `type`.
fn plugin(json: &Json) -> Result<Json, Error> {
    if !matches!(json, Json::Object(_)) {
        return Err(json.mismatch("an object"));
    }
    check_plugin_type(json.str_or("type", "")?)?;
    Ok(json.clone())
}

fn attachment_json((container_id, ifname): &(String, String)) -> Json {
    Json::object_of([("containerID", container_id.as_str().into()), ("ifname", ifname.as_str().into())])
}

/// The keys of `offered` that the plugin's `capabilities` ask for; `None` where there are none, as in libcni.
fn wanted_runtime_config(plugin: &Json, offered: Option<&Json>) -> Result<Option<Json>, Error> {
    let capabilities = plugin.bool_map("capabilities")?;
    let asked = |key: &str| capabilities.iter().rev().find(|(name, _)| name == key).is_some_and(|(_, on)| *on);
    let wanted: Vec<_> = offered.map_or(&[][..], Json::fields).iter().filter(|(key, _)| asked(key)).cloned().collect();
    Ok(Some(wanted).filter(|wanted| !wanted.is_empty()).map(Json::Object))
}

/// The greatest of `cniVersions` and `cniVersion`, those above 1.1.0 left out; `cniVersion` as it is without the former.
fn list_version(json: &Json) -> Result<Version, Error> {
    let own = json.str_or("cniVersion", "")?;
    let mut known = Vec::new();
    let offered = json.strings("cniVersions")?;
    let all = offered.iter().map(String::as_str).chain(Some(own).filter(|own| !own.is_empty() && !offered.is_empty()));
    for text in all {
        let numbers = parse_numbers(text).map_err(|e| e.context("cniVersions"))?;
        if numbers <= Version::NEWEST.numbers() {
            known.push((numbers, text));
        }
    }
    let chosen = known.into_iter().max_by_key(|(numbers, _)| *numbers).map_or(own, |(_, text)| text);
    Version::among(chosen, &Version::ALL)
}

/// A boolean that may also be written as a string, in any case.
fn flag(json: &Json, key: &str) -> Result<bool, Error> {
    match json.get(key) {
        None => Ok(false),
        Some(Json::Bool(on)) => Ok(*on),
        Some(Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(other.mismatch("true or false").context(format_args!("{key:?}"))),
    }
}
