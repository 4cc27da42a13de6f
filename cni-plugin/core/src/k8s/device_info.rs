//! Device information files (Device Information Specification 1.1.0): their content and names, and
//! the assignment of devices to networks.

use crate::cni::bounds::shortened;
use crate::cni::{Error, Json};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Folder of all device information files.
pub const DIR: &str = "/var/run/k8s.cni.cncf.io/devinfo";
/// Subfolder for files of device plugins.
pub const DP: &str = "dp";
/// Subfolder for files of attachments.
pub const CNI: &str = "cni";
/// Maximum length of a file name in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// Device types, each with the required keys of the object that describes the device.
const TYPES: [(&str, &[&str]); 4] = [
    ("pci", &["pci-address"]),
    ("vdpa", &["parent-device", "driver", "path"]),
    ("vhost-user", &["mode", "path"]),
    ("memif", &["role", "path", "mode"]),
];

/// Keys with a fixed set of values: device type, key, values. `punt` is accepted because the client
/// library of Multus writes it.
const VALUES: [(&str, &str, &[&str]); 4] = [
    ("vdpa", "driver", &["vhost", "virtio"]),
    ("vhost-user", "mode", &["client", "server"]),
    ("memif", "role", &["master", "slave"]),
    ("memif", "mode", &["ethernet", "ip", "inject-punt", "punt"]),
];

/// Parses device information and keeps unknown keys. Invalid content fails with code 6 and the
/// reason.
pub fn parse(bytes: &[u8]) -> Result<Json, Error> {
    const WHAT: &str = "device information";
    let json = Json::parse(bytes, WHAT)?;
    check(&json).map_err(|error| error.context(WHAT))?;
    Ok(json)
}

fn check(json: &Json) -> Result<(), Error> {
    if !matches!(json, Json::Object(_)) {
        return Err(json.mismatch("an object"));
    }
    let kind = json.str_or("type", "")?;
    let Some((kind, required)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        let known = TYPES.map(|(name, _)| name).join(", ");
        return Err(Error::decode(format!(
            "\"type\": {:?} is not one of {known}",
            shortened(kind)
        )));
    };
    let version = json.str_or("version", "")?;
    if !is_version(version) {
        return Err(Error::decode(format!(
            "\"version\": {:?} is not like 1.1.0",
            shortened(version)
        )));
    }
    let object = json
        .object(kind)?
        .ok_or_else(|| Error::decode(format!("{kind:?} is missing")))?;
    for key in *required {
        if object
            .str_or(key, "")
            .map_err(|error| error.context(kind))?
            .is_empty()
        {
            return Err(Error::decode(format!("{kind}: {key:?} is missing")));
        }
    }
    for (name, key, known) in &VALUES {
        if name != kind {
            continue;
        }
        let value = object.str_or(key, "")?;
        if !known.contains(&value) {
            return Err(Error::decode(format!(
                "{kind}: {key:?}: {:?} is not one of {}",
                shortened(value),
                known.join(", ")
            )));
        }
    }
    match (*kind, object.str_or("pci-address", "")?) {
        ("pci", address) if !is_pci_address(address) => Err(Error::decode(format!(
            "pci: \"pci-address\": {:?} is not like 0000:18:02.5",
            shortened(address)
        ))),
        _ => Ok(()),
    }
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// True for a PCI address, `dddd:BB:DD.f`. The domain of a volume management device has up to 8
/// digits.
fn is_pci_address(text: &str) -> bool {
    let digits = |part: &str, least: usize, most: usize| {
        (least..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((front, function)) = text.split_once('.') else {
        return false;
    };
    let parts: Vec<&str> = front.split(':').collect();
    let [domain, bus, device] = parts[..] else {
        return false;
    };
    digits(function, 1, 1) && digits(domain, 4, 8) && digits(bus, 2, 2) && digits(device, 2, 2)
}

/// Returns the name of a device plugin's file in [`DP`].
pub fn dp_file(resource: &str, device: &str) -> Result<String, Error> {
    file_name(format!(
        "{}-{device}-device.json",
        resource.replace('/', "-")
    ))
    .map_err(|error| {
        error.context(format_args!(
            "device {:?} of {:?}",
            shortened(device),
            shortened(resource)
        ))
    })
}

/// Returns the name of an attachment's file in [`CNI`]. Neither `container_id` nor `ifname` can
/// contain the separator `:`, so the names are unique.
pub fn cni_file(container_id: &str, ifname: &str) -> Result<String, Error> {
    file_name(format!("{container_id}:{ifname}-device.json"))
}

fn file_name(name: String) -> Result<String, Error> {
    if name.contains(['/', '\0']) || name.len() > MAX_NAME_BYTES {
        return Err(Error::config(format!(
            "{:?} is not a valid file name",
            shortened(&name)
        )));
    }
    Ok(name)
}

/// A device of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Resource that provides it.
    pub resource: String,
    /// Its id.
    pub id: String,
}

/// A network that may need a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    /// Resource of the device; `None` if the network needs none.
    pub resource: Option<&'a str>,
    /// Device of the attachment that this one replaces, if any.
    pub former: Option<&'a Device>,
}

/// Assigns a device to each network that needs one. `devices` are the pod's device ids by resource,
/// and `used` the devices of its other attachments. A network keeps its former device. The other
/// devices of a resource are sorted by id and assigned to its networks in order. A network gets no
/// device if `devices` lacks the resource, because some resources exist only for the scheduler.
/// Fails if a resource has fewer devices than networks.
pub fn assign(
    asked: &[Asked<'_>],
    devices: &BTreeMap<String, Vec<String>>,
    used: &[Device],
) -> Result<Vec<Option<String>>, Error> {
    let mut free: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for (resource, ids) in devices {
        let is_used = |id: &String| {
            used.iter()
                .any(|one| one.resource == *resource && one.id == *id)
        };
        let ids = ids.iter().filter(|id| !is_used(id));
        free.insert(resource, ids.collect());
    }
    let mut assigned = Vec::with_capacity(asked.len());
    for Asked { resource, former } in asked {
        let ids = resource.and_then(|name| free.get_mut(name));
        let kept = former.filter(|former| Some(former.resource.as_str()) == *resource);
        let kept = ids.zip(kept).and_then(|(ids, former)| ids.take(&former.id));
        assigned.push(kept.cloned());
    }
    for (id, Asked { resource, .. }) in assigned.iter_mut().zip(asked) {
        let Some(resource) = resource.filter(|_| id.is_none()) else {
            continue;
        };
        if let Some(ids) = free.get_mut(resource) {
            let first = ids.pop_first();
            *id = Some(
                first
                    .ok_or_else(|| too_few(resource, asked, (devices, used)))?
                    .clone(),
            );
        }
    }
    Ok(assigned)
}

#[cold]
fn too_few(
    resource: &str,
    asked: &[Asked<'_>],
    (devices, used): (&BTreeMap<String, Vec<String>>, &[Device]),
) -> Error {
    let wanted = asked
        .iter()
        .filter(|one| one.resource == Some(resource))
        .count();
    let has: BTreeSet<&String> = devices.get(resource).into_iter().flatten().collect();
    let has = has.len();
    let used = match used.iter().filter(|one| one.resource == resource).count() {
        0 => String::new(),
        count => format!(", of which its other networks use {count}"),
    };
    let resource = shortened(resource);
    let sentence = "the pod's containers must request one for each network";
    Error::config(format!(
        "resource {resource:?}: {wanted} networks need a device of it, but the pod has {has}{used}; {sentence}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Kind;

    // Conformance: D1, D2, D3, D4, D5, D6
    #[test]
    fn each_type_requires_its_keys_and_unknown_keys_are_kept() {
        let pci = r#""pci-address":"0000:18:02.5","vhost-net":"/dev/v","rdma-device":"r","pf-pci-address":"0000:18:00.0","#;
        for text in [
            format!(r#"{{"type":"pci","version":"1.1.0","pci":{{{pci}"representor-device":"eth3","new":1e+400}}}}"#),
            r#"{"type":"pci","version":"1.0.0","pci":{"pci-address":"10000:e1:1f.7"},"org.x":[1]}"#.to_owned(),
            r#"{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa3","driver":"vhost","path":"/dev/v","device":"d"}}"#
                .to_owned(),
            r#"{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/s"}}"#.to_owned(),
            r#"{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/m","mode":"inject-punt"}}"#.to_owned(),
            r#"{"type":"memif","version":"1.1.0","memif":{"role":"master","path":"/m","mode":"punt"}}"#.to_owned(),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    // Conformance: D1
    #[test]
    fn invalid_device_information_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "invalid JSON"),
            ("[]", "expected an object, got []"),
            (
                "{}",
                r#""type": "" is not one of pci, vdpa, vhost-user, memif"#,
            ),
            (
                r#"{"type":"usb","version":"1.1.0"}"#,
                r#""type": "usb" is not one of"#,
            ),
            (r#"{"type":1}"#, r#""type": expected a string, got 1"#),
            (r#"{"type":"pci"}"#, r#""version": "" is not like 1.1.0"#),
            (
                r#"{"type":"pci","version":"1.1"}"#,
                r#""version": "1.1" is not like"#,
            ),
            (
                r#"{"type":"pci","version":"1.1.x"}"#,
                r#""version": "1.1.x" is not like"#,
            ),
            (r#"{"type":"pci","version":"1.1.0"}"#, r#""pci" is missing"#),
            (
                r#"{"type":"pci","version":"1.1.0","pci":{}}"#,
                r#"pci: "pci-address" is missing"#,
            ),
            (
                r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"../x"}}"#,
                "is not like 0000:18:02.5",
            ),
            (
                r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02"}}"#,
                "is not like 0000:18:02.5",
            ),
            (
                r#"{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02:1.5"}}"#,
                "is not like 0000:18:02.5",
            ),
            (
                r#"{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"v","driver":"x","path":"/"}}"#,
                "vhost, virtio",
            ),
            (
                r#"{"type":"memif","version":"1.1.0","memif":{"role":"master","path":"/m"}}"#,
                r#"memif: "mode" is missing"#,
            ),
            (
                r#"{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"both","path":"/"}}"#,
                "client, server",
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind, Kind::Decode, "{text}");
            assert!(
                error.msg.starts_with("device information: ") && error.msg.contains(why),
                "{text}: {error}"
            );
        }
    }

    // Conformance: D7
    #[test]
    fn device_plugin_file_is_named_after_resource_and_device() {
        assert_eq!(
            dp_file("a.b/c", "0000:01:02.3").unwrap(),
            "a.b-c-0000:01:02.3-device.json"
        );
        for (resource, device) in [
            ("a.b/c", "../x"),
            ("a", "b/c"),
            ("a", "\0"),
            ("a", &*"x".repeat(300)),
        ] {
            assert_eq!(
                dp_file(resource, device).unwrap_err().kind,
                Kind::InvalidConfig,
                "{resource} {device}"
            );
        }
        assert_eq!(dp_file("..", "..").unwrap(), "..-..-device.json");
    }

    // Conformance: D8
    #[test]
    fn attachment_file_name_is_unique() {
        let names = [
            ("c1", "net1"),
            ("c1", "net2"),
            ("c2", "net1"),
            ("c1-net1", "a"),
            ("c1", "net1-a"),
        ];
        let mut files: Vec<String> = names
            .iter()
            .map(|(id, ifname)| cni_file(id, ifname).unwrap())
            .collect();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), names.len());
        assert!(cni_file(&"c".repeat(300), "net1").is_err());
    }

    // Conformance: D9
    #[test]
    fn devices_of_a_resource_are_assigned_to_its_networks_in_order() {
        let id_list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let devices = BTreeMap::from([
            (
                "a/vf".to_owned(),
                id_list(&["0000:02.2", "0000:02.1", "0000:02.1", "0000:02.9"]),
            ),
            ("b/vf".to_owned(), id_list(&["x"])),
            ("c/none".to_owned(), id_list(&[])),
        ]);
        let assign = |asked: &[&str]| {
            let asked: Vec<Asked<'_>> = asked
                .iter()
                .map(|name| Asked {
                    resource: Some(*name).filter(|name| !name.is_empty()),
                    former: None,
                })
                .collect();
            let ids = assign(&asked, &devices, &[]).map_err(|error| error.msg)?;
            Ok::<_, String>(
                ids.into_iter()
                    .map(Option::unwrap_or_default)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(
            assign(&["", "a/vf", "b/vf", "a/vf", "bridge/br0"]).unwrap(),
            " 0000:02.1 x 0000:02.2 "
        );
        let sentence = concat!(
            r#"resource "b/vf": 2 networks need a device of it, but the pod has 1; "#,
            "the pod's containers must request one for each network"
        );
        assert_eq!(assign(&["b/vf", "a/vf", "b/vf"]).unwrap_err(), sentence);
        assert!(
            assign(&["c/none"])
                .unwrap_err()
                .contains("1 networks need a device of it, but the pod has 0")
        );
    }
    #[test]
    fn a_network_keeps_its_device_and_takes_none_of_others() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let devices = BTreeMap::from([
            ("a/vf".to_owned(), ids(&["1", "2", "3"])),
            ("b/vf".to_owned(), ids(&["1"])),
        ]);
        let device = |resource: &str, id: &str| Device {
            resource: resource.to_owned(),
            id: id.to_owned(),
        };
        let assign = |asked: &[(&str, Option<&Device>)], used: &[Device]| {
            let asked: Vec<Asked<'_>> = asked
                .iter()
                .map(|(resource, former)| Asked {
                    resource: Some(resource),
                    former: *former,
                })
                .collect();
            let given = super::assign(&asked, &devices, used).map_err(|error| error.msg)?;
            let given = given.into_iter().map(Option::unwrap_or_default);
            Ok::<_, String>(given.collect::<Vec<_>>().join(" "))
        };
        let (second, gone) = (device("a/vf", "2"), device("a/vf", "9"));
        for (asked, used, expected) in [
            (
                &[("a/vf", None), ("a/vf", Some(&second))][..],
                &[][..],
                "1 2",
            ),
            (
                &[("a/vf", None), ("a/vf", None)],
                &[device("a/vf", "1")],
                "2 3",
            ),
            (&[("b/vf", Some(&second))], &[device("a/vf", "1")], "1"),
            (&[("a/vf", Some(&gone))], &[], "1"),
            (
                &[("a/vf", Some(&second))],
                std::slice::from_ref(&second),
                "1",
            ),
        ] {
            assert_eq!(
                assign(asked, used).as_deref(),
                Ok(expected),
                "{asked:?} {used:?}"
            );
        }
        let refused = assign(&[("b/vf", None)], &[device("b/vf", "1")]).expect_err("none is free");
        assert!(
            refused.contains("has 1, of which its other networks use 1;"),
            "{refused}"
        );
    }
}
