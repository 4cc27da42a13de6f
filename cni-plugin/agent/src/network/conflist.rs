//! The node's conflist for the default network.

use braid_node::source::files;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Name of the network. Leases of host-local are in a folder of this name.
const NETWORK: &str = "pods";
/// Runtimes ask only a list of this version for STATUS.
const VERSION: &str = "1.1.0";

/// Key by which the agent knows a list that it wrote. Runtimes ignore it.
const AUTHOR_KEY: &str = "writtenBy";
const AUTHOR: &str = "braid agent";
/// Endings of the files that runtimes read as network configurations.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// Values of the conflist that differ between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// Ranges of the node's pods, at least one.
    pub ranges: Vec<IpNet>,
    /// MTU of the pods' interfaces in bytes.
    pub mtu: u32,
    /// Path of the kubeconfig with which a call queries the API server.
    pub kubeconfig: String,
}

/// Returns the text of the conflist. IPv4 ranges come first, as the first address of a pod is the
/// one in `status.podIP`.
pub fn text(values: &Values) -> String {
    let mut ranges = values.ranges.clone();
    ranges.sort_by_key(|range| matches!(range, IpNet::V6(_)));
    let mut subnets: Vec<Value> = Vec::new();
    let mut routes: Vec<Value> = Vec::new();
    for range in &ranges {
        subnets.push(json!([{"subnet": range.to_string()}]));
        let all = match range {
            IpNet::V4(_) => "0.0.0.0/0",
            IpNet::V6(_) => "::/0",
        };
        routes.push(json!({"dst": all}));
    }
    let list = json!({
        "cniVersion": VERSION,
        "name": NETWORK,
        AUTHOR_KEY: AUTHOR,
        "plugins": [{
            "type": "braid",
            "kubeconfig": values.kubeconfig,
            "capabilities": {
                "bandwidth": true,
                "portMappings": true,
                "io.kubernetes.cri.pod-annotations": true,
            },
            "plugins": [
                {
                    "type": "ptp",
                    "mtu": values.mtu,
                    "ipam": {"type": "host-local", "ranges": subnets, "routes": routes},
                },
                {"type": "portmap", "capabilities": {"portMappings": true}},
            ],
        }],
    });
    format!("{list:#}\n")
}

/// Returns the reason not to write the conflist `path`; `None` if the agent may. A list of another
/// program stays as it is. Before its first own list, the agent does not shadow another network
/// configuration of the folder either, because running pods would lose their network.
pub fn refusal(path: &Path) -> io::Result<Option<String>> {
    let foreign = |path: &Path| format!("{} is another program's network", path.display());
    match files::bytes(path) {
        Ok(found) => Ok((!is_own(&found)).then(|| foreign(path))),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            let other = first_other(path)?;
            Ok(other.map(|other| foreign(&other)))
        }
        Err(err) => Err(err),
    }
}

/// True if the agent wrote the file; false if there is none.
pub fn is_own_file(path: &Path) -> io::Result<bool> {
    match files::bytes(path) {
        Ok(found) => Ok(is_own(&found)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

fn is_own(text: &[u8]) -> bool {
    let list: Option<Value> = serde_json::from_slice(text).ok();
    list.is_some_and(|list| list[AUTHOR_KEY] == AUTHOR)
}

/// Returns the first network configuration beside `path`.
fn first_other(path: &Path) -> io::Result<Option<PathBuf>> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut others = Vec::new();
    for entry in entries {
        let other = entry?.path();
        let ending = other.extension().and_then(OsStr::to_str);
        let is_hidden = other
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            others.push(other);
        }
    }
    Ok(others.into_iter().min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_other_programs_stay_and_are_not_shadowed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let own = folder.path().join("net.d/00-braid.conflist");
        let other = folder.path().join("net.d/10-flannel.conflist");
        let message =
            |path: &Path| Some(format!("{} is another program's network", path.display()));
        assert_eq!(refusal(&own)?, None, "the folder does not exist");
        fs::create_dir_all(folder.path().join("net.d/braid.d"))?;
        fs::write(folder.path().join("net.d/README"), "")?;
        assert_eq!(refusal(&own)?, None);
        fs::write(&other, "{}")?;
        assert_eq!(refusal(&own)?, message(&other));
        fs::write(&own, text(&values()))?;
        assert_eq!(refusal(&own)?, None, "the decision was made before");
        fs::write(&own, r#"{"name": "pods"}"#)?;
        assert_eq!(refusal(&own)?, message(&own));
        Ok(())
    }

    fn values() -> Values {
        Values {
            ranges: ["fd00:1::/64", "10.244.1.0/24"]
                .map(|text| text.parse().expect("a range"))
                .to_vec(),
            mtu: 1450,
            kubeconfig: "/etc/cni/net.d/braid.d/kubeconfig".into(),
        }
    }

    #[test]
    fn ranges_of_both_families_become_one_network_with_ipv4_first() {
        let list: Value = serde_json::from_str(&text(&values())).expect("json");
        let network = &list["plugins"][0]["plugins"][0];
        assert_eq!(list["cniVersion"], "1.1.0");
        assert_eq!(network["mtu"], 1450);
        assert_eq!(
            network["ipam"],
            json!({
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            })
        );
    }
}
