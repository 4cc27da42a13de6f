//! Network configuration files, converted to the calls that a runtime would make.

use super::output;
use braid_core::cni::netconf_list::Injected;
use braid_core::cni::{Attachment, Command, Error, Json, NetConf, NetConfList, Request};
use braid_core::k8s::settings::Settings;
use braid_core::name::IfName;
use braid_node::attach::chain::{BRAID, Chain};
use braid_node::attach::invocation::{Invocation, Wanted};
use braid_node::ipam::host_local;
use braid_node::source::files;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Default search path for external plugins, replaced by `CNI_PATH`.
const PLUGIN_FOLDERS: &str = "/opt/cni/bin:/usr/lib/cni";

/// Folder of a node's network configurations.
pub(super) const CONF_DIR: &str = "/etc/cni/net.d";

/// Returns the key `type` of a plugin's configuration, if it is a string.
pub(super) fn type_of(plugin: &Json) -> Option<&str> {
    plugin.get("type")?.as_str()
}

/// Returns the configuration of each plugin in the node's network configurations. Skips invalid
/// files. Also skips a path that is not a regular file, and reports the path on standard error.
pub(super) fn of_node() -> Vec<NetConf> {
    let mut confs = Vec::new();
    for entry in std::fs::read_dir(CONF_DIR).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            continue;
        }
        match files::bytes(&path) {
            Ok(bytes) => confs.extend(plugins_of(&bytes).into_iter().flatten()),
            Err(err) if err.kind() == ErrorKind::InvalidInput => {
                output::tell(format_args!("{}: skipped: {err}", path.display()));
            }
            Err(_) => {}
        }
    }
    confs
}

/// Returns the folders in which these configurations keep `host-local` leases.
pub(super) fn folders_of_leases(confs: &[NetConf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for conf in confs {
        for conf in of_plugins(conf.clone()).into_iter().flatten() {
            if ![conf.ipam.as_str(), conf.plugin.as_str()].contains(&"host-local") {
                continue;
            }
            if let Ok(config) = host_local::HostLocalConfig::parse_for_release(&conf) {
                folders.push(config.path());
            }
        }
    }
    folders
}

/// Returns the configurations of type `braid` that attach pods, with their parsed settings.
pub(super) fn of_pods(confs: Vec<NetConf>) -> Vec<(NetConf, Settings)> {
    let mut found = Vec::new();
    for conf in confs {
        if conf.plugin == BRAID
            && let Ok(Some(settings)) = Settings::of(&conf)
        {
            found.push((conf, settings));
        }
    }
    found
}

/// Parses a network configuration of the node. Returns the configurations that a runtime would pass
/// to the network's plugins, one for each plugin.
fn plugins_of(bytes: &[u8]) -> Result<Vec<NetConf>, Error> {
    let json = Json::parse(bytes, "network config")?;
    if !json.has("plugins") || json.has("type") {
        return Ok(vec![NetConf::from_json(json)?]);
    }
    plugin_confs(&NetConfList::from_json(&json)?)
}

/// Returns the configuration for each plugin of a list.
fn plugin_confs(list: &NetConfList) -> Result<Vec<NetConf>, Error> {
    let mut confs = Vec::new();
    for at in 0..list.plugins.len() {
        confs.push(list.plugin_conf(at, &Injected::default())?);
    }
    Ok(confs)
}

/// Returns one configuration for each plugin in the list of a `braid` configuration. Any other
/// configuration is returned as it is.
fn of_plugins(conf: NetConf) -> Result<Vec<NetConf>, Error> {
    match NetConfList::from_braid(&conf)? {
        Some(list) if conf.plugin == BRAID => plugin_confs(&list),
        _ => Ok(vec![conf]),
    }
}

/// Reads a configuration file; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<NetConf, Error> {
    let bytes =
        content(path).map_err(|err| Error::io(format!("read {}: {err}", path.display())))?;
    parse(&bytes).map_err(|err| err.context(path.display()))
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the configuration of a single plugin or of a list. A list becomes one configuration of
/// type `braid`. A list with only a `braid` plugin, as in a node's `/etc/cni/net.d`, becomes the
/// configuration of that plugin.
fn parse(bytes: &[u8]) -> Result<NetConf, Error> {
    let mut json = Json::parse(bytes, "network config")?;
    if !json.has("plugins") || json.has("type") {
        return NetConf::from_json(json);
    }
    let list = NetConfList::from_json(&json)?;
    if let [plugin] = list.plugins.as_slice()
        && type_of(plugin) == Some(BRAID)
    {
        json = plugin.clone();
        json.set("name", list.name.as_str());
    }
    json.set("type", BRAID);
    json.set("cniVersion", list.version.as_str());
    NetConf::from_json(json)
}

/// Returns the call that attaches a container to the networks in these files. Interfaces after the
/// first are named `net1`, `net2` and so on.
pub(super) fn call(files: &[PathBuf], attachment: &Attachment) -> Result<Invocation, Error> {
    let mut confs = Vec::new();
    for file in files {
        confs.push(read(file)?);
    }
    call_of(confs, attachment)
}

fn call_of(confs: Vec<NetConf>, attachment: &Attachment) -> Result<Invocation, Error> {
    let path = plugin_path();
    let mut confs = confs.into_iter();
    let conf = confs
        .next()
        .ok_or_else(|| Error::config("no network configuration"))?;
    if NetConfList::from_braid(&conf)?.is_none() && Settings::of(&conf)?.is_some() {
        let sentence = "it attaches pods to the networks of their annotations; pass the pod's manifest with -f";
        return Err(Error::config(format!(
            "network {:?}: {sentence}",
            conf.name
        )));
    }
    let attachment = attachment.clone();
    let (command, args) = (Command::Add, attachment.args.clone());
    let request = Request {
        command,
        attachment: Some(attachment),
        path,
        netns_override: false,
        conf,
    };
    let mut call = Invocation::of(request, BRAID)?;
    for (index, conf) in confs.enumerate() {
        let ifname = IfName::parse(&format!("net{}", index + 1))
            .map_err(|err| Error::internal(err.to_string()))?;
        let attachment = Attachment {
            ifname,
            ..call.first().clone()
        };
        let chain = Chain::parse(BRAID, conf, &args, &call.path)?;
        call.push(Wanted::new(attachment, chain))?;
    }
    Ok(call)
}

/// Returns the folders in which external plugins are searched.
pub(super) fn plugin_path() -> Vec<PathBuf> {
    let folders = std::env::var_os("CNI_PATH").unwrap_or_else(|| PLUGIN_FOLDERS.into());
    std::env::split_paths(&folders)
        .filter(|folder| folder.is_absolute())
        .collect()
}

/// Returns the attachment of a container's interface. `args` is the value of `CNI_ARGS`. Fails if
/// the container id or the interface name is invalid.
pub(super) fn attachment(
    container_id: &str,
    ifname: &str,
    netns: Option<PathBuf>,
    args: &str,
) -> Result<Attachment, Error> {
    if !braid_core::cni::netconf::is_identifier(container_id) {
        return Err(Error::env(format!(
            "{container_id:?} is not a container id: letters, digits, \"_\", \".\" and \"-\""
        )));
    }
    let ifname = IfName::parse(ifname).map_err(|err| Error::env(format!("{ifname:?}: {err}")))?;
    Ok(Attachment {
        container_id: container_id.to_owned(),
        ifname,
        netns,
        args: args.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(text: &str) -> (String, String, usize) {
        let conf = parse(text.as_bytes()).expect("a configuration");
        let attachment = attachment("c", "eth0", None, "").expect("an attachment");
        let call = call_of(vec![conf], &attachment).expect("a chain");
        let chain = &call.wanted[0].chain;
        (
            chain.network().to_owned(),
            chain.conf.version.to_string(),
            chain.items.len(),
        )
    }

    #[test]
    fn file_holds_a_plugin_or_a_list_or_a_nodes_braid() {
        let plugins = r#""plugins":[{"type":"bridge"},{"type":"portmap-of-others"}]"#;
        let single = r#"{"name":"n","cniVersion":"1.0.0","type":"bridge"}"#;
        assert_eq!(types(single), ("n".to_owned(), "1.0.0".to_owned(), 1));
        let list = format!(r#"{{"name":"n","cniVersions":["0.4.0","1.1.0"],{plugins}}}"#);
        assert_eq!(types(&list), ("n".to_owned(), "1.1.0".to_owned(), 2));
        let node = format!(
            r#"{{"name":"n","cniVersion":"1.0.0","plugins":[{{"type":"braid",{plugins}}}]}}"#
        );
        assert_eq!(types(&node), ("n".to_owned(), "1.0.0".to_owned(), 2));
        let typed = format!(r#"{{"name":"n","cniVersion":"0.4.0","type":"braid",{plugins}}}"#);
        assert_eq!(types(&typed), ("n".to_owned(), "0.4.0".to_owned(), 2));
    }

    #[test]
    fn a_configuration_that_attaches_pods_needs_a_pod() {
        let conf = parse(br#"{"name":"n","cniVersion":"1.0.0","type":"braid","kubeconfig":"/k","clusterNetwork":"c"}"#);
        let attachment = attachment("c", "eth0", None, "").expect("an attachment");
        let refused = call_of(vec![conf.expect("a configuration")], &attachment)
            .expect_err("there is no pod");
        assert!(
            refused.msg.ends_with("pass the pod's manifest with -f"),
            "{refused}"
        );
    }

    #[test]
    fn configuration_that_attaches_pods_is_found_alone_and_with_chained_plugins() {
        let braid = r#"{"type":"braid","kubeconfig":"/k","clusterNetwork":"c"}"#;
        for (plugins, expected) in [
            (braid.to_owned(), 1),
            (format!(r#"{braid},{{"type":"mesh"}}"#), 1),
            (
                r#"{"type":"braid","plugins":[{"type":"bridge"}]}"#.to_owned(),
                0,
            ),
            (
                r#"{"type":"multus","kubeconfig":"/k","clusterNetwork":"c"}"#.to_owned(),
                0,
            ),
        ] {
            let list = format!(r#"{{"name":"n","cniVersion":"1.0.0","plugins":[{plugins}]}}"#);
            let found = of_pods(plugins_of(list.as_bytes()).expect("a configuration"));
            assert_eq!(found.len(), expected, "{plugins}");
            assert!(found.iter().all(|(conf, _)| conf.name == "n"), "{plugins}");
        }
    }

    #[test]
    fn a_container_id_never_becomes_a_path() {
        for bad in ["", "../x", "a/b", "-x", "a b"] {
            assert!(attachment(bad, "eth0", None, "").is_err(), "{bad:?}");
        }
    }
}
