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

    /// Returns the list inside the configuration of a `braid` plugin. It is in `plugins`, or in
    /// `network`, which is a conflist or a single plugin. `None` if both keys are absent. Name and
    /// version default to those in `conf`.
    ///
    /// The key `bandwidth` in `conf` appends a plugin of type `bandwidth`. The key in
    /// `runtimeConfig` also does, unless the list has a plugin of that type or capability. If the
    /// list has a plugin of type `bandwidth`, the key in `conf` is an error.
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
mod tests {
    use super::*;
    use crate::cni::Kind;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    fn braid(rest: &str) -> Result<Option<NetConfList>, Error> {
        let text = format!(r#"{{"name":"pods","cniVersion":"1.0.0","type":"braid"{rest}}}"#);
        NetConfList::from_braid(&NetConf::parse(text.as_bytes())?)
    }

    #[test]
    fn the_greatest_known_version_is_chosen() {
        for (versions, chosen) in [
            ("", Version::V0_1_0),
            (r#","cniVersion":"0.4.0""#, Version::V0_4_0),
            (r#","cniVersion":"0.4.0","cniVersions":[]"#, Version::V0_4_0),
            (
                r#","cniVersions":["0.3.1","1.0.0","0.4.0"]"#,
                Version::V1_0_0,
            ),
            (
                r#","cniVersion":"1.1.0","cniVersions":["0.3.1","1.0.0"]"#,
                Version::V1_1_0,
            ),
            (
                r#","cniVersion":"2.0.0","cniVersions":["0.3.1","9.9.9"]"#,
                Version::V0_3_1,
            ),
        ] {
            let list = NetConfList::parse(
                format!(r#"{{"name":"n","plugins":[{{"type":"t"}}]{versions}}}"#).as_bytes(),
            );
            assert_eq!(list.unwrap().version, chosen, "{versions}");
        }
    }

    #[test]
    fn switches_are_booleans_or_words() {
        for (value, expected) in [
            ("true", Some(true)),
            ("\"TRUE\"", Some(true)),
            ("\"false\"", Some(false)),
            ("\"yes\"", None),
            ("1", None),
        ] {
            let list = json(&format!(
                r#"{{"name":"n","plugins":[{{"type":"t"}}],"disableCheck":{value},"disableGC":{value}}}"#
            ));
            let read = NetConfList::from_json(&list)
                .ok()
                .map(|list| (list.disable_check, list.disable_gc));
            assert_eq!(read, expected.map(|on| (on, on)), "{value}");
        }
    }

    #[test]
    fn a_list_without_a_valid_plugin_is_refused() {
        for (rest, code) in [
            ("", Kind::InvalidConfig),
            (r#","plugins":[]"#, Kind::InvalidConfig),
            (r#","plugins":[{}]"#, Kind::InvalidConfig),
            (r#","plugins":[{"type":"a/b"}]"#, Kind::InvalidConfig),
            (r#","plugins":{}"#, Kind::Decode),
            (r#","plugins":["bridge"]"#, Kind::Decode),
            (
                r#","plugins":[{"type":"t"}],"cniVersion":"0.3.2""#,
                Kind::IncompatibleVersion,
            ),
            (
                r#","plugins":[{"type":"t"}],"cniVersions":["x"]"#,
                Kind::Decode,
            ),
        ] {
            let error =
                NetConfList::parse(format!(r#"{{"name":"n"{rest}}}"#).as_bytes()).unwrap_err();
            assert_eq!(error.kind, code, "{rest}: {error}");
        }
    }

    #[test]
    fn plugin_gets_name_version_and_the_keys_of_its_capabilities() {
        let list = NetConfList::from_json(&json(
            r#"{"name":"n","cniVersion":"0.4.0","plugins":[
                {"type":"a","name":"own","prevResult":{"ips":[]},"cni.dev/attachments":[]},
                {"type":"b","capabilities":{"mac":true,"ips":false,"bandwidth":true}}]}"#,
        ))
        .unwrap();
        let offered = json(r#"{"mac":"00:11:22:33:44:55","ips":["10.0.0.1/8"],"other":1}"#);
        let first = list
            .plugin_conf(
                0,
                &Injected {
                    runtime_config: Some(&offered),
                    ..Injected::default()
                },
            )
            .unwrap();
        assert_eq!(
            first.json.to_string(),
            r#"{"type":"a","name":"n","cniVersion":"0.4.0"}"#
        );
        let prev = AddResult::default();
        let injected = Injected {
            runtime_config: Some(&offered),
            prev_result: Some(&prev),
            ..Injected::default()
        };
        let second = list.plugin_conf(1, &injected).unwrap();
        assert_eq!(second.prev_result, Some(AddResult::default()));
        assert_eq!(
            second.json.get("runtimeConfig").unwrap().to_string(),
            r#"{"mac":"00:11:22:33:44:55"}"#
        );
        assert_eq!(
            list.plugin_conf(2, &injected).unwrap_err().kind,
            Kind::Internal
        );
    }

    #[test]
    fn gc_sends_the_valid_attachments_under_both_names() {
        let list =
            NetConfList::from_json(&json(r#"{"name":"n","plugins":[{"type":"a"}]}"#)).unwrap();
        let valid = [Owner::new("n", "c", "eth0")];
        for valid in [&valid[..], &[]] {
            let conf = list
                .plugin_conf(
                    0,
                    &Injected {
                        valid_attachments: Some(valid),
                        ..Injected::default()
                    },
                )
                .unwrap();
            assert_eq!(conf.valid_attachments.as_deref(), Some(valid));
            assert!(VALID_ATTACHMENTS.iter().all(|key| conf.json.has(key)));
        }
    }

    #[test]
    fn configuration_of_type_braid_holds_a_list_in_three_forms() {
        let types = |list: NetConfList| {
            let mut types = Vec::new();
            for plugin in &list.plugins {
                types.push(plugin.string("type").unwrap());
            }
            (list.name.clone(), list.version, types.join(","))
        };
        for (rest, expected) in [
            (
                r#","plugins":[{"type":"a"},{"type":"b"}]"#,
                ("pods", Version::V1_0_0, "a,b"),
            ),
            (r#","network":{"type":"a"}"#, ("pods", Version::V1_0_0, "a")),
            (
                r#","network":{"type":"a","name":"own","cniVersion":"0.4.0"}"#,
                ("own", Version::V0_4_0, "a"),
            ),
            (
                r#","network":{"name":"own","plugins":[{"type":"a"}]}"#,
                ("own", Version::V1_0_0, "a"),
            ),
            (
                r#","network":{"type":"a"},"bandwidth":{}"#,
                ("pods", Version::V1_0_0, "a,bandwidth"),
            ),
            (
                r#","plugins":[{"type":"a"}],"runtimeConfig":{"bandwidth":{}}"#,
                ("pods", Version::V1_0_0, "a,bandwidth"),
            ),
            (
                r#","plugins":[{"type":"a","capabilities":{"bandwidth":true}}],"runtimeConfig":{"bandwidth":{}}"#,
                ("pods", Version::V1_0_0, "a"),
            ),
            (
                r#","plugins":[{"type":"bandwidth"},{"type":"b"}],"runtimeConfig":{"bandwidth":{}}"#,
                ("pods", Version::V1_0_0, "bandwidth,b"),
            ),
        ] {
            let (name, version, plugins) = types(braid(rest).unwrap().unwrap());
            assert_eq!(
                (name.as_str(), version, plugins.as_str()),
                expected,
                "{rest}"
            );
        }
        assert!(braid("").unwrap().is_none());
    }

    #[test]
    fn a_list_inside_braid_is_checked_like_any_other() {
        for rest in [
            r#","plugins":[{"type":"a"}],"network":{"type":"a"}"#,
            r#","plugins":[{"type":"braid"}]"#,
            r#","plugins":[{"type":"bandwidth"}],"bandwidth":{}"#,
            r#","network":{"type":"braid"}"#,
            r#","network":{"name":"../x","type":"a"}"#,
            r#","network":{"name":"x"}"#,
            r#","network":{"plugins":[]}"#,
        ] {
            assert_eq!(braid(rest).unwrap_err().kind, Kind::InvalidConfig, "{rest}");
        }
    }
}
