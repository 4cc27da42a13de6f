//! Leftovers of deleted pods on a node.

use crate::pods;
use anyhow::{Context, Result, ensure};
use braid_testbed::lan::DEVICE;
use braid_testbed::sh;
use braid_testbed::{Cluster, Node};
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Text that lists the kinds of leftovers that [`find`] searches for.
pub(crate) const KINDS: &str = "links, network namespaces, leases and records under /var/lib/cni, /run/cni and /run/braid, nft rules";

/// The runtime's folder of network namespaces.
const NAMESPACES: &str = "run/netns";
/// Folders of plugins and of libcni.
const STATE: [&str; 3] = ["run/braid", "run/cni", "var/lib/cni"];
/// Names of the links, apart from bridges, that a node without pods has.
const OWN_LINKS: [&str; 7] = [
    "lo",
    "eth0",
    "eth1",
    DEVICE,
    "braid-vxlan",
    "flannel.1",
    "flannel-v6.1",
];

/// Identifiers of pods, to find their leftovers after their deletion.
pub(crate) struct Traces {
    /// Number of pods with an address.
    pub(crate) pods: usize,
    /// IDs of the pods' sandboxes, which are the CNI container IDs.
    pub(crate) sandboxes: Vec<String>,
    /// Addresses of the pods in all their networks.
    addresses: Vec<String>,
}

/// Fails if `node` has leftovers of the pods in `traces`, or nftables elements for any host port.
pub(crate) fn ensure_none(cluster: &Cluster, node: Node, traces: &Traces) -> Result<()> {
    let mut left = find(cluster, node, traces)?;
    left.extend(host_ports(cluster, node)?);
    ensure!(left.is_empty(), "left on {node}:\n{}", left.join("\n"));
    Ok(())
}

/// Fails if `node` has leftovers of the pods in `traces`, while `living` other pods have a network.
/// `except` returns true for the files that may stay.
pub(crate) fn ensure_none_beside(
    cluster: &Cluster,
    node: Node,
    (traces, living): (&Traces, usize),
    except: fn(&Path) -> bool,
) -> Result<()> {
    let root = cluster.root(node)?;
    let ruleset = sh::read(&mut cluster.on(node, ["nft", "list", "ruleset"])?)?;
    let mut left = traces.rules(&ruleset);
    for path in STATE.iter().flat_map(|dir| files(&root.join(dir))) {
        if traces.names(&path) && !except(&path) {
            left.push(format!("file {}", shown(&path, &root)));
        }
    }
    let links = links(cluster, node)?;
    let namespaces = files(&root.join(NAMESPACES));
    if links.len() != living || namespaces.len() != living {
        left.push(format!(
            "of {living} pods: {links:?} and {} namespaces",
            namespaces.len()
        ));
    }
    ensure!(left.is_empty(), "left on {node}:\n{}", left.join("\n"));
    Ok(())
}

/// Deletes the network namespaces that contain only `lo`, and returns their number. A runtime
/// leaves such a namespace if it is killed before it records the new namespace. No plugin was
/// called for such a namespace.
pub(crate) fn delete_forgotten(cluster: &Cluster, node: Node) -> Result<usize> {
    let mut deleted = 0;
    for path in files(&cluster.root(node)?.join(NAMESPACES)) {
        let name = path.file_name().unwrap_or_default();
        let links = sh::read(cluster.on(node, ["ip", "-j", "-n"])?.arg(name).arg("link"))?;
        let links: Value =
            serde_json::from_str(&links).context("parse the links of a namespace")?;
        if links.as_array().is_some_and(|links| links.len() == 1) {
            sh::read(cluster.on(node, ["ip", "netns", "del"])?.arg(name))?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

/// Returns a line for each leftover on `node` of the pods in `traces`.
pub(crate) fn find(cluster: &Cluster, node: Node, traces: &Traces) -> Result<Vec<String>> {
    let ruleset = sh::read(&mut cluster.on(node, ["nft", "list", "ruleset"])?)?;
    let mut left = links(cluster, node)?;
    left.extend(traces.rules(&ruleset));
    let root = cluster.root(node)?;
    left.extend(
        files(&root.join(NAMESPACES))
            .iter()
            .map(|path| format!("netns {}", shown(path, &root))),
    );
    for dir in STATE {
        let found = files(&root.join(dir));
        left.extend(
            found
                .iter()
                .filter(|path| traces.is_in_file(path))
                .map(|path| format!("file {}", shown(path, &root))),
        );
    }
    Ok(left)
}

/// Returns a line for each link that a node without pods lacks.
fn links(cluster: &Cluster, node: Node) -> Result<Vec<String>> {
    let links = sh::read(&mut cluster.on(node, ["ip", "-j", "-d", "link"])?)?;
    Ok(foreign_links(
        &serde_json::from_str(&links).context("parse the links")?,
    ))
}

/// Returns all elements for host ports, of any pod, in braid's nftables table on `node`.
fn host_ports(cluster: &Cluster, node: Node) -> Result<Vec<String>> {
    let ruleset = sh::read(&mut cluster.on(node, ["nft", "-j", "list", "ruleset", "inet"])?)?;
    Ok(host_port_elements(
        &serde_json::from_str(&ruleset).context("parse the rules")?,
    ))
}

fn host_port_elements(ruleset: &Value) -> Vec<String> {
    let objects = ruleset["nftables"].as_array().into_iter().flatten();
    let sets = objects.filter_map(|object| object.get("map").or_else(|| object.get("set")));
    let of_host_ports = sets.filter(|set| {
        set["table"] == "braid"
            && set["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("hostport"))
    });
    of_host_ports
        .flat_map(|set| {
            let elements = set["elem"].as_array().into_iter().flatten();
            elements.map(|element| {
                format!(
                    "nft element of {}: {element}",
                    set["name"].as_str().unwrap_or("?")
                )
            })
        })
        .collect()
}

/// Returns the lines of `ruleset` outside kube-proxy's tables. kube-proxy's tables contain
/// addresses of deleted pods until its next sync.
fn without_kube_proxy(ruleset: &str) -> impl Iterator<Item = &str> {
    let mut is_kube_proxys = false;
    ruleset.lines().filter(move |line| {
        if line.starts_with("table ") {
            is_kube_proxys = line.split(' ').nth(2) == Some("kube-proxy");
        }
        !is_kube_proxys
    })
}

impl Traces {
    /// Reads the identifiers of the pods on `node` that have the label `app=<app>` and an address.
    pub(crate) fn of(cluster: &Cluster, node: Node, app: &str) -> Result<Self> {
        let pods = pods::list(cluster, app)?;
        let here = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"] == node.to_string() && pod["status"]["podIP"].is_string()
        });
        let here: Vec<&Value> = here.collect();
        let addresses = here.iter().flat_map(|pod| addresses(pod)).collect();
        let traces = Self {
            pods: here.len(),
            sandboxes: pods::sandboxes(cluster, node, app)?,
            addresses,
        };
        // The runtime knows the sandboxes of earlier pods for a while. The leftovers of those count
        // too.
        ensure!(
            traces.sandboxes.len() >= traces.pods,
            "{node}: fewer sandboxes than pods"
        );
        Ok(traces)
    }

    /// Returns the nft rules and elements of `ruleset` that contain a pod's sandbox ID or address.
    fn rules(&self, ruleset: &str) -> Vec<String> {
        let lines = without_kube_proxy(ruleset).map(str::trim);
        lines
            .filter(|line| self.is_in(line))
            .map(|line| format!("nft {line}"))
            .collect()
    }

    fn is_in(&self, line: &str) -> bool {
        let is_end = |char: char| !(char.is_ascii_hexdigit() || char == '.' || char == ':');
        line.split(is_end)
            .any(|word| self.addresses.iter().any(|address| address == word))
            || self.names_sandbox(line)
    }

    /// Returns true if `text` contains the ID of a sandbox. Its first 12 digits are enough, because
    /// tools shorten an ID to this length.
    fn names_sandbox(&self, text: &str) -> bool {
        self.sandboxes
            .iter()
            .any(|id| text.contains(id.get(..12).unwrap_or(id)))
    }

    /// Returns true if the file is a leftover. A leftover is a lease (a file named by an address),
    /// a record in braid's folder of records, or a file of libcni with a sandbox ID in its path or
    /// text.
    ///
    /// The file `run/braid/program` is not a leftover. It names the owner of an eBPF program's
    /// slots. The kernel may have freed this program, and the next attachment overwrites the file.
    fn is_in_file(&self, path: &Path) -> bool {
        if path.ends_with("run/braid/program") {
            return false;
        }
        let is_lease = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().parse::<IpAddr>().is_ok());
        let is_record = path
            .ancestors()
            .any(|folder| folder.ends_with("run/braid/attachments"));
        is_lease || is_record || self.names(path)
    }

    /// Returns true if path or text of a file has a sandbox ID, or if its name is a pod's address.
    fn names(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read(path).unwrap_or_default();
        self.addresses.iter().any(|address| *address == name)
            || self.names_sandbox(&path.to_string_lossy())
            || self.names_sandbox(&String::from_utf8_lossy(&text))
    }
}

/// Returns a pod's addresses. The address of the default network is in the pod's status. The
/// addresses of all networks are in its `network-status` annotation.
fn addresses(pod: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(String::from);
    let entries = pods::network_status(pod);
    let others = entries
        .iter()
        .flat_map(|entry| entry["ips"].as_array().into_iter().flatten());
    let mut all: Vec<String> = others
        .filter_map(text)
        .chain(text(&pod["status"]["podIP"]))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn foreign_links(links: &Value) -> Vec<String> {
    let is_own = |link: &&Value| {
        OWN_LINKS.iter().any(|own| link["ifname"] == *own)
            || link["linkinfo"]["info_kind"] == "bridge"
    };
    let links = links.as_array().into_iter().flatten();
    links
        .filter(|link| !is_own(link))
        .map(|link| format!("link {}", link["ifname"].as_str().unwrap_or("?")))
        .collect()
}

/// Lists all files under `dir` at any depth. The list is empty if `dir` does not exist.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path()),
            _ => vec![entry.path()],
        })
        .collect()
}

/// Returns the absolute path inside the node of a file below the node's root folder `root`.
fn shown(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).map_or_else(
        |_| path.display().to_string(),
        |inner| format!("/{}", inner.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces() -> Traces {
        Traces {
            pods: 1,
            sandboxes: vec!["0123456789abcdef".into()],
            addresses: vec!["10.244.1.2".into()],
        }
    }

    #[test]
    fn addresses_are_those_of_all_networks() {
        let status = r#"[{"name":"pods","ips":["10.244.1.2"]},{"name":"default/lan","ips":["192.0.2.2","2001:db8::2"]}]"#;
        let annotations = serde_json::json!({"k8s.v1.cni.cncf.io/network-status": status});
        let pod = serde_json::json!({"metadata": {"annotations": annotations}, "status": {"podIP": "10.244.1.2"}});
        assert_eq!(addresses(&pod), ["10.244.1.2", "192.0.2.2", "2001:db8::2"]);
    }

    #[test]
    fn a_record_is_left_whosever_it_is() {
        let path = Path::new("/proc/1/root/run/braid/attachments/other/eth0:pods:bridge.json");
        assert!(
            traces().is_in_file(path)
                && !traces().is_in_file(Path::new("/proc/1/root/run/braid/kernel"))
        );
    }

    #[test]
    fn a_rule_is_left_if_it_names_the_pod_and_not_if_it_names_a_longer_address() {
        let ruleset = "ip saddr 10.244.1.2 masquerade\nip saddr 10.244.1.20 accept\n\
                       elements = { 10.244.1.2/32 . 80 }\ncomment \"id: 0123456789ab\"\n";
        assert_eq!(
            traces().rules(ruleset),
            [
                "nft ip saddr 10.244.1.2 masquerade",
                "nft elements = { 10.244.1.2/32 . 80 }",
                "nft comment \"id: 0123456789ab\""
            ]
        );
    }

    #[test]
    fn what_kube_proxy_names_is_not_left() {
        let ruleset = "table ip kube-proxy {\n\tchain endpoint__10.244.1.2/8080 {\n}\n\
                       table inet braid {\n\t10.244.1.2 : goto own\n}\n";
        assert_eq!(traces().rules(ruleset), ["nft 10.244.1.2 : goto own"]);
    }

    #[test]
    fn an_element_for_a_host_port_is_left_whosever_it_is() {
        let set = |table: &str, name: &str, elem: Value| serde_json::json!({"table": table, "name": name, "elem": elem});
        let ruleset = serde_json::json!({"nftables": [
            {"metainfo": {}},
            {"map": set("braid", "hostport4", serde_json::json!([["a", "b"]]))},
            {"set": set("braid", "hostport4-own", serde_json::json!(["c"]))},
            {"map": set("braid", "hostport6", Value::Null)},
            {"map": set("braid", "masquerade", serde_json::json!(["d"]))},
            {"map": set("other", "hostport4", serde_json::json!(["e"]))},
        ]});
        assert_eq!(
            host_port_elements(&ruleset),
            [
                r#"nft element of hostport4: ["a","b"]"#,
                r#"nft element of hostport4-own: "c""#
            ]
        );
    }

    #[test]
    fn a_veth_is_left_and_a_bridge_is_not() {
        let links = serde_json::json!([
            {"ifname": "lo"},
            {"ifname": "eth0", "linkinfo": {"info_kind": "veth"}},
            {"ifname": "cni0", "linkinfo": {"info_kind": "bridge"}},
            {"ifname": "veth1", "linkinfo": {"info_kind": "veth"}},
        ]);
        assert_eq!(foreign_links(&links), ["link veth1"]);
    }
}
