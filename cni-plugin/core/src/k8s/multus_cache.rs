//! Files that Multus keeps in its `cniDir` about each container it attached.
//!
//! ```text
//!  <cniDir>/<container>                            the networks in order, with their configurations (`DelegateNetConf`)
//!  <cniDir>/results/<network>-<container>-<ifname>  libcni's cache of one ADD (`cniCacheV1`): arguments, result
//! ```

use super::nad::Definition;
use super::text_at;
use crate::cni::bounds::shortened;
use crate::cni::{Error, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;

/// Maximum number of networks of a container.
const MAX_NETWORKS: usize = 128;

/// A network that Multus attached.
#[derive(Debug, Clone)]
pub struct Delegate {
    /// Network definition.
    pub definition: Definition,
    /// Name of the interface in the container.
    pub ifname: String,
}

/// Content of libcni's cache file for one ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedAdd {
    /// The container's network namespace; `None` before libcni 1.2.
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS`.
    pub args: String,
    /// `runtimeConfig`.
    pub runtime_config: Json,
    /// The result of the ADD.
    pub result: Option<Json>,
}

/// Parses Multus' file about a container. The first network gets `ifname`, the runtime's interface
/// name, unless the file requests another name. A network that can't be parsed is an error in the
/// returned list.
pub fn delegates(bytes: &[u8], ifname: &str) -> Result<Vec<Result<Delegate, Error>>, Error> {
    let Json::Array(items) = Json::parse(bytes, "Multus' file of the container")? else {
        return Err(Error::decode(
            "Multus' file of the container: expected a list",
        ));
    };
    if items.is_empty() || items.len() > MAX_NETWORKS {
        let sentence = format!(
            "Multus' file of the container: {} networks, not 1 to {MAX_NETWORKS}",
            items.len()
        );
        return Err(Error::config(sentence));
    }
    Ok(items
        .iter()
        .enumerate()
        .map(|(at, item)| delegate(item, at, ifname))
        .collect())
}

fn delegate(item: &Json, at: usize, ifname: &str) -> Result<Delegate, Error> {
    let named = item.str_or("Name", "")?;
    let context = |error: Error| {
        error.context(format_args!(
            "network {:?} in Multus' file",
            shortened(named)
        ))
    };
    let config = decoded(item, "Bytes").map_err(context)?;
    // Multus names networks `<namespace>/<name>`.
    let name = named.rsplit('/').next().unwrap_or_default();
    let definition = Definition::parse(config, name).map_err(context)?;
    let ifname = match (item.str_or("ifnameRequest", "").map_err(context)?, at) {
        ("", 0) => ifname.to_owned(),
        ("", _) => format!("net{at}"),
        (requested, _) => requested.to_owned(),
    };
    Ok(Delegate { definition, ifname })
}

/// Decodes the value of `key`: JSON in base64, as Go writes a byte slice.
fn decoded(item: &Json, key: &str) -> Result<Json, Error> {
    let bytes = STANDARD.decode(item.str_or(key, "")?);
    let bytes = bytes.map_err(|err| Error::decode(format!("{key:?}: {err}")))?;
    Json::parse(&bytes, key)
}

/// Returns the name of libcni's cache file for an ADD; `None` if it would contain `/` or NUL.
pub fn cache_name(network: &str, container_id: &str, ifname: &str) -> Option<String> {
    let name = format!("{network}-{container_id}-{ifname}");
    (!name.contains(['/', '\0'])).then_some(name)
}

/// Parses libcni's cache file for an ADD; `None` if the file is for another ADD. Two ADDs can share
/// a file name (`a-b` + `c` and `a` + `b-c`), so the names in the content are compared.
pub fn cached_add(
    bytes: &[u8],
    network: &str,
    container_id: &str,
    ifname: &str,
) -> Result<Option<CachedAdd>, Error> {
    let json = Json::parse(bytes, "libcni's cache")?;
    let says = |key: &str, value: &str| text_at(&json, key) == Some(value);
    if !(says("networkName", network)
        && says("containerId", container_id)
        && says("ifName", ifname))
    {
        return Ok(None);
    }
    let mut args = Vec::new();
    for pair in json.list("cniArgs")?.unwrap_or_default() {
        if let Json::Array(pair) = pair
            && let [Json::String(key), Json::String(value), ..] = pair.as_slice()
        {
            args.push(format!("{key}={value}"));
        }
    }
    Ok(Some(CachedAdd {
        netns: match json.str("netns")? {
            Some(path) if path.starts_with('/') => Some(PathBuf::from(path)),
            Some(_) | None => None,
        },
        args: args.join(";"),
        runtime_config: json
            .object("capabilityArgs")?
            .cloned()
            .unwrap_or_else(|| Json::object_of([])),
        result: json.object("result")?.cloned(),
    }))
}

/// Returns the container id and the interface name in libcni's cache file for an ADD; `None` if the
/// file can't be parsed.
pub fn cached_of(bytes: &[u8]) -> Option<(String, String)> {
    let json = Json::parse(bytes, "libcni's cache").ok()?;
    let container_id = text_at(&json, "containerId")?;
    let ifname = text_at(&json, "ifName")?;
    Some((container_id.to_owned(), ifname.to_owned()))
}

/// Returns the network in libcni's cache file for an ADD; `None` if the file is for another
/// container or can't be parsed. Used when Multus' own file is damaged.
pub fn cached_delegate(bytes: &[u8], container_id: &str) -> Option<Delegate> {
    let (container, ifname) = cached_of(bytes)?;
    if container != container_id {
        return None;
    }
    let json = Json::parse(bytes, "libcni's cache").ok()?;
    let network = text_at(&json, "networkName")?;
    let definition = Definition::parse(decoded(&json, "config").ok()?, network).ok()?;
    Some(Delegate { definition, ifname })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file as Multus 4.3 writes it, but with fewer keys: only those that Multus reads
    /// back.
    fn file(entries: &[(&str, &str, &str)]) -> Vec<u8> {
        let item = |(name, ifname, config): &(&str, &str, &str)| {
            let requested = if ifname.is_empty() {
                String::new()
            } else {
                format!(r#","ifnameRequest":"{ifname}""#)
            };
            let bytes = STANDARD.encode(config);
            format!(
                r#"{{"Conf":{{}},"ConfList":{{}},"Name":"{name}"{requested},"Bytes":"{bytes}"}}"#
            )
        };
        format!(
            "[{}]",
            entries.iter().map(item).collect::<Vec<_>>().join(",")
        )
        .into_bytes()
    }

    #[test]
    fn interfaces_are_named_as_multus_names_them() {
        let list = r#"{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"flannel"},{"type":"portmap"}]}"#;
        let bytes = file(&[
            ("", "", list),
            (
                "shop/lan",
                "",
                r#"{"cniVersion":"0.3.1","type":"macvlan","master":"eth1"}"#,
            ),
            (
                "shop/fast",
                "fast0",
                r#"{"cniVersion":"0.3.1","name":"of-conf","type":"host-device","device":"eth2"}"#,
            ),
        ]);
        let read: Vec<Delegate> = delegates(&bytes, "eth0")
            .unwrap()
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let named: Vec<(&str, &str)> = read
            .iter()
            .map(|one| (one.definition.name(), one.ifname.as_str()))
            .collect();
        assert_eq!(
            named,
            [("pods", "eth0"), ("lan", "net1"), ("of-conf", "fast0")]
        );
        assert_eq!(
            read[0].definition.types().collect::<Vec<_>>(),
            ["flannel", "portmap"]
        );
    }

    #[test]
    fn damaged_network_fails_alone_and_damaged_file_fails_all() {
        let bytes = file(&[("", "", "{"), ("a/b", "", r#"{"type":"ptp"}"#)]);
        let read = delegates(&bytes, "eth0").unwrap();
        assert!(read[0].is_err() && read[1].is_ok());
        for text in ["", "null", "[]", "{}", "[1", r#"[{"Bytes":"*"}]"#] {
            let all = delegates(text.as_bytes(), "eth0");
            assert!(
                all.is_err() || all.unwrap().iter().all(Result::is_err),
                "{text}"
            );
        }
        let many = vec![("", "", r#"{"type":"ptp"}"#); MAX_NETWORKS + 1];
        assert!(delegates(&file(&many), "eth0").is_err());
    }

    #[test]
    fn cached_add_is_read_only_for_its_own_names() {
        let text = r#"{"kind":"cniCacheV1","containerId":"c","config":"e30=","ifName":"net1","networkName":"n",
            "netns":"/run/netns/c","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAME","web"]],
            "capabilityArgs":{"mac":"02:00:00:00:00:01"},"result":{"cniVersion":"1.0.0"}}"#;
        let read = cached_add(text.as_bytes(), "n", "c", "net1")
            .unwrap()
            .unwrap();
        assert_eq!(read.args, "IgnoreUnknown=1;K8S_POD_NAME=web");
        assert_eq!(read.netns, Some("/run/netns/c".into()));
        assert_eq!(
            read.runtime_config.to_string(),
            r#"{"mac":"02:00:00:00:00:01"}"#
        );
        assert_eq!(
            read.result.unwrap().to_string(),
            r#"{"cniVersion":"1.0.0"}"#
        );
        assert_eq!(
            cached_add(text.as_bytes(), "n-c", "c", "net1").unwrap(),
            None
        );
        assert!(cached_add(b"{", "n", "c", "net1").is_err());
        assert_eq!(
            cached_of(text.as_bytes()),
            Some(("c".to_owned(), "net1".to_owned()))
        );
        assert!(cached_delegate(text.as_bytes(), "c").is_none(), "no type");
        let whole = text.replace("e30=", &STANDARD.encode(r#"{"type":"ptp"}"#));
        let delegate = cached_delegate(whole.as_bytes(), "c").unwrap();
        assert_eq!(
            (delegate.definition.name(), delegate.ifname.as_str()),
            ("n", "net1")
        );
        assert!(cached_delegate(whole.as_bytes(), "d").is_none());
        assert_eq!(cache_name("n", "c", "net1").as_deref(), Some("n-c-net1"));
        assert_eq!(cache_name("../n", "c", "net1"), None);
    }
}
