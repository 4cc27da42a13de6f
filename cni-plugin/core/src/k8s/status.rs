//! The annotation `k8s.v1.cni.cncf.io/network-status`: the networks of a pod, described from the
//! results of their plugins.

use super::default_route::gateways;
use super::text_at;
use crate::cni::{AddResult, Dns, Interface, Json};

/// Key that marks an entry as written by braid. The value is the id of the pod's sandbox container.
const CONTAINER: &str = "io.braid/container";

/// An attached network of a pod.
#[derive(Debug, Clone, Copy)]
pub struct Attached<'a> {
    /// Name of the NetworkAttachmentDefinition with its namespace, or else the network's name.
    pub name: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a str,
    /// True for the default network.
    pub is_default: bool,
    /// The result; `None` if the plugins returned none.
    pub result: Option<&'a AddResult>,
    /// MTU that the kernel reports for the interface, used if the result has no MTU.
    pub mtu: Option<u32>,
    /// True if the pod requested its default route on this network.
    pub has_default_route: bool,
    /// Device information, if any.
    pub device_info: Option<&'a Json>,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
}

/// Format of the status annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// True if addresses include their prefix length.
    pub with_prefix: bool,
    /// True if default routes are also in Multus' key `gateway`.
    pub with_gateway: bool,
}

/// Returns the status entry of one network.
pub fn entry(attached: &Attached<'_>, form: Form) -> Json {
    let mut entry = Json::object_of([("name", attached.name.into())]);
    if let Some(result) = attached.result
        && *result != AddResult::default()
    {
        describe(&mut entry, attached, result, form);
    }
    entry.set("default", attached.is_default);
    if let Some(info) = attached.device_info {
        entry.set("device-info", info.clone());
    }
    entry.set(CONTAINER, attached.container_id);
    entry
}

/// Returns the first interface in the sandbox and its index in the result; `None` if all interfaces
/// are on the host.
pub fn interface(result: &AddResult) -> Option<(usize, &Interface)> {
    result
        .interfaces
        .iter()
        .enumerate()
        .find(|(_, interface)| !interface.sandbox.is_empty())
}

fn describe(entry: &mut Json, attached: &Attached<'_>, result: &AddResult, form: Form) {
    let (sandbox, interface) = interface(result).unzip();
    let ifname = interface.map_or(attached.ifname, |interface| &interface.name);
    entry.set("interface", ifname);
    let mut ips = Vec::new();
    for ip in &result.ips {
        // Without an interface in the sandbox, addresses without an interface are the pod's.
        if ip.interface != sandbox {
            continue;
        }
        let text = if form.with_prefix {
            ip.address.to_string()
        } else {
            ip.address.addr().to_string()
        };
        ips.push(text.into());
    }
    set_list(entry, "ips", ips);
    if let Some(interface) = interface
        && !interface.mac.is_empty()
    {
        entry.set("mac", interface.mac.as_str());
    }
    if let Some(mtu) = interface
        .and_then(|interface| interface.mtu)
        .or(attached.mtu)
    {
        entry.set("mtu", mtu);
    }
    let dns = dns(&result.dns);
    if !dns.fields().is_empty() {
        entry.set("dns", dns);
    }
    let gateways: Vec<Json> = gateways(result)
        .iter()
        .map(|gateway| gateway.to_string().into())
        .collect();
    if attached.has_default_route {
        entry.set("default-route", gateways.clone());
    }
    if form.with_gateway {
        set_list(entry, "gateway", gateways);
    }
}

fn dns(dns: &Dns) -> Json {
    let texts = |all: &[String]| all.iter().map(|text| text.as_str().into()).collect();
    let mut json = Json::object_of([]);
    set_list(&mut json, "nameservers", texts(&dns.nameservers));
    if !dns.domain.is_empty() {
        json.set("domain", dns.domain.as_str());
    }
    set_list(&mut json, "search", texts(&dns.search));
    json
}

fn set_list(json: &mut Json, key: &str, items: Vec<Json>) {
    if !items.is_empty() {
        json.set(key, items);
    }
}

/// Returns the annotation's new value: braid's `entries`, and additions that other writers made
/// during the ADD. `seen` is the value that ADD read, and `now` is the current value.
///
/// An addition is in `now` but not in `seen`. It is an entry for another interface, or a key with a
/// dot in one of braid's entries. All other content of `now` is from an earlier sandbox and is
/// dropped.
pub fn rewrite(now: Option<&str>, seen: Option<&str>, mut entries: Vec<Json>) -> String {
    let mut added = list(now);
    if !added.is_empty() {
        let seen = list(seen);
        added.retain(|entry| matches!(entry, Json::Object(_)) && !has(&seen, entry));
        for entry in &mut added {
            let stale = seen
                .iter()
                .find(|stale| is_same(stale, entry))
                .map_or(&[][..], Json::fields);

            if let Some(own) = entries.iter_mut().find(|own| is_same(own, entry)) {
                keep_extensions(own, entry.fields(), stale);
            }
        }
        added.retain(|entry| !entry.has(CONTAINER) && !is_replaced(entry, &entries));
        entries.append(&mut added);
    }
    Json::Array(entries).pretty()
}

/// Returns the annotation's value after a failed ADD. `seen` is the value before the ADD, and `now`
/// is the current value. The result has all entries of `seen`, then the entries that other writers
/// have added since. It has no new entry of this container. `None` if `now` has no entry of this
/// container, so nothing needs to change.
pub fn withdrawn(now: Option<&str>, seen: Option<&str>, container_id: &str) -> Option<String> {
    let is_own = |entry: &Json| text_at(entry, CONTAINER) == Some(container_id);
    let (mut added, mut before) = (list(now), list(seen));
    if !added.iter().any(is_own) {
        return None;
    }
    added.retain(|entry| !is_own(entry) && !has(&before, entry));
    before.append(&mut added);
    Some(Json::Array(before).pretty())
}

/// Returns the annotation's value without the entries of containers for which `is_gone` returns true.
/// Entries of other writers have no container and stay.
pub fn without(value: &str, is_gone: &dyn Fn(&str) -> bool) -> String {
    let mut entries = list(Some(value));
    entries.retain(|entry| !text_at(entry, CONTAINER).is_some_and(is_gone));
    Json::Array(entries).pretty()
}

/// Returns the containers of braid's entries, one for each entry.
pub fn containers(value: Option<&str>) -> Vec<String> {
    let mut containers = Vec::new();
    for entry in list(value) {
        containers.extend(text_at(&entry, CONTAINER).map(str::to_owned));
    }
    containers
}

/// True if the annotation's value contradicts the attachments of a running container: braid's entries
/// are of other networks than `names`, or of a container for which `is_gone` returns true.
///
/// A value with entries of other programs alone is theirs. Without any entry, a pod with the default
/// network alone needs none. Entries of another running container are newer, or are about to be
/// replaced.
pub fn is_stale(
    value: Option<&str>,
    container_id: &str,
    names: &[String],
    is_gone: &dyn Fn(&str) -> bool,
) -> bool {
    let entries = list(value);
    if entries.is_empty() {
        return names.len() > 1;
    }
    let (mut published, mut others) = (Vec::new(), Vec::new());
    for entry in &entries {
        match text_at(entry, CONTAINER) {
            Some(id) if id == container_id => published.extend(text_at(entry, "name")),
            Some(id) => others.push(id),
            None => {}
        }
    }
    if !others.is_empty() {
        return others.iter().all(|id| is_gone(id));
    }
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    published.sort_unstable();
    !published.is_empty() && published != names
}

/// Returns the entries of the annotation's value; empty if the value is absent or not a list.
pub fn list(value: Option<&str>) -> Vec<Json> {
    let Some(text) = value else {
        return Vec::new();
    };
    match Json::parse(text.as_bytes(), "network-status") {
        Ok(Json::Array(entries)) => entries,
        Ok(_) | Err(_) => Vec::new(),
    }
}

fn has(entries: &[Json], entry: &Json) -> bool {
    entries.iter().any(|one| is_equal(one, entry))
}

/// True if both values are equal. The order of keys is ignored, because writers differ in it.
fn is_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(ours), Json::Object(theirs)) => {
            let is_in_theirs = |(key, value): &(String, Json)| {
                let other = theirs.iter().find(|(name, _)| name == key);
                other.is_some_and(|(_, other)| is_equal(value, other))
            };
            ours.len() == theirs.len() && ours.iter().all(is_in_theirs)
        }
        (Json::Array(ours), Json::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .zip(theirs)
                    .all(|(ours, theirs)| is_equal(ours, theirs))
        }
        (a, b) => a == b,
    }
}

fn is_same(a: &Json, b: &Json) -> bool {
    ["name", "interface"]
        .iter()
        .all(|key| text_at(a, key) == text_at(b, key))
}

/// True if the new `entries` replace the entry `before`. They replace every default network, and
/// every entry for an interface that a new entry also has.
fn is_replaced(before: &Json, entries: &[Json]) -> bool {
    let interface = text_at(before, "interface");
    before.get("default") == Some(&Json::Bool(true))
        || interface.is_some()
            && entries
                .iter()
                .any(|now| text_at(now, "interface") == interface)
}

/// Copies keys with a dot from `fields` to `own`. Skips a key that `own` already has, and a key
/// with the same value in `stale`, the entry that ADD read.
fn keep_extensions(own: &mut Json, fields: &[(String, Json)], stale: &[(String, Json)]) {
    for (key, value) in fields {
        let is_stale = stale
            .iter()
            .any(|(old, was)| old == key && is_equal(was, value));
        if key.contains('.') && !is_stale && !own.has(key) {
            own.set(key, value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
