//! Everything that a call can change, as text to compare. Also the objects that an attachment must
//! not leave behind.

use crate::ns::Ns;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Folders in which plugins write.
const FOLDERS: &[&str] = &[
    "/run/braid",
    "/run/cni",
    "/var/lib/cni",
    "/var/lib/braid",
    "/etc/cni",
    "/sys/fs/bpf",
];
/// Commands that list the kernel's state of a network namespace.
const LOOKS: &[&str] = &[
    "ip -d -j link",
    "ip -j addr",
    "ip -j -4 rule",
    "ip -j -6 rule",
];

/// Links, addresses, routes, rules, sysctls and files: maps the name of each object to its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State(BTreeMap<String, String>);

impl State {
    pub(crate) fn take<'a>(spaces: impl Iterator<Item = &'a Ns>) -> Self {
        let mut state = BTreeMap::new();
        for ns in spaces {
            for look in LOOKS {
                for (at, item) in ns.list(look).into_iter().enumerate() {
                    state.insert(
                        format!("{}: {look}: {}", ns.name(), name_of(&item, at)),
                        steady(item).to_string(),
                    );
                }
            }
            for route in ["-4", "-6"]
                .iter()
                .flat_map(|family| ns.routes(family))
                .map(steady)
            {
                state.insert(format!("{}: route {route}", ns.name()), String::new());
            }
            state.insert(
                format!("{}: nft", ns.name()),
                ns.try_run("nft -a list ruleset").unwrap_or_default(),
            );
            for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
                state.insert(format!("{}: {key}", ns.name()), ns.sysctl(key));
            }
        }
        for folder in FOLDERS {
            state.extend(
                tree(Path::new(folder))
                    .into_iter()
                    .filter(|(path, _)| !is_cache(path)),
            );
        }
        Self(state)
    }

    /// Removes the files that an IPAM may keep after it has released an address: folder, lock and
    /// round-robin mark.
    #[must_use]
    pub fn without_marks(mut self) -> Self {
        self.0
            .retain(|path, _| !path.starts_with("/var/lib/cni/") || is_lease(Path::new(path)));
        self
    }

    /// Removes the files, so that only the network state is left.
    #[must_use]
    pub fn of_network(mut self) -> Self {
        self.0.retain(|name, _| !name.starts_with('/'));
        self
    }

    /// Fails and lists the differences if the two states are not equal.
    #[track_caller]
    pub fn assert_same(&self, later: &Self) {
        let differences = self.differences(later);
        assert!(differences.is_empty(), "changed:\n{differences}");
    }

    /// Returns a line for each difference. `-` marks a value of `self`, `+` a value of `later`.
    pub fn differences(&self, later: &Self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            if later.0.get(name) != Some(value) {
                let _ = writeln!(text, "- {name}: {value}");
            }
        }
        for (name, value) in &later.0 {
            if self.0.get(name) != Some(value) {
                let _ = writeln!(text, "+ {name}: {value}");
            }
        }
        text
    }
}

/// True for paths in `/run/braid` that are not state of an attachment: permanent folders, locks,
/// the kernel's feature cache, and an index that is useless after a reboot.
fn is_cache(path: &str) -> bool {
    let files = ["attachments", "kernel", "leaving", "program"];
    let is_below = |folder: &&str| path.starts_with(folder);
    path.strip_prefix("/run/braid/")
        .is_some_and(|file| files.contains(&file))
        || ["/run/braid/ipam", "/run/braid/lock"].iter().any(is_below)
}

fn name_of(item: &Value, at: usize) -> String {
    let name = item["ifname"].as_str().unwrap_or_default();
    format!("{name} ({at})")
}

/// Removes from `item` the attributes that the kernel changes by itself.
fn steady(mut item: Value) -> Value {
    if let Some(item) = item.as_object_mut() {
        for key in ["operstate", "flags", "stats64", "expires"] {
            item.remove(key);
        }
        // The timers of a bridge and its ports are in `linkinfo`.
        item.remove("linkinfo");
    }
    if let Some(infos) = item.get_mut("addr_info").and_then(Value::as_array_mut) {
        // The kernel's link-local address is tentative for a while.
        infos.retain(|info| info["scope"] != "link");
    }
    item
}

/// Maps the path of each file and folder below `root` to its mode and content.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            let mode = meta.permissions().mode();
            let content = match () {
                () if meta.is_dir() => String::new(),
                () if meta.is_symlink() => fs::read_link(&path)
                    .map(|to| to.display().to_string())
                    .unwrap_or_default(),
                () => fs::read(&path)
                    .map(|bytes| shown(&bytes))
                    .unwrap_or_default(),
            };
            found.insert(
                path.display().to_string(),
                format!("{mode:o} {}:{} {content:?}", meta.uid(), meta.gid()),
            );
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Returns short content unchanged, and content of more than 1024 bytes as its length and hash.
fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= 1024 {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes {:x}", bytes.len(), hasher.finish())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

/// Returns the remaining objects that belong to single attachments. Objects that attachments share
/// may stay: bridges, tables and their chains, the round-robin mark, locks.
pub(crate) fn leftovers(host: &Ns) -> Vec<String> {
    let mut left = Vec::new();
    for link in host.list("ip -d -j link") {
        let name = link["ifname"].as_str().unwrap_or_default();
        if link["ifalias"]
            .as_str()
            .is_some_and(|alias| alias.starts_with("braid "))
            || is_pod_side(&link)
        {
            left.push(format!("link {name}"));
        }
    }
    left.extend(
        elements(host)
            .into_iter()
            .map(|element| format!("nft {element}")),
    );
    left.extend(
        tree(Path::new("/sys/fs/bpf/braid"))
            .keys()
            .map(|path| format!("pin {path}")),
    );
    left.extend(
        filters(host)
            .into_iter()
            .map(|filter| format!("filter {filter}")),
    );
    for network in entries(Path::new("/var/lib/cni/networks")) {
        let files = entries(&network).into_iter();
        left.extend(
            files
                .filter(|path| is_lease(path))
                .map(|path| path.display().to_string()),
        );
    }
    let notes = entries(Path::new("/var/lib/cni/flannel"));
    left.extend(notes.into_iter().map(|path| path.display().to_string()));
    left.extend(rules(host));
    let records = tree(Path::new("/run/braid/attachments")).into_keys();
    // The folder of these records stays.
    let is_record = |path: &String| path != "/var/lib/braid/foreign";
    let is_left = |path: &String| Path::new(path).is_file() && !path.ends_with(".leases/lock");
    let others = tree(Path::new("/run/cni")).into_keys().filter(is_left);
    left.extend(
        records
            .chain(
                tree(Path::new("/var/lib/braid"))
                    .into_keys()
                    .filter(is_record),
            )
            .chain(others),
    );
    left
}

/// Returns every policy routing rule that has a veth as input interface. The veth may already be
/// deleted.
fn rules(host: &Ns) -> Vec<String> {
    let all = ["-4", "-6"]
        .iter()
        .flat_map(|family| host.list(&format!("ip {family} -j rule")));
    all.filter(|rule| {
        rule["iif"]
            .as_str()
            .is_some_and(|iif| iif.starts_with("veth"))
    })
    .map(|rule| rule.to_string())
    .collect()
}

/// Returns every program that a tc filter of the host runs, as `link side: name`, and every clsact
/// qdisc without filters.
#[track_caller]
pub fn filters(host: &Ns) -> Vec<String> {
    let mut found = Vec::new();
    for link in host.link_names() {
        let link = link.split('@').next().unwrap_or_default();
        match filters_of(host, link) {
            Ok(filters) => found.extend(filters),
            // The kernel deletes the links of a namespace after the last process has left it.
            Err(_) if host.link(link).is_none() => {}
            Err(error) => panic!("filters of {link}: {error}"),
        }
    }
    found
}

/// Returns the programs of one link's tc filters, in the format of [`filters`]. If `tc` fails, the
/// error is the text that `tc` printed.
fn filters_of(host: &Ns, link: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut is_empty = true;
    for side in ["ingress", "egress"] {
        let shown = host.try_run(&format!("tc -j filter show dev {link} {side}"))?;
        if shown.trim().is_empty() {
            continue;
        }
        let filters: Vec<Value> = serde_json::from_str(&shown).map_err(|err| err.to_string())?;
        for filter in &filters {
            is_empty &= filter.as_object().is_none_or(serde_json::Map::is_empty);
            if let Some(name) = filter["options"]["bpf_name"].as_str() {
                found.push(format!("{link} {side}: {name}"));
            }
        }
    }
    let qdiscs = host.try_run(&format!("tc qdisc show dev {link}"))?;
    if is_empty && qdiscs.contains("clsact") {
        found.push(format!("{link}: clsact"));
    }
    Ok(found)
}

/// True for the host end of a pod's veth or netkit: its peer is in another namespace, and its name
/// begins like the names that plugins choose.
fn is_pod_side(link: &Value) -> bool {
    let name = link["ifname"].as_str().unwrap_or_default();
    let is_named = |kind, prefix| link["linkinfo"]["info_kind"] == kind && name.starts_with(prefix);
    link["link_netnsid"].is_number() && (is_named("veth", "veth") || is_named("netkit", "nk"))
}

fn is_lease(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.parse::<IpAddr>().is_ok())
}

/// Returns every element of every set and map of the host, as `family table set: element`.
pub fn elements(host: &Ns) -> Vec<String> {
    let ruleset = host.json("nft -j list ruleset");
    let items = ruleset["nftables"].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for set in items
        .iter()
        .filter_map(|item| item.get("set").or_else(|| item.get("map")))
    {
        let text = |key: &str| set[key].as_str().unwrap_or_default().to_owned();
        for element in set["elem"].as_array().into_iter().flatten() {
            found.push(format!(
                "{} {} {}: {element}",
                text("family"),
                text("table"),
                text("name")
            ));
        }
    }
    found
}
