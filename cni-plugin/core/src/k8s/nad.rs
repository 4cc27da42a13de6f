//! Network definitions: configurations from a NetworkAttachmentDefinition, a file, or inside
//! another configuration.

use super::settings::key_of_pods;
use super::{Nad, ObjectName, RESOURCE_NAME, text_at};
use crate::cni::netconf::check_plugin_type;
use crate::cni::{Error, Injected, Json, NetConf, NetConfList, Version};
use std::rc::Rc;

/// CNI plugin type of braid. A configuration of this type can contain a list of plugins.
const BRAID: &str = "braid";
/// Maximum number of plugins of a network. Each may be an external program.
const MAX_PLUGINS: usize = 64;
/// Key in a plugin's configuration with the plugin's capabilities.
const CAPABILITIES: &str = "capabilities";
/// Key in a configuration's `args` with the arguments that any plugin may use.
const CNI: &str = "cni";

/// Configuration of a network: one plugin, or a list of plugins.
#[derive(Debug, Clone)]
pub struct Definition {
    list: NetConfList,
    is_list: bool,
}

/// Result of looking up a network.
#[derive(Debug, Clone)]
pub struct Found {
    /// Configuration of the network.
    pub definition: Definition,
    /// NetworkAttachmentDefinition of the network, if any.
    pub object: Option<ObjectName>,
    /// Name of the resource that provides the network's device, if any.
    pub resource: Option<String>,
}

impl Found {
    /// Returns the network that a NetworkAttachmentDefinition defines. If `spec.config` is blank,
    /// `on_disk` finds the configuration by the object's name.
    pub fn of_nad(
        nad: &Nad,
        on_disk: impl FnOnce(&str) -> Result<Definition, Error>,
    ) -> Result<Self, Error> {
        let context = |error: Error| error.context(format_args!("network {}", nad.name));
        let definition = if is_on_disk(nad) {
            on_disk(&nad.name.name).map_err(context)?
        } else {
            let json = Json::parse(nad.config.as_bytes(), "spec.config").map_err(context)?;
            Definition::parse(json, &nad.name.name)
                .map_err(|error| context(error.context("spec.config")))?
        };
        let resource = nad
            .annotations
            .get(RESOURCE_NAME)
            .filter(|name| !name.is_empty())
            .cloned();
        Ok(Self {
            definition,
            object: Some(nad.name.clone()),
            resource,
        })
    }

    /// Returns a network without a NetworkAttachmentDefinition.
    pub fn of(definition: Definition) -> Self {
        Self {
            definition,
            object: None,
            resource: None,
        }
    }
}

/// True if the configuration of a NetworkAttachmentDefinition is in a file on the node.
pub fn is_on_disk(nad: &Nad) -> bool {
    nad.config.trim().is_empty()
}

impl Definition {
    /// Parses the configuration of a plugin or a list. `name` is used if the configuration has no
    /// name. Errors have the CNI codes for an invalid configuration.
    pub fn parse(mut json: Json, name: &str) -> Result<Self, Error> {
        // The message does not quote the value, which may contain a secret.
        if json.expect_object("network config").is_err() {
            return Err(Error::decode("network config: expected an object"));
        }
        if json.str_or("name", "")?.is_empty() {
            json.set("name", name);
        }
        let (list, is_list) = if text_at(&json, "type") == Some(BRAID) {
            (of_braid(json)?, true)
        } else if json.get("plugins").is_some() {
            (NetConfList::from_json(&json)?, true)
        } else {
            check_plugin_type(json.str_or("type", "")?)?;
            json.bool_map(CAPABILITIES)?;
            let NetConf {
                json,
                name,
                version,
                ..
            } = NetConf::from_json(json)?;
            (
                NetConfList {
                    name,
                    version,
                    disable_check: false,
                    disable_gc: false,
                    plugins: vec![Rc::unwrap_or_clone(json)],
                },
                false,
            )
        };
        if list.plugins.len() > MAX_PLUGINS {
            return Err(Error::config(format!(
                "{} plugins, more than {MAX_PLUGINS}",
                list.plugins.len()
            ))
            .at_key("plugins"));
        }
        let definition = Self { list, is_list };
        if let Some(index) = definition.types().position(|plugin| plugin == BRAID) {
            return Err(Error::config("\"braid\" can't be a plugin of a list")
                .at_index(index)
                .at_key("plugins"));
        }
        if is_list {
            // Refuses capabilities that can't be read.
            definition.list.has_capability("")?;
        }
        Ok(definition)
    }

    /// Name of the network.
    pub fn name(&self) -> &str {
        &self.list.name
    }

    /// CNI version that the plugins are called with.
    pub fn version(&self) -> Version {
        self.list.version
    }

    /// Configurations of the network's plugins.
    pub fn plugins(&self) -> &[Json] {
        &self.list.plugins
    }

    /// Types of the plugins.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.list
            .plugins
            .iter()
            .filter_map(|plugin| text_at(plugin, "type"))
    }

    /// True if any plugin has this capability.
    pub fn has(&self, capability: &str) -> bool {
        self.list.has_capability(capability).is_ok_and(|has| has)
    }

    /// Merges the arguments `more` into `args.cni` of each plugin. Arguments in `more` replace
    /// existing arguments of the same name.
    pub fn merge_args(&mut self, more: &[(String, Json)]) -> Result<(), Error> {
        for plugin in self.list.plugins.iter_mut().filter(|_| !more.is_empty()) {
            let mut args = plugin
                .object("args")?
                .cloned()
                .unwrap_or_else(|| Json::object_of([]));
            let mut cni = args.object(CNI)?.map_or(&[][..], Json::fields).to_vec();
            cni.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
            cni.extend(more.iter().cloned());
            args.set(CNI, Json::Object(cni));
            plugin.set("args", args);
        }
        Ok(())
    }

    /// Enables this capability for the plugins at these indexes, so that they get the runtime's
    /// value for it.
    pub fn grant(&mut self, plugins: &[usize], capability: &str) -> Result<(), Error> {
        for at in plugins {
            let Some(plugin) = self.list.plugins.get_mut(*at) else {
                continue;
            };
            let mut all = plugin
                .object(CAPABILITIES)?
                .cloned()
                .unwrap_or_else(|| Json::object_of([]));
            all.set(capability, true);
            plugin.set(CAPABILITIES, all);
        }
        Ok(())
    }

    /// Appends a plugin of type `kind` with this capability.
    pub fn append(&mut self, kind: &str, capability: &str) -> Result<(), Error> {
        self.list
            .plugins
            .push(Json::object_of([("type", kind.into())]));
        self.is_list = true;
        self.grant(&[self.list.plugins.len() - 1], capability)
    }

    /// Sets a key in the configuration of the plugin at this index.
    pub fn set(&mut self, plugin: usize, key: &str, value: impl Into<Json>) {
        if let Some(plugin) = self.list.plugins.get_mut(plugin) {
            plugin.set(key, value);
        }
    }

    /// Removes a key from the configuration of the plugin at this index.
    pub fn remove(&mut self, plugin: usize, key: &str) {
        if let Some(plugin) = self.list.plugins.get_mut(plugin) {
            plugin.remove(key);
        }
    }

    /// Sets `deviceID` and `pciBusID` in the configuration of every plugin.
    pub fn set_device(&mut self, device: &str) {
        for plugin in &mut self.list.plugins {
            plugin.set("deviceID", device);
            plugin.set("pciBusID", device);
        }
    }

    /// Returns the configuration with which braid runs the network: the single plugin, or the list
    /// inside a configuration of type `braid`. Each plugin gets the keys of `runtime_config` for
    /// which it has a capability.
    pub fn conf(&self, runtime_config: &Json) -> Result<Json, Error> {
        let list = &self.list;
        if !self.is_list {
            let injected = Injected {
                runtime_config: Some(runtime_config),
                ..Injected::default()
            };
            return Ok(Rc::unwrap_or_clone(list.plugin_conf(0, &injected)?.json));
        }
        let mut json = Json::object_of([
            ("name", list.name.as_str().into()),
            ("cniVersion", list.version.as_str().into()),
            ("type", BRAID.into()),
            ("plugins", list.plugins.clone().into()),
        ]);
        for (key, is_set) in [
            ("disableCheck", list.disable_check),
            ("disableGC", list.disable_gc),
        ] {
            if is_set {
                json.set(key, true);
            }
        }
        if !runtime_config.fields().is_empty() {
            json.set("runtimeConfig", runtime_config.clone());
        }
        Ok(json)
    }
}

/// Parses the plugin list inside a configuration of type `braid`. Refuses a configuration that
/// attaches pods, because braid would call itself without end.
fn of_braid(json: Json) -> Result<NetConfList, Error> {
    if let Some(key) = key_of_pods(&json) {
        return Err(Error::config(format!(
            "{key:?}: a pod network must not attach pods to networks"
        ))
        .at_key(key));
    }
    let list = NetConfList::from_braid(&NetConf::from_json(json)?)?;
    list.ok_or_else(|| {
        Error::config("type \"braid\" needs \"plugins\" or \"network\" in its configuration")
    })
}

#[cfg(test)]
mod tests;
