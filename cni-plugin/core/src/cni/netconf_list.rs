//! Network configuration list (conflist), and the configuration for each call of a plugin in it.

use super::netconf::{VALID_ATTACHMENTS, check_plugin_type, network_name};
use super::version::parse_numbers;
use super::{AddResult, Error, Json, NetConf, Owner, Version};

/// A network configuration list (conflist): the plugins of a network, in order.
#[derive(Debug, Clone)]
pub struct NetConfList {
    /// Network name.
    pub name: String,
    /// Version that all plugins are called with.
    pub version: Version,
    /// `disableCheck`: CHECK succeeds without calling a plugin.
    pub disable_check: bool,
    /// `disableGC`: GC succeeds without calling a plugin.
    pub disable_gc: bool,
    /// Configurations of the plugins in order, as written in the list. Name, version and
    /// `runtimeConfig` are added for each call.
    pub plugins: Vec<Json>,
}

/// Keys that a runtime adds to a plugin's configuration for one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Injected<'a> {
    /// `runtimeConfig` that the runtime offers. A plugin gets the keys that its `capabilities`
    /// enable.
    pub runtime_config: Option<&'a Json>,
    /// `prevResult`: for ADD the result of the preceding plugin, for CHECK and DEL the final
    /// result.
    pub prev_result: Option<&'a AddResult>,
    /// Attachments of the network that GC must keep.
    pub valid_attachments: Option<&'a [Owner]>,
}

impl NetConfList {
    /// Parses a conflist. Errors: code 6 for a wrong type, 7 for an invalid name, an invalid plugin
    /// type or no plugin, 1 for an unsupported version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_json(&Json::parse(bytes, "network config list")?)
    }

    /// Parses like [`Self::parse`], from a JSON value.
    pub fn from_json(json: &Json) -> Result<Self, Error> {
        Self::read(json, network_name(json)?, list_version(json)?)
    }

    /// Returns the list inside the configuration of a `braid` plugin. The key `plugins` has the
    /// list, or the key `network` has a conflist or a single plugin. `None` if both keys are
    /// absent. Name and version default to those in `conf`.
    ///
    /// Appends a plugin of type `bandwidth` if `conf` has the key `bandwidth`. The list must then
    /// have no plugin of this type. Also appends it if only `runtimeConfig` has the key and no
    /// plugin in the list has this type or capability.
    pub fn from_braid(conf: &NetConf) -> Result<Option<Self>, Error> {
        let json = &conf.json;
        let list = match (json.get("plugins"), json.object("network")?) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(Error::config(
                    "\"plugins\" and \"network\" can't both be set",
                ));
            }
            (Some(_), None) => Self::read(json, conf.name.clone(), conf.version),
            (None, Some(network)) => Self::from_network(network, conf)
                .map_err(|e| e.context("network").at_key("network")),
        }?;
        match list.position("braid") {
            Some(index) => Err(Error::config(format!(
                "plugins[{index}]: \"braid\" can't be part of its own list"
            ))
            .at_index(index)
            .at_key("plugins")),
            None => Ok(Some(list.with_bandwidth(json)?)),
        }
    }

    /// Returns the index of the first plugin of this type.
    fn position(&self, plugin: &str) -> Option<usize> {
        self.plugins.iter().position(
            |object| matches!(object.get("type"), Some(Json::String(kind)) if kind == plugin),
        )
    }

    /// True if any plugin in the list enables this capability.
    pub fn has_capability(&self, capability: &str) -> Result<bool, Error> {
        let mut has = false;
        for (index, plugin) in self.plugins.iter().enumerate() {
            let capabilities = plugin.bool_map("capabilities").map_err(|e| {
                e.context(format_args!("plugins[{index}]"))
                    .at_index(index)
                    .at_key("plugins")
            })?;
            has |= is_on(&capabilities, capability);
        }
        Ok(has)
    }

    fn with_bandwidth(mut self, braid: &Json) -> Result<Self, Error> {
        const BANDWIDTH: &str = "bandwidth";
        let own = braid.object(BANDWIDTH)?;
        let runtime = braid.object_in("runtimeConfig", BANDWIDTH)?;
        if let Some(index) = self.position(BANDWIDTH) {
            let sentence =
                || format!("\"{BANDWIDTH}\" and plugins[{index}] of that type can't both be set");
            return if own.is_some() {
                Err(Error::config(sentence()).at_key(BANDWIDTH))
            } else {
                Ok(self)
            };
        }
        if own.is_some() || runtime.is_some() && !self.has_capability(BANDWIDTH)? {
            let mut plugin = own.cloned().unwrap_or_else(|| Json::object_of([]));
            plugin.set("type", BANDWIDTH);
            plugin.set("capabilities", Json::object_of([(BANDWIDTH, true.into())]));
            self.plugins.push(plugin);
        }
        Ok(self)
    }

    fn from_network(network: &Json, conf: &NetConf) -> Result<Self, Error> {
        let name = if network.has("name") {
            network_name(network)?
        } else {
            conf.name.clone()
        };
        let versioned = network.has("cniVersion") || network.has("cniVersions");
        let version = if versioned {
            list_version(network)?
        } else {
            conf.version
        };
        if network.has("plugins") {
            return Self::read(network, name, version);
        }
        let plugins = vec![plugin(network)?];
        Ok(Self {
            name,
            version,
            disable_check: false,
            disable_gc: false,
            plugins,
        })
    }

    fn read(json: &Json, name: String, version: Version) -> Result<Self, Error> {
        let plugins = json.each("plugins", plugin)?;
        if plugins.is_empty() {
            return Err(
                Error::config(format!("network {name:?}: no plugins in the list"))
                    .at_key("plugins"),
            );
        }
        let (disable_check, disable_gc) = (flag(json, "disableCheck")?, flag(json, "disableGC")?);
        Ok(Self {
            name,
            version,
            disable_check,
            disable_gc,
            plugins,
        })
    }

    /// Returns the configuration for a call of plugin `index`: its entry in the list, the network's
    /// name and version, and `injected`.
    ///
    /// A `prevResult` or valid attachments in the list's entry are removed, because only a runtime
    /// may set them.
    pub fn plugin_conf(&self, index: usize, injected: &Injected<'_>) -> Result<NetConf, Error> {
        let (name, count) = (&self.name, self.plugins.len());
        let own = self.plugins.get(index).ok_or_else(|| {
            Error::internal(format!(
                "network {name:?}: no plugin {index} in a list of {count}"
            ))
        })?;
        let mut json = own.clone();
        json.set("name", name.as_str());
        json.set("cniVersion", self.version.as_str());
        set_valid_attachments(&mut json, injected.valid_attachments);
        json.remove("prevResult");
        if let Some(prev) = injected.prev_result {
            json.set("prevResult", prev.to_json(self.version)?);
        }
        if let Some(wanted) = wanted_runtime_config(own, injected.runtime_config)? {
            json.set("runtimeConfig", wanted);
        }
        NetConf::from_json(json)
            .map_err(|e| e.context(format_args!("network {name:?}: plugins[{index}]")))
    }
}

/// Replaces the attachments that GC keeps, under both keys of the configuration. `None` removes the
/// keys.
pub fn set_valid_attachments(json: &mut Json, valid: Option<&[Owner]>) {
    for key in VALID_ATTACHMENTS {
        json.remove(key);
        if let Some(valid) = valid {
            json.set(key, valid.iter().map(attachment_json).collect::<Vec<_>>());
        }
    }
}

/// Parses one item of `plugins`: an object with a valid `type`.
fn plugin(json: &Json) -> Result<Json, Error> {
    if !matches!(json, Json::Object(_)) {
        return Err(json.mismatch("an object"));
    }
    check_plugin_type(json.str_or("type", "")?)?;
    Ok(json.clone())
}

fn attachment_json(
    Owner {
        container_id,
        ifname,
        ..
    }: &Owner,
) -> Json {
    Json::object_of([
        ("containerID", container_id.as_str().into()),
        ("ifname", ifname.as_str().into()),
    ])
}

/// Returns the keys of `offered` that the plugin's `capabilities` enable; `None` if there is no
/// such key, as in libcni.
fn wanted_runtime_config(plugin: &Json, offered: Option<&Json>) -> Result<Option<Json>, Error> {
    let capabilities = plugin.bool_map("capabilities")?;
    let mut wanted = Vec::new();
    for (key, value) in offered.map_or(&[][..], Json::fields) {
        if is_on(&capabilities, key) {
            wanted.push((key.clone(), value.clone()));
        }
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    Ok(Some(Json::Object(wanted)))
}

/// True if a plugin's `capabilities` enable `capability`. The last of several equal names is used.
fn is_on(capabilities: &[(String, bool)], capability: &str) -> bool {
    capabilities
        .iter()
        .rev()
        .find(|(name, _)| name == capability)
        .is_some_and(|(_, on)| *on)
}

/// Returns the greatest version in `cniVersions` and `cniVersion` that is not above 1.1.0. Without
/// `cniVersions`, returns `cniVersion`.
fn list_version(json: &Json) -> Result<Version, Error> {
    let own = json.str_or("cniVersion", "")?;
    let mut known = Vec::new();
    let offered = json.strings("cniVersions")?;
    let key = if offered.is_empty() {
        "cniVersion"
    } else {
        "cniVersions"
    };
    let mut texts: Vec<&str> = offered.iter().map(String::as_str).collect();
    if !offered.is_empty() && !own.is_empty() {
        texts.push(own);
    }
    for text in texts {
        let numbers = parse_numbers(text).map_err(|e| e.context("cniVersions").at_key(key))?;
        if numbers <= Version::NEWEST.numbers() {
            known.push((numbers, text));
        }
    }
    let chosen = known
        .into_iter()
        .max_by_key(|(numbers, _)| *numbers)
        .map_or(own, |(_, text)| text);
    Version::among(chosen, &Version::ALL).map_err(|e| e.at_key(key))
}

/// Returns `loadOnlyInlinedPlugins`. If true, the list has all plugins of the network, and no
/// plugin is in a separate file.
pub fn only_inlined(json: &Json) -> Result<bool, Error> {
    flag(json, "loadOnlyInlinedPlugins")
}

/// Returns the boolean at `key`, which may also be the string `true` or `false` in any case. False
/// if absent.
fn flag(json: &Json, key: &str) -> Result<bool, Error> {
    match json.get(key) {
        None => Ok(false),
        Some(Json::Bool(on)) => Ok(*on),
        Some(Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(other.mismatch_of(key, "true or false")),
    }
}

#[cfg(test)]
mod tests;
