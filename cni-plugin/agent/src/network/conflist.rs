//! The node's conflist for the default network.
//!
//! ```text
//!  others ─ networks of other programs in the folder
//!  choice ─ braid's own network, or the first of the others
//!  list ─ the conflist of either
//! ```

pub mod choice;
pub mod others;

use crate::cluster::config::Kind;
use braid_core::cni::Json;
use braid_core::k8s::takeover::{self, Conf, Known};
use braid_core::k8s::text_at;
use braid_node::source::files;
use braid_node::takeover::root::Root;
use braid_node::takeover::{Made, Programs, Site};
use choice::Choice;
use ipnet::IpNet;
use others::Others;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the network. Leases of host-local are in a folder of this name.
const NETWORK: &str = "pods";
/// Bridge of a default network of type `bridge`.
pub(crate) const BRIDGE: &str = "braid0";
/// Runtimes ask only a list of this version for STATUS.
const VERSION: &str = "1.1.0";
/// Capability by which containerd passes the pod's annotations to the call.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Key of the list's entry for [`ROUTES_FILE`], which only calls of STATUS read.
const ROUTES_KEY: &str = "routesFile";
/// Key of the list's entry for the folder of the kubelet.
const KUBELET_KEY: &str = "kubeletRootDir";
/// File that exists once the routes of this boot are set. `/run` is empty after a boot.
pub const ROUTES_FILE: &str = "/run/braid/routes";
/// Key by which the agent knows a list that it wrote. Runtimes ignore it.
const AUTHOR_KEY: &str = "writtenBy";
const AUTHOR: &str = "braid agent";
/// Key with the file from which a list was taken. Runtimes ignore it.
const SOURCE_KEY: &str = "takenFrom";

/// Paths that a conflist has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paths<'a> {
    /// The conflist.
    pub conflist: &'a Path,
    /// Kubeconfig with which a call queries the API server.
    pub kubeconfig: &'a Path,
    /// Folder of the kubelet, if it is not the usual one.
    pub kubelet_root_dir: Option<&'a Path>,
}

/// Values of braid's own network that differ between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// Ranges of the node's pods, at least one.
    pub ranges: Vec<IpNet>,
    /// MTU of the pods' interfaces in bytes.
    pub mtu: u32,
    /// Type of the network.
    pub kind: Kind,
}

/// Default network of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultNetwork {
    /// File with the network of another program; `None` for braid's own.
    pub source: Option<PathBuf>,
    /// Networks of other programs beside the conflist.
    pub others: Others,
}

impl DefaultNetwork {
    /// Reads the conflist and its folder. The inner error is the reason why there is no default
    /// network yet.
    pub fn observe(conflist: &Path, now: SystemTime) -> io::Result<Result<Self, String>> {
        let others = Others::beside(conflist, now)?;
        let source = match choice::choose(conflist, &Present::read(conflist)?, &others) {
            Choice::Own => None,
            Choice::Other(source) => Some(source),
            Choice::NotYet(why) => return Ok(Err(why)),
        };
        Ok(Ok(Self { source, others }))
    }

    /// Returns a sentence for each file of another program: the default network, and networks that
    /// appeared after the decision.
    pub fn remarks(&self, conflist: &Path) -> Vec<String> {
        let other = |path: &Path| format!("{} is another program's network", path.display());
        match &self.source {
            Some(source) if source == conflist => Vec::new(),
            Some(source) => vec![format!(
                "{}: it stays, and is the default network",
                other(source)
            )],
            None => {
                let late = self.others.networks.iter();
                let sentence = |path: &PathBuf| {
                    if path.file_name() < conflist.file_name() {
                        format!("{}: runtimes use it, as it sorts first", other(path))
                    } else {
                        format!("{}: it came later and is not used", other(path))
                    }
                };
                late.map(sentence).collect()
            }
        }
    }
}

/// Returns the reason why runtimes do not call braid for pods.
pub fn obstacle(conflist: &Path, now: SystemTime) -> Option<String> {
    let read = || -> io::Result<Option<String>> {
        let others = Others::beside(conflist, now)?;
        let present = Present::read(conflist)?;
        Ok(choice::obstacle(conflist, &present, &others))
    };
    let failed = |err| Some(format!("read {}: {err}", conflist.display()));
    read().unwrap_or_else(failed)
}

/// The conflist on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum Present {
    /// There is none.
    Missing,
    /// The file is not valid JSON.
    Invalid,
    /// A list, of whomever.
    List(Json),
}

impl Present {
    /// Reads the conflist.
    pub fn read(conflist: &Path) -> io::Result<Self> {
        match files::bytes(conflist) {
            Ok(bytes) => Ok(Json::parse(&bytes, "the list").map_or(Self::Invalid, Self::List)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(err) => Err(err),
        }
    }

    /// Returns the list, if the file has one.
    pub fn list(self) -> Option<Json> {
        match self {
            Self::List(list) => Some(list),
            Self::Missing | Self::Invalid => None,
        }
    }
}

/// True if an agent wrote the list.
pub fn is_own(list: &Json) -> bool {
    text_at(list, AUTHOR_KEY) == Some(AUTHOR)
}

/// Returns the conflist with braid's own network. Entries that other programs added to the present
/// list are kept.
pub fn own(values: &Values, paths: Paths<'_>, present: Option<Json>) -> Result<Json, String> {
    let text = network(values).to_string();
    let network = Json::parse(text.as_bytes(), "the network").map_err(|err| err.to_string())?;
    let known = Known {
        own: paths.conflist.display().to_string(),
        kubeconfig: paths.kubeconfig.display().to_string(),
        first: Conf {
            path: paths.conflist.display().to_string(),
            json: network,
        },
        others: Vec::new(),
        former: present,
        daemon: None,
        paths: BTreeMap::new(),
        named: BTreeMap::new(),
    };
    let list = takeover::list(&known).map_err(|err| err.to_string())?;
    Ok(finished(list, None, paths, true))
}

/// Returns the list with braid's own network. IPv4 ranges come first, as the first address of a pod
/// is the one in `status.podIP`.
fn network(values: &Values) -> Value {
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
    let mut network = json!({
        "type": values.kind.name(),
        "mtu": values.mtu,
        "ipam": {"type": "host-local", "ranges": subnets, "routes": routes},
    });
    if values.kind == Kind::Bridge {
        network["bridge"] = BRIDGE.into();
        network["isGateway"] = true.into();
        network["hairpinMode"] = true.into();
        // The bridge follows a Node that was registered again with other ranges.
        network["forceAddress"] = true.into();
    }
    json!({
        "name": NETWORK,
        "plugins": [{
            "type": "braid",
            "capabilities": {"bandwidth": true, "portMappings": true},
            "plugins": [network, {"type": "portmap", "capabilities": {"portMappings": true}}],
        }],
    })
}

/// Returns the conflist with the network of another program in the file `source` as the default
/// network. Logs what must become true before pods start. `is_routed` is true if the agent sets the
/// routes.
pub fn taken(
    source: &Path,
    paths: Paths<'_>,
    others: &Others,
    is_routed: bool,
) -> Result<Json, String> {
    // The runtime's plugin folder is not visible in the agent's container.
    let site = Site {
        root: &Root::of_container(),
        programs: Programs {
            folder: Path::new("the runtime's plugin folder"),
            is_present: &|_| Ok(true),
        },
        conflist: paths.conflist,
        kubeconfig: paths.kubeconfig,
        first: Some(source),
        ignored: &others.ignored,
        elsewhere: &|_| None,
    };
    match site.list()? {
        Made::List(list, remarks) => {
            for remark in remarks {
                tracing::debug!(remark, "default network of another program");
            }
            Ok(finished(list, Some(source), paths, is_routed))
        }
        Made::NotYet(why) => Err(why),
    }
}

/// Sets the keys of each list that the agent writes.
fn finished(mut list: Json, source: Option<&Path>, paths: Paths<'_>, is_routed: bool) -> Json {
    list.set("cniVersion", VERSION);
    list.set(AUTHOR_KEY, AUTHOR);
    list.remove(SOURCE_KEY);
    if let Some(source) = source {
        list.set(SOURCE_KEY, source.display().to_string().as_str());
    }
    let mut entries = takeover::plugins_of(&list).to_vec();
    for entry in &mut entries {
        if text_at(entry, "type") == Some("braid") {
            let mut capabilities = match entry.get("capabilities") {
                Some(given @ Json::Object(_)) => given.clone(),
                Some(_) | None => Json::object_of([]),
            };
            capabilities.set(ANNOTATIONS, true);
            entry.set("capabilities", capabilities);
            entry.remove(ROUTES_KEY);
            if is_routed {
                entry.set(ROUTES_KEY, ROUTES_FILE);
            }
            entry.remove(KUBELET_KEY);
            if let Some(folder) = paths.kubelet_root_dir {
                entry.set(KUBELET_KEY, folder.display().to_string().as_str());
            }
        }
    }
    list.set("plugins", entries);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn values(kind: Kind) -> Values {
        Values {
            ranges: ["fd00:1::/64", "10.244.1.0/24"]
                .map(|text| text.parse().expect("a range"))
                .to_vec(),
            mtu: 1450,
            kind,
        }
    }

    fn paths() -> Paths<'static> {
        Paths {
            conflist: Path::new("/etc/cni/net.d/00-braid.conflist"),
            kubeconfig: Path::new("/etc/cni/net.d/braid.d/kubeconfig"),
            kubelet_root_dir: None,
        }
    }

    fn parsed(list: &Json) -> Value {
        serde_json::from_str(&list.pretty()).expect("JSON")
    }

    #[test]
    fn ranges_of_both_families_become_one_network_with_ipv4_first() {
        let list = parsed(&own(&values(Kind::Ptp), paths(), None).expect("a list"));
        let ipam = json!({
            "type": "host-local",
            "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        });
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        let expected = json!({
            "cniVersion": "1.1.0",
            "name": "pods",
            "writtenBy": "braid agent",
            "plugins": [{
                "type": "braid",
                "kubeconfig": "/etc/cni/net.d/braid.d/kubeconfig",
                "capabilities": {
                    "bandwidth": true,
                    "portMappings": true,
                    "io.kubernetes.cri.pod-annotations": true,
                },
                "routesFile": "/run/braid/routes",
                "plugins": [{"type": "ptp", "mtu": 1450, "ipam": ipam}, portmap],
            }],
        });
        assert_eq!(list, expected);
    }

    #[test]
    fn the_type_is_configured_and_a_bridge_is_the_gateway_of_its_pods() {
        let network = |kind| {
            parsed(&own(&values(kind), paths(), None).expect("a list"))["plugins"][0]["plugins"][0]
                .clone()
        };
        assert_eq!(network(Kind::Netkit)["type"], "netkit");
        let bridge = network(Kind::Bridge);
        for (key, value) in [
            ("type", json!("bridge")),
            ("bridge", json!("braid0")),
            ("isGateway", json!(true)),
            ("hairpinMode", json!(true)),
            ("mtu", json!(1450)),
        ] {
            assert_eq!(bridge[key], value, "{key}");
        }
        assert_eq!(bridge.get("ipMasq"), None, "the agent masquerades");
    }

    #[test]
    fn entries_that_other_programs_added_survive_and_a_second_list_is_equal() {
        let first = own(&values(Kind::Ptp), paths(), None).expect("a list");
        let mut edited = parsed(&first);
        let chained = json!({"type": "linkerd-cni", "log_level": "info"});
        edited["plugins"]
            .as_array_mut()
            .expect("a list")
            .push(chained.clone());
        edited["plugins"][0]["plugins"][0]["mtu"] = 9000.into();
        let edited = Json::parse(edited.to_string().as_bytes(), "a test").expect("JSON");
        let second = own(&values(Kind::Ptp), paths(), Some(edited)).expect("a list");
        let plugins = &parsed(&second)["plugins"];
        assert_eq!(plugins[0], parsed(&first)["plugins"][0]);
        assert_eq!(plugins[1], chained);
        let third = own(&values(Kind::Ptp), paths(), Some(second.clone()));
        assert_eq!(third, Ok(second));
    }

    #[test]
    fn another_folder_of_the_kubelet_is_in_the_list_as_long_as_it_is_configured() {
        let elsewhere = Paths {
            kubelet_root_dir: Some(Path::new("/srv/kubelet")),
            ..paths()
        };
        let list = own(&values(Kind::Ptp), elsewhere, None).expect("a list");
        let entry = &parsed(&list)["plugins"][0];
        assert_eq!(entry["kubeletRootDir"], "/srv/kubelet");
        let usual = own(&values(Kind::Ptp), paths(), Some(list)).expect("a list");
        assert_eq!(parsed(&usual)["plugins"][0].get("kubeletRootDir"), None);
    }

    /// Writes the files and returns the list that is taken from the one named `source`, twice.
    fn taken_from(source: &str, files: &[(&str, &str)]) -> Result<Value, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            let text = text.replace("{folder}", &folder.path().display().to_string());
            fs::write(path, text).expect("a file");
        }
        let conflist = folder.path().join("00-braid.conflist");
        let paths = Paths {
            conflist: &conflist,
            kubeconfig: Path::new("/k"),
            kubelet_root_dir: None,
        };
        let source = folder.path().join(source);
        let make = || {
            let others = Others::beside(&conflist, std::time::SystemTime::now()).expect("a folder");
            taken(&source, paths, &others, false)
        };
        let first = make()?;
        fs::write(&conflist, first.pretty()).expect("a file");
        assert_eq!(make(), Ok(first.clone()), "a second list is equal");
        let text = first.pretty();
        let text = text.replace(&folder.path().display().to_string(), "/n");
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    const FLANNEL: &str = r#"{"name": "cbr0", "cniVersion": "0.3.1", "plugins": [
        {"type": "flannel", "delegate": {"hairpinMode": true}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

    #[test]
    fn a_network_of_another_program_becomes_the_default_network() {
        let list = taken_from("10-flannel.conflist", &[("10-flannel.conflist", FLANNEL)]);
        let expected = json!({
            "cniVersion": "1.1.0",
            "name": "cbr0",
            "loadOnlyInlinedPlugins": true,
            "writtenBy": "braid agent",
            "takenFrom": "/n/10-flannel.conflist",
            "plugins": [{
                "type": "braid",
                "clusterNetwork": "/n/10-flannel.conflist",
                "kubeconfig": "/k",
                "capabilities": {
                    "portMappings": true,
                    "io.kubernetes.cri.pod-annotations": true,
                },
            }],
        });
        assert_eq!(list, Ok(expected));
    }

    #[test]
    fn multus_is_taken_over_with_its_keys_paths_and_chained_plugins() {
        let multus = r#"{"cniVersion": "0.3.1", "name": "multus-cni-network", "plugins": [
            {"type": "multus", "namespaceIsolation": true, "kubeconfig": "/etc/multus.kubeconfig",
             "clusterNetwork": "/host{folder}/10-flannel.conflist"},
            {"type": "istio-cni", "log_level": "info"}]}"#;
        let files = [
            ("00-multus.conflist", multus),
            ("10-flannel.conflist", FLANNEL),
        ];
        let list = taken_from("00-multus.conflist", &files).expect("a list");
        let entry = &list["plugins"][0];
        assert_eq!(entry["type"], "braid");
        assert_eq!(entry["namespaceIsolation"], true);
        assert_eq!(entry["kubeconfig"], "/k");
        assert_eq!(entry["clusterNetwork"], "/n/10-flannel.conflist");
        assert_eq!(list["plugins"][1]["type"], "istio-cni");
        assert_eq!(list["takenFrom"], "/n/00-multus.conflist");
    }

    #[test]
    fn a_list_of_install_is_taken_over_with_its_network_and_settings() {
        let installed = r#"{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
            {"type": "braid", "kubeconfig": "/old", "clusterNetwork": "{folder}/10-flannel.conflist",
             "capabilities": {"portMappings": true}, "defaultNetworks": ["storage"]},
            {"type": "linkerd-cni"}]}"#;
        let files = [
            ("00-braid.conflist", installed),
            ("10-flannel.conflist", FLANNEL),
        ];
        let list = taken_from("00-braid.conflist", &files).expect("a list");
        let entry = &list["plugins"][0];
        assert_eq!(list["cniVersion"], "1.1.0");
        assert_eq!(entry["kubeconfig"], "/k");
        assert_eq!(entry["clusterNetwork"], "/n/10-flannel.conflist");
        assert_eq!(entry["defaultNetworks"], json!(["storage"]));
        assert_eq!(entry["capabilities"]["portMappings"], true);
        assert_eq!(list["plugins"][1]["type"], "linkerd-cni");
    }

    #[test]
    fn braid_never_becomes_its_own_default_network() {
        let circle = r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "braid", "kubeconfig": "/old", "clusterNetwork": "{folder}/00-braid.conflist"}]}"#;
        let err = taken_from("00-braid.conflist", &[("00-braid.conflist", circle)]);
        let err = err.expect_err("no other network");
        assert!(err.contains("its default network is braid itself"), "{err}");
    }
}
