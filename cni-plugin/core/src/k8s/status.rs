//! The annotation `k8s.v1.cni.cncf.io/network-status`: what a pod was attached to, from the results of its networks.

use super::default_route::gateways;
use crate::cni::{AddResult, Dns, Interface, Json};
use std::net::IpAddr;

/// Key by which an entry is told to be braid's own: the container it was written for.
const CONTAINER: &str = "io.braid/container";

/// One network of a pod, attached.
#[derive(Debug, Clone, Copy)]
pub struct Attached<'a> {
    /// Name of the NetworkAttachmentDefinition with its namespace, or of the network.
    pub name: &'a str,
    /// `CNI_IFNAME`.
    pub ifname: &'a str,
    /// True if it is the default network.
    pub is_default: bool,
    /// The result; `None` where the plugins gave none.
    pub result: Option<&'a AddResult>,
    /// MTU of the interface as the kernel says, for results without one.
    pub mtu: Option<u32>,
    /// True if the pod asked for the default route on it.
    pub has_default_route: bool,
    /// Its device information.
    pub device_info: Option<&'a Json>,
    /// `CNI_CONTAINERID`.
    pub container_id: &'a str,
}

/// The form of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Addresses have their prefix.
    pub with_prefix: bool,
    /// Default routes are also in the key `gateway` of Multus.
    pub with_gateway: bool,
}

/// The entry of one network.
pub fn entry(attached: &Attached<'_>, form: Form) -> Json {
    let mut entry = Json::object_of([("name", attached.name.into())]);
    if let Some(result) = attached.result.filter(|result| **result != AddResult::default()) {
        describe(&mut entry, attached, result, form);
    }
    entry.set("default", attached.is_default);
    if let Some(info) = attached.device_info {
        entry.set("device-info", info.clone());
    }
    entry.set(CONTAINER, attached.container_id);
    entry
}

/// The first interface in the sandbox, and its index.
pub fn interface(result: &AddResult) -> Option<(usize, &Interface)> {
    result.interfaces.iter().enumerate().find(|(_, interface)| !interface.sandbox.is_empty())
}

fn describe(entry: &mut Json, attached: &Attached<'_>, result: &AddResult, form: Form) {
    let (sandbox, interface) = interface(result).unzip();
    let ifname = interface.map_or(attached.ifname, |interface| &interface.name);
    entry.set("interface", ifname);
    // Without an interface in the sandbox, those that belong to none are the pod's.
    let own = result.ips.iter().filter(|ip| ip.interface == sandbox);
    let text = |net: ipnet::IpNet| if form.with_prefix { net.to_string() } else { net.addr().to_string() };
    let ips: Vec<Json> = own.map(|ip| text(ip.address).into()).collect();
    set_list(entry, "ips", ips);
    if let Some(mac) = interface.map(|interface| interface.mac.as_str()).filter(|mac| !mac.is_empty()) {
        entry.set("mac", mac);
    }
    if let Some(mtu) = interface.and_then(|interface| interface.mtu).or(attached.mtu) {
        entry.set("mtu", mtu);
    }
    let dns = dns(&result.dns);
    if !dns.fields().is_empty() {
        entry.set("dns", dns);
    }
    let gateways: Vec<Json> = gateways(result).iter().map(IpAddr::to_string).map(Json::from).collect();
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

/// The annotation's new value: these entries, and of the `old` value what others wrote: entries of other interfaces, and keys
/// with a dot. Entries of an earlier container of the pod go.
pub fn rewrite(old: Option<&str>, mut entries: Vec<Json>) -> String {
    let old = old.and_then(|text| Json::parse(text.as_bytes(), "network-status").ok());
    let Some(Json::Array(old)) = old else { return Json::Array(entries).pretty() };
    let mut foreign = Vec::new();
    for mut before in old.into_iter().filter(|entry| matches!(entry, Json::Object(_))) {
        let is_own = before.has(CONTAINER);
        before.remove(CONTAINER);
        if let Some(now) = entries.iter_mut().find(|now| is_same(now, &before)) {
            keep_extensions(now, &before);
        } else if !is_own && !is_replaced(&before, &entries) {
            foreign.push(before);
        }
    }
    entries.append(&mut foreign);
    Json::Array(entries).pretty()
}

fn text<'a>(entry: &'a Json, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Json::as_str)
}

fn is_same(a: &Json, b: &Json) -> bool {
    ["name", "interface"].iter().all(|key| text(a, key) == text(b, key))
}

/// True if a new entry can't stand beside it: another default network, or another network of that interface.
fn is_replaced(before: &Json, entries: &[Json]) -> bool {
    let interface = text(before, "interface");
    before.get("default") == Some(&Json::Bool(true))
        || interface.is_some() && entries.iter().any(|now| text(now, "interface") == interface)
}

fn keep_extensions(now: &mut Json, before: &Json) {
    let extensions = before.fields().iter().filter(|(key, _)| key.contains('.'));
    for (key, value) in extensions {
        if !now.has(key) {
            now.set(key, value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
