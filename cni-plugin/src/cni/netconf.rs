//! One plugin's configuration and the checks on the names in it.

use super::result::result_version;
use super::{AddResult, Dns, Error, Json, Version};

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
    /// `cni.dev/valid-attachments` or `cni.dev/attachments`, for GC, as (container id, ifname); `None` where neither is
    /// there. libcni writes `null` for an empty list, so a key with `null` means that no attachment is valid.
    pub valid_attachments: Option<Vec<(String, String)>>,
}

/// The spelling of the specification's text at its tag 1.1.0, and the one of today; libcni sends both.
pub(super) const VALID_ATTACHMENTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

impl NetConf {
    /// Parses what arrives on standard input.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_json(Json::parse(bytes, "network config")?)
    }

    /// Reads the shared keys: code 6 for a wrong type, 7 for a wrong name or type, 1 for an unknown version.
    pub fn from_json(json: Json) -> Result<Self, Error> {
        let name = network_name(&json)?;
        let version = Version::among(json.str_or("cniVersion", "")?, &Version::ALL)?;
        Self::with_name_and_version(json, name, version)
    }

    /// Reads what is left once name and version have been checked.
    pub(super) fn with_name_and_version(json: Json, name: String, version: Version) -> Result<Self, Error> {
        let plugin = json.string("type")?;
        let ipam = json.nested("ipam", |ipam| ipam.string("type"))?.unwrap_or_default();
        for plugin in [&plugin, &ipam] {
            if !plugin.is_empty() {
                check_plugin_type(plugin)?;
            }
        }
        Ok(Self {
            dns: json.nested("dns", Dns::parse)?.filter(|dns| !dns.is_empty()),
            prev_result: prev_result(&json, version)?,
            valid_attachments: valid_attachments(&json)?,
            json,
            version,
            name,
            plugin,
            ipam,
        })
    }
}

/// The network's name, checked: code 6 if it is no string, 7 if it is missing or has other characters than
/// `[a-zA-Z0-9_.-]`, the first one alphanumeric.
pub(super) fn network_name(json: &Json) -> Result<String, Error> {
    json.expect_object("network config")?;
    let name = json.str_or("name", "")?;
    if name.is_empty() {
        return Err(Error::config("missing network name"));
    }
    if !is_identifier(name) {
        return Err(Error::config("invalid characters found in network name").with_details(name));
    }
    Ok(name.to_owned())
}

/// The characters of network names and container ids: `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`.
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Refuses (code 7) a plugin type that is empty or could leave the folder it is looked up in.
pub fn check_plugin_type(plugin: &str) -> Result<(), Error> {
    if plugin.is_empty() {
        return Err(Error::config("no plugin name provided"));
    }
    if plugin.contains(['/', '\0']) || plugin == "." || plugin == ".." {
        return Err(Error::config(format!("invalid plugin name: {plugin:?}")));
    }
    Ok(())
}

/// A `prevResult` has the configuration's version, or another one of the same family.
fn prev_result(json: &Json, config: Version) -> Result<Option<AddResult>, Error> {
    let read = |prev: &Json| {
        let version = result_version(prev, config)?;
        if version.family() != config.family() {
            let supported: Vec<&str> = config.family().versions().map(Version::as_str).collect();
            let supported = supported.join(" ");
            return Err(Error::decode(format!(
                "result type supports [{supported}] but unmarshalled CNIVersion is \"{version}\""
            )));
        }
        AddResult::parse(prev, version)
    };
    let Some(prev) = json.object("prevResult")? else { return Ok(None) };
    read(prev).map(Some).map_err(|e| e.context("could not parse prevResult"))
}

fn valid_attachments(json: &Json) -> Result<Option<Vec<(String, String)>>, Error> {
    let Some(key) = VALID_ATTACHMENTS.into_iter().find(|key| json.has(key)) else { return Ok(None) };
    json.each_object(key, |item| Ok((item.string("containerID")?, item.string("ifname")?))).map(Some)
}
