//! The annotation `k8s.v1.cni.cncf.io/network-status`: the networks of a pod, described from their
//! results.

use super::default_route::gateways;
use crate::cni::{AddResult, Dns, Interface, Json};
use std::net::IpAddr;

/// Key of braid's own entries: the container that the entry was written for.
const CONTAINER: &str = "io.braid/container";

/// An attached network of a pod.
#[derive(Debug, Clone, Copy)]
pub struct Attached<'a> {
    /// Name of the NetworkAttachmentDefinition with its namespace, or of the network.
    pub name: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a str,
    /// True for the default network.
    pub is_default: bool,
    /// The result; `None` if the plugins returned none.
    pub result: Option<&'a AddResult>,
    /// MTU that the kernel reports for the interface, for results without one.
    pub mtu: Option<u32>,
    /// True if the pod requested its default route on this network.
    pub has_default_route: bool,
    /// Device information, if any.
    pub device_info: Option<&'a Json>,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
}

/// Format of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// True if addresses include their prefix.
    pub with_prefix: bool,
    /// True if default routes are also in Multus' key `gateway`.
    pub with_gateway: bool,
}

/// Returns the entry of one network.
pub fn entry(attached: &Attached<'_>, form: Form) -> Json {
    let mut entry = Json::object_of([("name", attached.name.into())]);
    if let Some(result) = attached
        .result
        .filter(|result| **result != AddResult::default())
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

/// Returns the first interface in the sandbox, and its index.
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
    // Without an interface in the sandbox, addresses without an interface are the pod's.
    let own = result.ips.iter().filter(|ip| ip.interface == sandbox);
    let text = |net: ipnet::IpNet| {
        if form.with_prefix {
            net.to_string()
        } else {
            net.addr().to_string()
        }
    };
    let ips: Vec<Json> = own.map(|ip| text(ip.address).into()).collect();
    set_list(entry, "ips", ips);
    if let Some(mac) = interface
        .map(|interface| interface.mac.as_str())
        .filter(|mac| !mac.is_empty())
    {
        entry.set("mac", mac);
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
        .map(IpAddr::to_string)
        .map(Json::from)
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

/// Returns the annotation's new value: `entries`, plus what other writers added between `seen`, the
/// value that ADD read, and `now`. It keeps their entries for other interfaces, and keys with a dot
/// that they added to braid's entries. The rest is left over from an earlier sandbox and dropped.
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
            let is_stale = |(key, value): &(String, Json)| {
                stale
                    .iter()
                    .any(|(old, was)| old == key && is_equal(was, value))
            };
            if let Some(own) = entries.iter_mut().find(|own| is_same(own, entry)) {
                keep_extensions(own, entry.fields().iter().filter(|field| !is_stale(field)));
            }
        }
        added.retain(|entry| !entry.has(CONTAINER) && !is_replaced(entry, &entries));
        entries.append(&mut added);
    }
    Json::Array(entries).pretty()
}

/// Returns the annotation's value after a failed ADD, without the entries of this container. It is
/// `seen`, which ADD has replaced, and later additions of other writers. `None` if `now` has no
/// entry of this container.
pub fn withdrawn(now: Option<&str>, seen: Option<&str>, container_id: &str) -> Option<String> {
    let is_own = |entry: &Json| text(entry, CONTAINER) == Some(container_id);
    let (mut added, mut before) = (list(now), list(seen));
    if !added.iter().any(is_own) {
        return None;
    }
    added.retain(|entry| !is_own(entry) && !has(&before, entry));
    before.append(&mut added);
    Some(Json::Array(before).pretty())
}

/// Returns the entries of a value; empty if it is not a list.
pub fn list(value: Option<&str>) -> Vec<Json> {
    match value.and_then(|text| Json::parse(text.as_bytes(), "network-status").ok()) {
        Some(Json::Array(entries)) => entries,
        Some(_) | None => Vec::new(),
    }
}

fn has(entries: &[Json], entry: &Json) -> bool {
    entries.iter().any(|one| is_equal(one, entry))
}

/// True if both values are equal. The order of keys is ignored, because writers differ in it.
fn is_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(ours), Json::Object(theirs)) => {
            let in_theirs = |key: &str| {
                theirs
                    .iter()
                    .find(|(name, _)| name == key)
                    .map(|(_, value)| value)
            };
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .all(|(key, value)| in_theirs(key).is_some_and(|other| is_equal(value, other)))
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

fn text<'a>(entry: &'a Json, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Json::as_str)
}

fn is_same(a: &Json, b: &Json) -> bool {
    ["name", "interface"]
        .iter()
        .all(|key| text(a, key) == text(b, key))
}

/// True if a new entry replaces it: it is a default network, or has the interface of a new entry.
fn is_replaced(before: &Json, entries: &[Json]) -> bool {
    let interface = text(before, "interface");
    before.get("default") == Some(&Json::Bool(true))
        || interface.is_some()
            && entries
                .iter()
                .any(|now| text(now, "interface") == interface)
}

fn keep_extensions<'f>(now: &mut Json, fields: impl Iterator<Item = &'f (String, Json)>) {
    for (key, value) in fields.filter(|(key, _)| key.contains('.')) {
        if !now.has(key) {
            now.set(key, value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
