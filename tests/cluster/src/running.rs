//! A running pod with an annotation that changes, and four sources that must agree about its networks.

use crate::pods::{self, NETWORKS};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use braid_testbed::{Cluster, Node, wait};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// Longest time until the interfaces of a pod follow its annotation.
pub(crate) const IN_PLACE: Duration = Duration::from_secs(10);
/// Longest time until its status follows the interfaces.
const STATUS: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_mins(1);
const LEASES: &str = "var/lib/cni/networks";
const DEFAULT: &str = "eth0";

/// A running pod.
pub(crate) struct Pod<'c> {
    cluster: &'c Cluster,
    pub(crate) node: Node,
    pub(crate) name: String,
    /// ID of its sandbox.
    pub(crate) id: String,
    /// A process of its sandbox.
    pid: String,
}

/// An interface in a pod, as `ip` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u64,
    pub(crate) mac: String,
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// Changes the annotations of pods one after the other, in one call of kubectl. A pod may be there
/// several times.
pub(crate) fn annotate_all(cluster: &Cluster, edits: &[(&str, String)]) -> Result<()> {
    let mut items = Vec::new();
    for (name, networks) in edits {
        let metadata = json!({"name": name, "annotations": {NETWORKS: networks}});
        items.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    sh::feed(&mut cluster.kubectl(apply), list.to_string().as_bytes()).map(drop)
}

/// Addresses of each interface.
type Addresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// The networks of a pod by each source.
#[derive(Debug, Default)]
struct Seen {
    links: BTreeMap<String, Link>,
    leases: Addresses,
    /// Addresses and network of each interface in the records.
    records: BTreeMap<String, (BTreeSet<IpAddr>, String)>,
    status: Vec<Value>,
}

impl<'c> Pod<'c> {
    /// Creates a pod with the label `app=<app>` on `node` that requests `networks`, and waits until it
    /// is Ready.
    pub(crate) fn start(
        cluster: &'c Cluster,
        node: Node,
        (name, app): (&str, &str),
        networks: &str,
    ) -> Result<Self> {
        cluster.create(&[pods::requesting(name, app, node, networks)])?;
        Self::ready(cluster, node, name)
    }

    /// Waits until a pod is Ready.
    pub(crate) fn ready(cluster: &'c Cluster, node: Node, name: &str) -> Result<Self> {
        let condition = ["wait", "--for=condition=Ready", &wait::timeout(START)];
        sh::read(cluster.kubectl(condition).arg(format!("pod/{name}")))?;
        Self::running(cluster, node, name)
    }

    /// Returns a pod with a running sandbox.
    pub(crate) fn running(cluster: &'c Cluster, node: Node, name: &str) -> Result<Self> {
        let ids = pods::sandboxes_of(cluster, node, name)?;
        let tasks = sh::read(&mut cluster.on(node, ["ctr", "-n", "k8s.io", "tasks", "ls"])?)?;
        let task = |line: &str| {
            let mut words = line.split_whitespace();
            let (id, pid, state) = (words.next()?, words.next()?, words.next()?);
            let is_it = state == "RUNNING" && ids.iter().any(|own| own == id);
            is_it.then(|| (id.to_owned(), pid.to_owned()))
        };
        let (id, pid) = tasks
            .lines()
            .find_map(task)
            .with_context(|| format!("{name} has no running sandbox"))?;
        Ok(Self {
            cluster,
            node,
            name: name.to_owned(),
            id,
            pid,
        })
    }

    /// Changes the annotation of the pod.
    pub(crate) fn annotate(&self, networks: &str) -> Result<()> {
        let annotation = format!("{NETWORKS}={networks}");
        let words = ["annotate", "--overwrite", "pod", &self.name, &annotation];
        sh::read(&mut self.cluster.kubectl(words)).map(drop)
    }

    /// Returns a command that runs `words` in the pod's network namespace.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        let enter = ["nsenter", "--target", &self.pid, "--net"];
        self.cluster.on(self.node, [&enter, words].concat())
    }

    /// Runs a command that prints JSON in the pod's network namespace.
    pub(crate) fn json(&self, words: &[&str]) -> Result<Value> {
        let shown = sh::read(&mut self.command(words)?)?;
        serde_json::from_str(&shown).with_context(|| format!("parse {shown:?} of {}", self.name))
    }

    /// Returns the interfaces of the pod.
    pub(crate) fn links(&self) -> Result<BTreeMap<String, Link>> {
        Ok(links(&self.json(&["ip", "-j", "addr"])?))
    }

    /// Edits the annotation, and waits until the pod has exactly these networks, each by its
    /// interface. Returns the interfaces.
    pub(crate) fn edit(
        &self,
        networks: &str,
        expected: &[(&str, &str)],
    ) -> Result<BTreeMap<String, Link>> {
        self.annotate(networks)?;
        self.await_networks(expected)
            .with_context(|| format!("edit of {} to {networks:?}", self.name))
    }

    /// Waits until the pod has exactly these networks, each by its interface, and all sources agree
    /// about them. Returns the interfaces.
    pub(crate) fn await_networks(
        &self,
        expected: &[(&str, &str)],
    ) -> Result<BTreeMap<String, Link>> {
        wait::eventually(IN_PLACE, || {
            let seen = Seen {
                links: self.links()?,
                leases: self.leases()?,
                records: self.records()?,
                status: Vec::new(),
            };
            let wrong = seen.differences(expected, false);
            ensure!(wrong.is_empty(), "{}: {}", self.name, wrong.join("\n"));
            Ok(())
        })?;
        wait::eventually(STATUS, || self.agreed(expected))
    }

    /// Fails unless the pod has exactly these networks, and all sources agree about them. Returns
    /// the interfaces.
    pub(crate) fn agreed(&self, expected: &[(&str, &str)]) -> Result<BTreeMap<String, Link>> {
        let seen = Seen {
            links: self.links()?,
            leases: self.leases()?,
            records: self.records()?,
            status: self.status()?,
        };
        let wrong = seen.differences(expected, true);
        ensure!(wrong.is_empty(), "{}: {}", self.name, wrong.join("\n"));
        Ok(seen.links)
    }

    /// Waits like [`Self::await_networks`], but for networks on any interfaces.
    pub(crate) fn await_selected(&self, networks: &[&str]) -> Result<()> {
        wait::eventually(IN_PLACE + STATUS, || {
            let records = self.records()?;
            let mut expected = Vec::new();
            for (ifname, (_, network)) in &records {
                if let Some(network) = network.strip_prefix("default/") {
                    expected.push((ifname.as_str(), network));
                }
            }
            let mut found: Vec<&str> = expected.iter().map(|(_, network)| *network).collect();
            found.sort_unstable();
            let mut wanted = networks.to_vec();
            wanted.sort_unstable();
            ensure!(found == wanted, "{}: {found:?}", self.name);
            self.agreed(&expected).map(drop)
        })
    }

    /// Fails if a lease or a record names the pod's sandbox.
    pub(crate) fn ensure_released(&self) -> Result<()> {
        let (leases, records) = (self.leases()?, self.records()?);
        ensure!(
            leases.is_empty() && records.is_empty(),
            "left of {}: {leases:?}, {records:?}",
            self.name
        );
        Ok(())
    }

    /// Returns the `network-status` of the pod.
    pub(crate) fn status(&self) -> Result<Vec<Value>> {
        let pod = sh::read(
            &mut self
                .cluster
                .kubectl(["get", "pod", &self.name, "-o", "json"]),
        )?;
        Ok(pods::network_status(
            &serde_json::from_str(&pod).context("parse a pod")?,
        ))
    }

    /// Returns the names of the node's links of each interface: the other end of its pair, and a
    /// link for its limit.
    pub(crate) fn host_links(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let shown = sh::read(&mut self.cluster.on(self.node, ["ip", "-j", "link"])?)?;
        let shown: Value = serde_json::from_str(&shown).context("parse the node's links")?;
        let mut links: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for link in shown.as_array().into_iter().flatten() {
            let alias = link["ifalias"].as_str().unwrap_or_default();
            let words: Vec<&str> = alias.split(' ').collect();
            if let ["braid", _, id, ifname] = words[..]
                && id == self.id
            {
                let of_interface = links.entry(ifname.to_owned()).or_default();
                of_interface.push(text(&link["ifname"]));
            }
        }
        Ok(links)
    }

    /// Returns the queues of an interface's link on the node, as `tc` shows them.
    pub(crate) fn queues(&self, ifname: &str) -> Result<String> {
        let links = self.host_links()?;
        let mut shown = String::new();
        for link in links.get(ifname).into_iter().flatten() {
            for kind in ["qdisc", "class"] {
                let show = ["tc", kind, "show", "dev", link];
                shown += &sh::read(&mut self.cluster.on(self.node, show)?)?;
            }
        }
        Ok(shown)
    }

    /// Returns the interfaces of the IPv4 default routes in the pod.
    pub(crate) fn default_routes(&self) -> Result<Vec<String>> {
        let routes = self.json(&["ip", "-j", "-4", "route", "show", "default"])?;
        let routes = routes.as_array().into_iter().flatten();
        Ok(routes.map(|route| text(&route["dev"])).collect())
    }

    /// Returns the leases of host-local that name the pod's sandbox.
    fn leases(&self) -> Result<Addresses> {
        let folder = self.cluster.root(self.node)?.join(LEASES);
        let mut leases = Addresses::new();
        for network in fs::read_dir(&folder).into_iter().flatten().flatten() {
            for lease in fs::read_dir(network.path()).into_iter().flatten().flatten() {
                let name = lease.file_name();
                let Ok(address) = name.to_string_lossy().parse::<IpAddr>() else {
                    continue;
                };
                // The lease may have gone.
                let owner = fs::read_to_string(lease.path()).unwrap_or_default();
                if let Some((id, ifname)) = owner.split_once("\r\n")
                    && id == self.id
                {
                    let ifname = ifname.trim().to_owned();
                    leases.entry(ifname).or_default().insert(address);
                }
            }
        }
        Ok(leases)
    }

    /// Returns the attachments of the pod in the records.
    fn records(&self) -> Result<BTreeMap<String, (BTreeSet<IpAddr>, String)>> {
        let mut records = BTreeMap::new();
        for one in attachments(self.cluster, self.node)? {
            if one["container_id"] != self.id.as_str() {
                continue;
            }
            let ifname = text(&one["ifname"]);
            let network = text(&one["network_attachment_definition"]);
            let before = records.insert(ifname, (addresses(&one["addresses"]), network));
            ensure!(before.is_none(), "{}: an interface twice: {one}", self.name);
        }
        Ok(records)
    }
}

impl Seen {
    /// Returns a line for each difference between the sources and the expected networks.
    fn differences(&self, expected: &[(&str, &str)], has_status: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let interfaces: BTreeSet<&str> = expected
            .iter()
            .map(|(ifname, _)| *ifname)
            .chain([DEFAULT])
            .collect();
        let of_links: Addresses = self
            .links
            .iter()
            .map(|(ifname, link)| (ifname.clone(), link.addresses.clone()))
            .collect();
        let names: BTreeSet<&str> = of_links.keys().map(String::as_str).collect();
        if names != interfaces {
            wrong.push(format!("interfaces {names:?}, expected {interfaces:?}"));
        }
        if self.leases != of_links {
            wrong.push(format!("leases {:?} of {of_links:?}", self.leases));
        }
        let of_records: Addresses = self
            .records
            .iter()
            .map(|(ifname, (addresses, _))| (ifname.clone(), addresses.clone()))
            .collect();
        if of_records != of_links {
            wrong.push(format!("records {of_records:?} of {of_links:?}"));
        }
        for (ifname, network) in expected {
            let recorded = self.records.get(*ifname).map(|(_, network)| network);
            if recorded.is_none_or(|recorded| *recorded != format!("default/{network}")) {
                wrong.push(format!(
                    "{ifname} is of network {recorded:?}, expected {network}"
                ));
            }
        }
        if has_status {
            wrong.extend(self.status_differences(expected));
        }
        wrong
    }

    fn status_differences(&self, expected: &[(&str, &str)]) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.status.len() != self.links.len() {
            wrong.push(format!("status {:?} of {:?}", self.status, self.links));
        }
        for entry in &self.status {
            let ifname = text(&entry["interface"]);
            let Some(link) = self.links.get(&ifname) else {
                wrong.push(format!("status of no interface: {entry}"));
                continue;
            };
            let network = expected.iter().find(|(its, _)| *its == ifname);
            let is_same = addresses(&entry["ips"]) == link.addresses
                && entry["mac"] == link.mac.as_str()
                && network.is_none_or(|(_, network)| entry["name"] == format!("default/{network}"));
            if !is_same {
                wrong.push(format!("status {entry} of {link:?}"));
            }
        }
        wrong
    }
}

/// Returns the attachments of a node in braid's records, without those of `lo`.
pub(crate) fn attachments(cluster: &Cluster, node: Node) -> Result<Vec<Value>> {
    let status = ["/opt/cni/bin/braid", "status", "-o", "json"];
    let shown = sh::read(&mut cluster.on(node, status)?)?;
    let mut shown: Value = serde_json::from_str(&shown).context("parse braid's status")?;
    if shown.is_object() {
        shown = shown["attachments"].take();
    }
    let all = shown.as_array().context("braid's status has no list")?;
    let is_network = |one: &&Value| one["ifname"] != "lo";
    Ok(all.iter().filter(is_network).cloned().collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Parses a list of addresses with or without prefix lengths.
fn addresses(list: &Value) -> BTreeSet<IpAddr> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str()?.split('/').next()?.parse().ok())
        .collect()
}

/// Returns the interfaces in the output of `ip -j addr`, without `lo`.
fn links(shown: &Value) -> BTreeMap<String, Link> {
    let mut links = BTreeMap::new();
    for link in shown.as_array().into_iter().flatten() {
        let infos = link["addr_info"].as_array().into_iter().flatten();
        let global = infos.filter(|info| info["scope"] == "global");
        let addresses = global.filter_map(|info| info["local"].as_str()?.parse().ok());
        let ifname = text(&link["ifname"]);
        if ifname != "lo" {
            links.insert(
                ifname,
                Link {
                    index: link["ifindex"].as_u64().unwrap_or_default(),
                    mac: text(&link["address"]),
                    addresses: addresses.collect(),
                },
            );
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let address = |local: &str| json!([{"scope": "global", "local": local}, {"scope": "link", "local": "fe80::1"}]);
        let shown = json!([
            {"ifname": "lo", "ifindex": 1},
            {"ifname": "eth0", "ifindex": 2, "address": "02::1", "addr_info": address("10.244.1.2")},
            {"ifname": "net1", "ifindex": 3, "address": "02::2", "addr_info": address("192.0.2.2")},
        ]);
        let links = links(&shown);
        let of = |ifname: &str| links[ifname].addresses.clone();
        let both = ["eth0", "net1"];
        let entry = |ifname: &str, name: &str, ip: &str, mac: &str| json!({"interface": ifname, "name": name, "ips": [ip], "mac": mac});
        Seen {
            leases: both.map(|ifname| (ifname.to_owned(), of(ifname))).into(),
            records: BTreeMap::from([
                ("eth0".to_owned(), (of("eth0"), String::new())),
                ("net1".to_owned(), (of("net1"), "default/lan".to_owned())),
            ]),
            status: vec![
                entry("eth0", "pods", "10.244.1.2", "02::1"),
                entry("net1", "default/lan", "192.0.2.2", "02::2"),
            ],
            links,
        }
    }

    #[test]
    fn four_sources_agree_about_the_networks_of_a_pod() {
        let expected = [("net1", "lan")];
        assert_eq!(seen().differences(&expected, true), Vec::<String>::new());
        for expected in [&[][..], &[("net2", "lan")], &[("net1", "wan")]] {
            assert!(!seen().differences(expected, false).is_empty());
        }
        let mut lost = seen();
        lost.leases.remove("net1");
        assert_eq!(lost.differences(&expected, true).len(), 1);
        let mut doubled = seen();
        doubled.leases.insert("net2".to_owned(), BTreeSet::new());
        assert_eq!(doubled.differences(&expected, true).len(), 1);
        let mut unpublished = seen();
        unpublished.status.pop();
        assert!(unpublished.differences(&expected, false).is_empty());
        assert_eq!(unpublished.differences(&expected, true).len(), 1);
    }
}
