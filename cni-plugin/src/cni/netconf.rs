//! A network's configuration: the single plugin's object and the list of plugins.

use super::{AddResult, Dns, Json, Version};

/// One plugin's configuration as it arrived, with the keys that all plugins share already read.
#[derive(Debug, Clone)]
pub struct NetConf {
    /// The whole object, for the plugin's own keys.
    pub json: Json,
    /// `cniVersion`; absent means 0.1.0.
    pub version: Version,
    /// `name`: the network's name, checked.
    pub name: String,
    /// `type`: the plugin, never containing `/`; may be empty where the runtime left it out.
    pub plugin: String,
    /// `ipam.type`, empty without IPAM.
    pub ipam: String,
    /// `dns`; `None` where the key is absent or has no field.
    pub dns: Option<Dns>,
    /// `prevResult`, converted up.
    pub prev_result: Option<AddResult>,
    /// `cni.dev/valid-attachments` or `cni.dev/attachments`, for GC; `None` where neither is there.
    pub valid_attachments: Option<Vec<(String, String)>>,
}

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
