//! Configuration of one plugin, and checks of the names in it.

use super::bounds::shortened;
use super::result::result_version;
use super::{AddResult, Dns, Error, Json, Owner, Version};
use std::rc::Rc;

/// Configuration of one plugin as received, with the keys common to all plugins parsed.
#[derive(Debug, Clone)]
pub struct NetConf {
    /// The whole configuration, with the keys that only this plugin knows.
    pub json: Rc<Json>,
    /// `cniVersion`; 0.1.0 if absent.
    pub version: Version,
    /// `name`: the validated network name.
    pub name: String,
    /// `type`: name of the plugin, without `/`; empty if the runtime omitted it.
    pub plugin: String,
    /// `ipam.type`; empty without IPAM.
    pub ipam: String,
    /// `dns`; `None` if the key is absent or has no field.
    pub dns: Option<Dns>,
    /// `prevResult`, converted to the newest version.
    pub prev_result: Option<AddResult>,
    /// Attachments that GC keeps in this network: `cni.dev/valid-attachments` or
    /// `cni.dev/attachments`. `None` if both keys are absent: libcni's caller passed no list.
    /// `null` means that no attachment is valid, because libcni writes an empty list as `null`.
    pub valid_attachments: Option<Vec<Owner>>,
}

/// Keys of the attachments that GC keeps. The first key is from the CNI specification 1.1.0, the
/// second one is the current key. libcni sends both.
pub(super) const VALID_ATTACHMENTS: [&str; 2] =
    ["cni.dev/valid-attachments", "cni.dev/attachments"];

impl NetConf {
    /// Parses the configuration on standard input.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_json(Json::parse(bytes, "network config")?)
    }

    /// Parses the keys common to all plugins. Errors: code 6 for a wrong type, 7 for an invalid
    /// name or plugin type, 1 for an unknown version.
    pub fn from_json(json: Json) -> Result<Self, Error> {
        let name = network_name(&json)?;
        let version = Version::among(json.str_or("cniVersion", "")?, &Version::ALL)
            .map_err(|e| e.at_key("cniVersion"))?;
        Self::with_name_and_version(json, name, version, prev_result)
    }

    /// Parses the common keys other than name and version; `prev` parses `prevResult`.
    pub(super) fn with_name_and_version(
        json: Json,
        name: String,
        version: Version,
        prev: impl FnOnce(&Json, Version) -> Result<Option<AddResult>, Error>,
    ) -> Result<Self, Error> {
        let plugin = json.string("type")?;
        let ipam = json
            .nested("ipam", |ipam| ipam.string("type"))?
            .unwrap_or_default();
        if !plugin.is_empty() {
            check_plugin_type(&plugin)?;
        }
        if !ipam.is_empty() {
            check_plugin_type(&ipam).map_err(|e| e.at_key("ipam"))?;
        }
        Ok(Self {
            dns: json.nested("dns", dns)?.flatten(),
            prev_result: prev(&json, version)?,
            valid_attachments: valid_attachments(&json, &name)?,
            json: Rc::new(json),
            version,
            name,
            plugin,
            ipam,
        })
    }
}

/// Returns the validated network name. Errors: code 6 if it is not a string, 7 if it is missing,
/// has characters outside `[a-zA-Z0-9_.-]` or does not begin with a letter or digit.
pub(super) fn network_name(json: &Json) -> Result<String, Error> {
    json.expect_object("network config")?;
    let name = json.str_or("name", "")?;
    if name.is_empty() {
        return Err(Error::config("missing network name").at_key("name"));
    }
    if !is_identifier(name) {
        return Err(Error::config("invalid characters found in network name")
            .with_details(name)
            .at_key("name"));
    }
    Ok(name.to_owned())
}

/// True for a valid network name or container id: `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`.
pub fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Returns an error (code 7) if a plugin's `type` is empty or could name a file outside the plugin
/// folder.
pub fn check_plugin_type(plugin: &str) -> Result<(), Error> {
    if plugin.is_empty() {
        return Err(Error::config("no plugin name provided").at_key("type"));
    }
    if plugin.contains(['/', '\0']) || plugin == "." || plugin == ".." {
        return Err(
            Error::config(format!("invalid plugin name: {:?}", shortened(plugin))).at_key("type"),
        );
    }
    Ok(())
}

/// Parses `dns`; `None` if no field is present. An empty list counts as present, as in the
/// reference plugins.
fn dns(json: &Json) -> Result<Option<Dns>, Error> {
    let has_list = ["nameservers", "search", "options"]
        .iter()
        .any(|key| json.get(key).is_some());
    let dns = Dns::parse(json)?;
    Ok((has_list || !dns.domain.is_empty()).then_some(dns))
}

impl NetConf {
    /// Sets `prevResult` to the result of an earlier ADD, which can have any version. Converts the
    /// result to the configuration's version if the two versions have different JSON layouts.
    pub fn set_prev_result(&mut self, prev: &Json) -> Result<(), Error> {
        let is_same = result_version(prev, self.version)?.family() == self.version.family();
        let result = AddResult::parse(prev, self.version)?;
        let prev = if is_same {
            prev.clone()
        } else {
            result.to_json(self.version)?
        };
        Rc::make_mut(&mut self.json).set("prevResult", prev);
        self.prev_result = Some(result);
        Ok(())
    }
}

/// Parses `prevResult`; `None` if absent. Its version must have the same JSON layout as the
/// configuration's version.
pub(super) fn prev_result(json: &Json, config: Version) -> Result<Option<AddResult>, Error> {
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
    let Some(prev) = json.object("prevResult")? else {
        return Ok(None);
    };
    let result =
        read(prev).map_err(|e| e.context("could not parse prevResult").at_key("prevResult"))?;
    Ok(Some(result))
}

fn valid_attachments(json: &Json, network: &str) -> Result<Option<Vec<Owner>>, Error> {
    let Some(key) = VALID_ATTACHMENTS.into_iter().find(|key| json.has(key)) else {
        return Ok(None);
    };
    let owner = |item: &Json| {
        Ok(Owner::new(
            network,
            item.str_or("containerID", "")?,
            item.str_or("ifname", "")?,
        ))
    };
    Ok(Some(json.each_object(key, owner)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Kind;

    fn parse(text: &str) -> Result<NetConf, Error> {
        NetConf::parse(text.as_bytes())
    }

    #[test]
    fn shared_keys_are_read_in_any_case() {
        let conf = parse(
            r#"{"CniVersion":"1.0.0","NAME":"n","Type":"bridge","IPAM":{"TYPE":"host-local"},"dns":{"domain":"d"}}"#,
        );
        let conf = conf.unwrap();
        assert_eq!((conf.version, conf.name.as_str()), (Version::V1_0_0, "n"));
        assert_eq!(
            (conf.plugin.as_str(), conf.ipam.as_str()),
            ("bridge", "host-local")
        );
        assert_eq!(conf.dns.unwrap().domain, "d");
        assert!(conf.prev_result.is_none() && conf.valid_attachments.is_none());
    }

    #[test]
    fn absent_keys_have_defaults() {
        let conf = parse(r#"{"name":"n","dns":{},"ipam":null,"prevResult":null}"#).unwrap();
        assert_eq!(
            (conf.version, conf.plugin.as_str(), conf.ipam.as_str()),
            (Version::V0_1_0, "", "")
        );
        assert!(conf.dns.is_none() && conf.prev_result.is_none());
    }

    #[test]
    fn fault_decides_the_error_code() {
        for (text, code) in [
            ("", Kind::Decode),
            ("[]", Kind::Decode),
            (r#"{"name":1}"#, Kind::Decode),
            (r#"{"name":"n","cniVersion":1}"#, Kind::Decode),
            (r#"{"name":"n","ipam":"dhcp"}"#, Kind::Decode),
            (r#"{"name":"n","dns":[]}"#, Kind::Decode),
            (r#"{"name":"n","cni.dev/attachments":[1]}"#, Kind::Decode),
            ("null", Kind::InvalidConfig),
            (r#"{"name":""}"#, Kind::InvalidConfig),
            (r#"{"name":"../n"}"#, Kind::InvalidConfig),
            (r#"{"name":"a/b"}"#, Kind::InvalidConfig),
            (r#"{"name":"a\u0000"}"#, Kind::InvalidConfig),
            (r#"{"name":"n\n"}"#, Kind::InvalidConfig),
            (r#"{"name":"n","type":"../../bin/sh"}"#, Kind::InvalidConfig),
            (r#"{"name":"n","type":".."}"#, Kind::InvalidConfig),
            (r#"{"name":"n","ipam":{"type":"a/b"}}"#, Kind::InvalidConfig),
            (
                r#"{"name":"n","ipam":{"type":"a\u0000"}}"#,
                Kind::InvalidConfig,
            ),
            (
                r#"{"name":"n","cniVersion":"1.0"}"#,
                Kind::IncompatibleVersion,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().kind, code, "{text}");
        }
    }

    #[test]
    fn prev_result_has_a_version_of_the_same_family() {
        for config in Version::ALL {
            for prev in Version::ALL {
                let text = format!(
                    r#"{{"name":"n","cniVersion":"{config}","prevResult":{{"cniVersion":"{prev}"}}}}"#
                );
                assert_eq!(
                    parse(&text).is_ok(),
                    config.family() == prev.family(),
                    "{text}"
                );
            }
        }
        let error =
            parse(r#"{"name":"n","cniVersion":"0.4.0","prevResult":{"cniVersion":"1.0.0"}}"#)
                .unwrap_err();
        assert_eq!(
            error.msg,
            "could not parse prevResult: result type supports [0.3.0 0.3.1 0.4.0] but unmarshalled CNIVersion is \"1.0.0\""
        );
    }

    #[test]
    fn prev_result_without_version_has_the_configurations_version() {
        let prev = r#"{"ip4":{"ip":"10.0.0.1/8"},"ips":[{"address":"::1/128"}]}"#;
        for (version, expected) in [
            ("0.2.0", "10.0.0.1/8"),
            ("0.3.1", "::1/128"),
            ("1.1.0", "::1/128"),
        ] {
            let conf = parse(&format!(
                r#"{{"name":"n","cniVersion":"{version}","prevResult":{prev}}}"#
            ))
            .unwrap();
            assert_eq!(
                conf.prev_result.unwrap().ips[0].address.to_string(),
                expected
            );
        }
    }

    #[test]
    fn valid_attachments_are_read_under_both_names_and_null_is_an_empty_list() {
        let item = r#"[{"containerID":"c","ifname":"eth0"}]"#;
        for key in VALID_ATTACHMENTS {
            let conf = parse(&format!(r#"{{"name":"n","{key}":{item}}}"#)).unwrap();
            assert_eq!(
                conf.valid_attachments,
                Some(vec![Owner::new("n", "c", "eth0")])
            );
            let conf = parse(&format!(r#"{{"name":"n","{key}":null}}"#)).unwrap();
            assert_eq!(conf.valid_attachments, Some(Vec::new()));
        }
    }
}
