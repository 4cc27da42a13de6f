//! Network configurations of other programs beside the conflist.

use braid_core::cni::Json;
use braid_core::k8s::takeover::plugins_of;
use braid_core::k8s::text_at;
use braid_node::source::files;
use braid_node::takeover::examples::is_example;
use braid_node::takeover::names_of;
use braid_node::takeover::root::Root;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

/// Time after which an invalid file counts as abandoned. Until then another program may still be
/// writing it.
const WRITING: Duration = Duration::from_secs(10);

/// Configurations beside the conflist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others {
    /// Paths of networks, in the order in which runtimes choose one.
    pub networks: Vec<PathBuf>,
    /// Names of files that are not networks of a cluster: examples of other programs, and invalid
    /// files.
    pub ignored: BTreeSet<String>,
    /// File that another program may be writing.
    pub unfinished: Option<PathBuf>,
}

impl Others {
    /// Reads the folder of `conflist`.
    pub fn beside(conflist: &Path, now: SystemTime) -> io::Result<Self> {
        let folder = conflist.parent().unwrap_or(Path::new("/"));
        let names = match names_of(&Root::of_container(), folder) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names?,
        };
        let mut others = Self::default();
        for name in names {
            let path = folder.join(&name);
            if path == conflist {
                continue;
            }
            match network_at(&path) {
                Some(json) if is_example(&json) => {
                    others.ignored.insert(name);
                }
                Some(_) => others.networks.push(path),
                None => {
                    if is_fresh(&path, now) {
                        others.unfinished.get_or_insert(path);
                    }
                    others.ignored.insert(name);
                }
            }
        }
        Ok(others)
    }
}

/// Returns the network in a file; `None` if runtimes cannot load it.
fn network_at(path: &Path) -> Option<Json> {
    let json = Json::parse(&files::bytes(path).ok()?, "the list").ok()?;
    let is_valid = |plugin: &Json| text_at(plugin, "type").is_some_and(|kind| !kind.is_empty());
    let plugins = plugins_of(&json);
    (!plugins.is_empty() && plugins.iter().all(is_valid)).then_some(json)
}

/// True if the file was changed a moment ago.
fn is_fresh(path: &Path, now: SystemTime) -> bool {
    let changed = fs::metadata(path).and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| {
        let age = now.duration_since(changed);
        age.is_ok_and(|age| age < WRITING)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLANNEL: &str = r#"{"name": "cbr0", "cniVersion": "0.3.1", "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
    const PODMAN: &str = r#"{"cniVersion": "0.4.0", "name": "podman", "plugins": [
        {"type": "bridge", "bridge": "cni-podman0", "isGateway": true, "ipMasq": true, "ipam":
            {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}},
        {"type": "portmap"}, {"type": "firewall"}, {"type": "tuning"}]}"#;
    const CRIO: &str = r#"{"cniVersion": "1.0.0", "name": "crio", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam":
            {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
             "ranges": [[{"subnet": "10.85.0.0/16"}], [{"subnet": "1100:200::/24"}]]}}]}"#;

    #[test]
    fn examples_of_packages_and_the_loopback_are_not_networks_of_a_cluster() {
        let old = r#"{"cniVersion": "0.3.1", "name": "crio-bridge", "type": "bridge",
            "bridge": "cni0", "ipam": {"type": "host-local", "subnet": "10.85.0.0/16"}}"#;
        let loopback = r#"{"cniVersion": "1.0.0", "name": "loopback", "type": "loopback"}"#;
        let list = r#"{"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}"#;
        let with_own_range = CRIO.replace("10.85.0.0/16", "10.244.1.0/24");
        let with_own_bridge = PODMAN.replace("cni-podman0", "cni0");
        for (text, expected) in [
            (PODMAN, true),
            (CRIO, true),
            (old, true),
            (loopback, true),
            (list, true),
            (FLANNEL, false),
            (&with_own_range, false),
            (&with_own_bridge, false),
        ] {
            let json = Json::parse(text.as_bytes(), "a test").expect("JSON");
            assert_eq!(is_example(&json), expected, "{text}");
        }
    }

    #[test]
    fn networks_are_found_in_the_order_of_runtimes_and_invalid_files_are_waited_for_briefly()
    -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("braid.d"))?;
        for (name, text) in [
            ("00-braid.conflist", "{}"),
            ("10-flannel.conflist", FLANNEL),
            ("05-half.conflist", r#"{"name": "#),
            ("20-none.conflist", r#"{"name": "n", "plugins": []}"#),
            ("87-podman-bridge.conflist", PODMAN),
            ("09-a.conf", r#"{"name": "a", "type": "bridge"}"#),
            ("README", ""),
        ] {
            fs::write(at(name), text)?;
        }
        let changed = fs::metadata(at("05-half.conflist"))?.modified()?;
        let own = at("00-braid.conflist");
        let mut expected = Others {
            networks: vec![at("09-a.conf"), at("10-flannel.conflist")],
            ignored: [
                "05-half.conflist",
                "20-none.conflist",
                "87-podman-bridge.conflist",
            ]
            .map(str::to_owned)
            .into(),
            unfinished: Some(at("05-half.conflist")),
        };
        assert_eq!(Others::beside(&own, changed)?, expected);
        expected.unfinished = None;
        assert_eq!(Others::beside(&own, changed + WRITING * 2)?, expected);
        let missing = Others::beside(&at("none/00-braid.conflist"), changed)?;
        assert_eq!(missing, Others::default());
        Ok(())
    }
}
