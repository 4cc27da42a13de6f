//! ResourceSlices of a node: the ones that its links need, and the changes of the present ones.
//!
//! ```text
//!  00000-braid.dev-n1-…  sharedCounters: one set per link that is offered in both forms
//!  00001-braid.dev-n1-…  devices: eth0, eth1, eth1-whole. A share and the whole take the same counter
//! ```

use super::device::{self, Form};
use super::nic::{self, Offer};
use super::rate::Rate;
use super::{BANDWIDTH, DRIVER};
use serde_json::{Map, Value, json};

/// `apiVersion` of slices.
pub const API_VERSION: &str = "resource.k8s.io/v1";
/// Kind of slices.
pub const KIND: &str = "ResourceSlice";
/// Taint of a device without a carrier.
pub const LINK_DOWN: &str = "braid.dev/link-down";
/// Most devices of a slice, if any of them has taints or counters.
const MOST_DEVICES: usize = 64;
/// Most counter sets of a slice, which then has no devices.
const MOST_COUNTERS: usize = 8;
/// Name of the counter of each set.
const COUNTER: &str = "use";
/// Most bytes of the node's name in the name of a slice, which has 253.
const MOST_NAME: usize = 200;

/// A Node, which owns its slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name, which is the name of the pool too.
    pub name: String,
    /// `metadata.uid`. A Node that is registered again has another one.
    pub uid: String,
}

impl Owner {
    fn references(&self) -> Value {
        json!([{
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.name,
            "uid": self.uid,
            "controller": true,
        }])
    }
}

/// A slice of the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub version: String,
    owners: Value,
    spec: Value,
}

impl Slice {
    /// Returns the slice of an object; `None` without a name, which no API server sends.
    pub fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().map(str::to_owned);
        Some(Self {
            name: text("name")?,
            version: text("resourceVersion").unwrap_or_default(),
            owners: metadata["ownerReferences"].clone(),
            spec: object["spec"].clone(),
        })
    }

    /// Returns the speed of a device in Mbit/s, as the slice has it.
    pub fn speed_mbit(&self, device: &str) -> Option<u32> {
        let device = self.device(device)?;
        let speed = device["attributes"]["speed"]["int"].as_u64()?;
        u32::try_from(speed).ok()
    }

    fn device(&self, name: &str) -> Option<&Value> {
        let mut devices = self.spec["devices"].as_array()?.iter();
        devices.find(|device| device["name"] == name)
    }

    fn generation(&self) -> u64 {
        self.spec["pool"]["generation"].as_u64().unwrap_or_default()
    }

    fn is_of_pool(&self, generation: u64, count: usize) -> bool {
        let count = u64::try_from(count).ok();
        self.generation() == generation && self.spec["pool"]["resourceSliceCount"].as_u64() == count
    }

    fn content(&self) -> Value {
        content_of(&self.spec)
    }

    fn has_owner(&self, owner: &Owner) -> bool {
        self.owners == owner.references()
    }
}

/// A request that a slice needs.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates this object.
    Create(Value),
    /// Replaces the object of this name.
    Update(String, Value),
    /// Deletes the object of this name.
    Delete(String),
}

/// Returns the contents of the slices of a node. Without devices it is an empty slice, which says that
/// the driver is there.
pub fn contents(node: &str, offers: &[Offer<'_>]) -> Vec<Value> {
    let (mut sets, mut devices) = (Vec::new(), Vec::new());
    for offer in offers {
        let counters = offer.forms.contains(&Form::Whole).then(|| {
            let set = device::name(&offer.nic.name, Form::Shared);
            sets.push(json!({"name": set, "counters": {COUNTER: {"value": "1"}}}));
            json!([{"counterSet": set, "counters": {COUNTER: {"value": "1"}}}])
        });
        for form in offer.forms {
            let mut device = device_of(offer, *form);
            if let Some(counters) = &counters {
                device["consumesCounters"] = counters.clone();
            }
            devices.push(device);
        }
    }
    let slice = |key: &str, items: &[Value]| {
        let mut content = content(node);
        content[key] = items.into();
        content
    };
    let sets = sets.chunks(MOST_COUNTERS);
    let mut contents: Vec<Value> = sets.map(|sets| slice("sharedCounters", sets)).collect();
    let devices = devices.chunks(MOST_DEVICES);
    contents.extend(devices.map(|devices| slice("devices", devices)));
    if contents.is_empty() {
        contents.push(content(node));
    }
    contents
}

fn content(node: &str) -> Value {
    json!({"driver": DRIVER, "nodeName": node, "pool": {"name": node}})
}

fn device_of(offer: &Offer<'_>, form: Form) -> Value {
    let mut device = json!({
        "name": device::name(&offer.nic.name, form),
        "attributes": attributes(offer),
        "capacity": {BANDWIDTH: capacity(offer, form)},
    });
    if form == Form::Shared {
        device["allowMultipleAllocations"] = true.into();
    }
    if !offer.nic.has_carrier() {
        device["taints"] = json!([{"key": LINK_DOWN, "effect": "NoSchedule"}]);
    }
    device
}

fn attributes(offer: &Offer<'_>) -> Value {
    let nic = offer.nic;
    let state = if nic.has_carrier() { "up" } else { "down" };
    let speed = offer.speed.0 / Rate::of_mbit(1).0;
    let speed = nic.speed_mbit.map_or(speed, u64::from);
    let mut attributes = json!({
        "ifName": {"string": nic.name.as_str()},
        "mtu": {"int": nic.fact.mtu},
        "type": {"string": nic.kind()},
        "state": {"string": state},
        "virtual": {"bool": nic.device.is_none()},
        "speed": {"int": speed},
    });
    if let Some(mac) = nic.fact.mac {
        attributes["mac"] = json!({"string": mac.to_string()});
    }
    let Some(device) = &nic.device else {
        return attributes;
    };
    if let Some(node) = device.numa_node {
        attributes["numaNode"] = json!({"int": node});
    }
    let places = [("pciBusID", &device.pci), ("pcieRoot", &device.root)];
    for (key, place) in places {
        if let Some(place) = place {
            attributes[format!("resource.kubernetes.io/{key}")] = json!({"string": place});
        }
    }
    attributes
}

/// Returns the capacity of a device. A pod that has the device alone has all of it.
fn capacity(offer: &Offer<'_>, form: Form) -> Value {
    let bandwidth = offer.bandwidth.to_string();
    if form == Form::Whole {
        return json!({"value": bandwidth});
    }
    let default = nic::default_bandwidth(offer.speed).min(offer.bandwidth);
    json!({
        "value": bandwidth,
        "requestPolicy": {
            "default": default.to_string(),
            "validRange": {"min": nic::MIN.to_string(), "max": bandwidth},
        },
    })
}

/// Returns the changes of the present slices of a pool that give it these contents. One slice changes
/// in place. More of them get a new generation together: until the last one has it, the scheduler
/// leaves the pool alone.
pub fn changes(present: &[Slice], contents: &[Value], owner: &Owner) -> Vec<Change> {
    let mut present: Vec<&Slice> = present.iter().collect();
    present.sort_by_key(|slice| &slice.name);
    let kept = present.len().min(contents.len());
    let surplus = present.split_off(kept);
    let count = contents.len();
    let newest = present.iter().map(|slice| slice.generation()).max();
    let newest = newest.max(surplus.iter().map(|slice| slice.generation()).max());
    let newest = newest.unwrap_or_default();
    let is_one_pool = present.iter().all(|slice| slice.is_of_pool(newest, count));
    let pairs = present.iter().zip(contents);
    let different = pairs.filter(|(slice, content)| slice.content() != **content);
    let is_in_place = is_one_pool && kept > 0 && different.count() + (count - kept) <= 1;
    let generation = if is_in_place { newest } else { newest + 1 };
    let mut changes = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        let spec = spec(content, generation, count);
        let Some(slice) = present.get(number) else {
            changes.push(Change::Create(created(number, &spec, owner)));
            continue;
        };
        let is_same = slice.content() == *content && slice.is_of_pool(generation, count);
        if !is_same || !slice.has_owner(owner) {
            let object = updated(slice, spec, owner);
            changes.push(Change::Update(slice.name.clone(), object));
        }
    }
    let surplus = surplus.iter().map(|slice| slice.name.clone());
    changes.extend(surplus.map(Change::Delete));
    changes
}

/// Returns the deletion of all present slices.
pub fn removal(present: &[Slice]) -> Vec<Change> {
    let names = present.iter().map(|slice| slice.name.clone());
    names.map(Change::Delete).collect()
}

/// True if the API server, which answered a change with `stored`, left out a part of it. It does so
/// with fields of features that are off.
pub fn is_cut(change: &Change, stored: &Value) -> bool {
    match change {
        Change::Create(sent) | Change::Update(_, sent) => {
            content_of(&sent["spec"]) != content_of(&stored["spec"])
        }
        Change::Delete(_) => false,
    }
}

/// Returns the content of a slice as [`contents`] does, without the values that the API server adds.
fn content_of(spec: &Value) -> Value {
    let mut content = spec.clone();
    if let Some(pool) = content.get_mut("pool").and_then(Value::as_object_mut) {
        pool.retain(|key, _| key == "name");
    }
    for device in devices(&mut content) {
        if let Some(taint) = taint(device) {
            taint.remove("timeAdded");
        }
    }
    content
}

fn spec(content: &Value, generation: u64, count: usize) -> Value {
    let mut spec = content.clone();
    spec["pool"]["generation"] = generation.into();
    spec["pool"]["resourceSliceCount"] = count.into();
    spec
}

fn created(number: usize, spec: &Value, owner: &Owner) -> Value {
    let mut end = owner.name.len().min(MOST_NAME);
    while !owner.name.is_char_boundary(end) {
        end -= 1;
    }
    let node = owner.name[..end].trim_end_matches(['.', '-']);
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            // The scheduler tries slices in the order of their names.
            "generateName": format!("{number:05}-{DRIVER}-{node}-"),
            "ownerReferences": owner.references(),
        },
        "spec": spec,
    })
}

fn updated(slice: &Slice, mut spec: Value, owner: &Owner) -> Value {
    keep_times(slice, &mut spec);
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": slice.name,
            "resourceVersion": slice.version,
            "ownerReferences": owner.references(),
        },
        "spec": spec,
    })
}

/// Keeps the times of taints that the present slice has too.
fn keep_times(slice: &Slice, spec: &mut Value) {
    for device in devices(spec) {
        let name = device["name"].as_str().unwrap_or_default();
        let present = slice.device(name);
        let time = present.map(|present| present["taints"][0]["timeAdded"].clone());
        if let Some(time) = time.filter(Value::is_string)
            && let Some(taint) = taint(device)
        {
            taint.insert("timeAdded".to_owned(), time);
        }
    }
}

fn devices(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let devices = spec.get_mut("devices").and_then(Value::as_array_mut);
    devices.into_iter().flatten()
}

/// Returns the taint of a device, which has one at most.
fn taint(device: &mut Value) -> Option<&mut Map<String, Value>> {
    device.get_mut("taints")?.get_mut(0)?.as_object_mut()
}

#[cfg(test)]
mod tests;
