//! A network's plugin list, and the standard input of each plugin.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A conflist as libcni reads it.
#[derive(Debug, Clone)]
pub(crate) struct Conflist {
    name: String,
    version: String,
    plugins: Vec<Map<String, Value>>,
}

/// Lease folder and configuration of the `host-local` IPAM in a conflist.
#[derive(Debug, PartialEq)]
pub(crate) struct HostLocal<'a> {
    /// `<dataDir>/<network>`.
    pub(crate) dir: PathBuf,
    /// The `ipam` object.
    pub(crate) ipam: &'a Value,
}

impl Conflist {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read conflist {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("conflist {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let whole: Value = serde_json::from_str(text)?;
        let string = |key: &str| {
            whole
                .get(key)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .with_context(|| format!("no string `{key}`"))
        };
        let listed = whole
            .get("plugins")
            .and_then(Value::as_array)
            .context("no list `plugins`")?;
        let plugins: Vec<_> = listed
            .iter()
            .filter_map(Value::as_object)
            .cloned()
            .collect();
        if plugins.is_empty() || plugins.len() < listed.len() {
            bail!("`plugins` must be a list of at least one object");
        }
        if let Some(at) = plugins
            .iter()
            .position(|plugin| plugin_type(plugin).is_empty())
        {
            bail!("plugin {at} has no `type`");
        }
        Ok(Conflist {
            name: string("name")?,
            version: string("cniVersion")?,
            plugins,
        })
    }

    /// Returns the plugins' types, in the order of ADD.
    pub(crate) fn types(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.plugins.iter().map(plugin_type)
    }

    /// Returns the standard input of the plugin with index `at`: its object in the list, with name,
    /// version and the result of the previous plugin.
    ///
    /// `capabilities` is kept, and `runtimeConfig` is passed on as written in the file.
    pub(crate) fn stdin(&self, at: usize, prev_result: Option<&Value>) -> Vec<u8> {
        let mut conf = self.plugins.get(at).cloned().unwrap_or_default();
        conf.insert("name".into(), self.name.clone().into());
        conf.insert("cniVersion".into(), self.version.clone().into());
        if let Some(result) = prev_result {
            conf.insert("prevResult".into(), result.clone());
        }
        Value::Object(conf).to_string().into_bytes()
    }

    /// True if a plugin of the list declares the capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.plugins
            .iter()
            .any(|plugin| declares(plugin, capability))
    }

    /// Returns the list for a pod with this value of a capability. The value goes into the
    /// `runtimeConfig` of the plugins that declare the capability.
    pub(crate) fn with_capability(&self, capability: &str, value: &Value) -> Self {
        let mut list = self.clone();
        for plugin in &mut list.plugins {
            if declares(plugin, capability) {
                let runtime = plugin
                    .entry("runtimeConfig")
                    .or_insert_with(|| Map::new().into());
                if let Some(runtime) = runtime.as_object_mut() {
                    runtime.insert(capability.to_owned(), value.clone());
                }
            }
        }
        list
    }

    /// True if DEL gets the result of ADD, as required since CNI version 0.4.0.
    pub(crate) fn del_has_prev_result(&self) -> bool {
        let mut numbers = self
            .version
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        let (major, minor): (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        (major, minor) >= (0, 4)
    }

    /// True if a plugin of the list, or a plugin's delegate, requests addresses.
    pub(crate) fn wants_address(&self) -> bool {
        self.ipam(|ipam_type| !ipam_type.is_empty()).is_some()
    }

    /// Returns the first `host-local` IPAM of the list, also if it belongs to a delegate.
    pub(crate) fn host_local(&self) -> Option<HostLocal<'_>> {
        let (network, ipam) = self.ipam(|ipam_type| ipam_type == "host-local")?;
        let data = ipam
            .get("dataDir")
            .and_then(Value::as_str)
            .unwrap_or("/var/lib/cni/networks");
        Some(HostLocal {
            dir: Path::new(data).join(network),
            ipam,
        })
    }

    fn ipam(&self, wanted: impl Fn(&str) -> bool + Copy) -> Option<(&str, &Value)> {
        self.plugins
            .iter()
            .find_map(|plugin| find_ipam(plugin, &self.name, wanted))
    }
}

fn declares(plugin: &Map<String, Value>, capability: &str) -> bool {
    plugin
        .get("capabilities")
        .and_then(|all| all.get(capability))
        .and_then(Value::as_bool)
        == Some(true)
}

fn plugin_type(plugin: &Map<String, Value>) -> &str {
    plugin
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Searches `object` and the objects inside it for an `ipam` object with a type that `wanted`
/// accepts. Returns the name of the network, and the object.
fn find_ipam<'a>(
    object: &'a Map<String, Value>,
    network: &'a str,
    wanted: impl Fn(&str) -> bool + Copy,
) -> Option<(&'a str, &'a Value)> {
    let network = object
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or(network);
    if let Some(ipam) = object.get("ipam")
        && wanted(ipam.get("type").and_then(Value::as_str).unwrap_or_default())
    {
        return Some((network, ipam));
    }
    object.values().find_map(|value| match value {
        Value::Object(inner) => find_ipam(inner, network, wanted),
        Value::Array(list) => list
            .iter()
            .filter_map(Value::as_object)
            .find_map(|inner| find_ipam(inner, network, wanted)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conflist(value: &Value) -> Conflist {
        Conflist::parse(&value.to_string()).unwrap()
    }

    fn sample() -> Value {
        json!({"cniVersion": "1.1.0", "name": "lan", "plugins": [
            {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/16"}},
            {"type": "tuning", "runtimeConfig": {"mac": "02:00:00:00:00:01"}}]})
    }

    #[test]
    fn first_plugin_reads_its_object_with_name_and_version() {
        let read: Value = serde_json::from_slice(&conflist(&sample()).stdin(0, None)).unwrap();
        let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/16"});
        assert_eq!(
            read,
            json!({"cniVersion": "1.1.0", "name": "lan", "type": "bridge", "ipam": ipam})
        );
    }

    #[test]
    fn later_plugin_reads_the_result_so_far_and_its_own_runtime_config() {
        let result = json!({"cniVersion": "1.1.0", "ips": []});
        let read: Value =
            serde_json::from_slice(&conflist(&sample()).stdin(1, Some(&result))).unwrap();
        assert_eq!(
            read,
            json!({"cniVersion": "1.1.0", "name": "lan", "type": "tuning", "prevResult": result,
                "runtimeConfig": {"mac": "02:00:00:00:00:01"}})
        );
    }

    #[test]
    fn a_capability_reaches_the_plugins_that_declare_it() {
        let mut value = sample();
        value["plugins"][1]["capabilities"] = json!({"mac": true, "ips": false});
        let list = conflist(&value)
            .with_capability("mac", &json!("02::2"))
            .with_capability("ips", &json!([]));
        let read = |at| serde_json::from_slice::<Value>(&list.stdin(at, None)).unwrap();
        assert_eq!(read(0).get("runtimeConfig"), None);
        assert_eq!(read(1)["runtimeConfig"], json!({"mac": "02::2"}));
    }

    #[test]
    fn del_gets_the_result_from_version_0_4_0_on() {
        let with = |version: &str| {
            let mut value = sample();
            value["cniVersion"] = version.into();
            conflist(&value).del_has_prev_result()
        };
        assert_eq!(["0.3.1", "0.4.0", "1.0.0"].map(with), [false, true, true]);
    }

    #[test]
    fn leases_live_in_the_default_directory_of_the_network() {
        let list = conflist(&sample());
        assert_eq!(
            list.host_local().unwrap().dir,
            Path::new("/var/lib/cni/networks/lan")
        );
        assert!(list.wants_address());
    }

    #[test]
    fn host_local_of_a_nested_delegate_belongs_to_the_delegate() {
        let ipam = json!({"type": "host-local", "dataDir": "/data", "subnet": "10.2.0.0/16"});
        let list = conflist(&json!({"cniVersion": "1.0.0", "name": "outer", "plugins": [
            {"type": "meta", "delegates": [{"name": "inner", "plugins": [{"type": "ptp", "ipam": ipam}]}]}]}));
        assert_eq!(
            list.host_local(),
            Some(HostLocal {
                dir: "/data/inner".into(),
                ipam: &ipam
            })
        );
    }

    #[test]
    fn list_without_ipam_wants_no_address() {
        let list = conflist(
            &json!({"cniVersion": "1.0.0", "name": "l2", "plugins": [{"type": "bridge", "ipam": {}}]}),
        );
        assert!(!list.wants_address());
        assert_eq!(list.host_local(), None);
    }

    #[test]
    fn unusable_lists_are_refused_with_what_is_missing() {
        let refused = |value: &Value| Conflist::parse(&value.to_string()).unwrap_err().to_string();
        assert_eq!(
            refused(&json!({"cniVersion": "1.0.0", "name": "a"})),
            "no list `plugins`"
        );
        assert_eq!(
            refused(&json!({"cniVersion": "1.0.0", "plugins": [{"type": "ptp"}]})),
            "no string `name`"
        );
        assert_eq!(
            refused(&json!({"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "ptp"}, {}]})),
            "plugin 1 has no `type`"
        );
    }
}
