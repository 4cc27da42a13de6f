//! Keys of `network`, a CNI configuration in a claim or a class. Users write claims, so a claim may
//! name no file of the node, no program and no other link.

use crate::cni::bounds::shortened;
use crate::cni::{Error, Json};
use crate::ipam::configuration;

/// Plugin types of a claim. Each makes an interface of one parent link, or moves this link.
pub const KINDS: [&str; 4] = ["macvlan", "ipvlan", "vlan", "host-device"];
/// Type of a device that one pod has alone, unless it has another one.
pub const WHOLE_KIND: &str = "host-device";
/// Type of a share, unless it has another one.
pub const SHARED_KIND: &str = "macvlan";
/// Keys that only the driver or the runtime sets.
const SET_BY_DRIVER: [&str; 3] = ["master", "prevResult", "runtimeConfig"];
/// Keys with which a plugin of [`KINDS`] finds its link.
const SELECTORS: [&str; 6] = [
    "device",
    "deviceID",
    "hwaddr",
    "kernelpath",
    "linkInContainer",
    "pciBusID",
];
/// Keys that only a class may have.
const OF_CLASS: [&str; 6] = [
    "args",
    "capabilities",
    "delegate",
    "DPDKMode",
    "name",
    "plugins",
];
/// Keys of a claim beside a class's type that is not one of [`KINDS`].
const BESIDE_OTHER_KIND: [&str; 2] = ["mtu", "ipam"];
/// Keys in `ipam` that only a class may have. They name files of the node.
const IPAM_OF_CLASS: [&str; 6] = [
    "configuration_path",
    "daemonSocketPath",
    "dataDir",
    "kubernetes",
    "log_file",
    "resolvConf",
];

/// Refuses keys that a class, or a claim, must not have.
pub fn check(network: &Json, is_of_class: bool) -> Result<(), Error> {
    check_plugin(network)?;
    for (index, plugin) in network
        .list("plugins")?
        .unwrap_or_default()
        .iter()
        .enumerate()
    {
        check_plugin(plugin).map_err(|error| {
            error
                .context(format_args!("plugins[{index}]"))
                .at_index(index)
                .at_key("plugins")
        })?;
    }
    if is_of_class {
        return Ok(());
    }
    for (key, value) in network.fields() {
        if is_in(&OF_CLASS, key) {
            return Err(refused(key, value, "only a DeviceClass may have this key"));
        }
    }
    if let Some(kind) = network.str("type")?
        && !KINDS.contains(&kind)
    {
        let why = format!(
            "not one of {}; a DeviceClass may have other types",
            KINDS.join(", ")
        );
        return Err(refused("type", &kind.into(), why));
    }
    match network.object("ipam")? {
        Some(ipam) => check_ipam(ipam).map_err(|error| error.context("\"ipam\"").at_key("ipam")),
        None => Ok(()),
    }
}

/// Refuses keys that a claim must not set in the network of a class with the type `kind`, which is not
/// one of [`KINDS`]. They could name another link, a file or a program.
pub fn check_beside(kind: &str, network: &Json) -> Result<(), Error> {
    for (key, value) in network.fields() {
        if !BESIDE_OTHER_KIND.contains(&key.as_str()) {
            let (kind, keys) = (shortened(kind), BESIDE_OTHER_KIND.join(" and "));
            let why = format!("with type {kind:?} of the class, a claim may set only {keys}");
            return Err(refused(key, value, why));
        }
    }
    Ok(())
}

fn check_plugin(plugin: &Json) -> Result<(), Error> {
    let kind = plugin.str("type")?;
    let has_parent = kind.is_none_or(|kind| KINDS.contains(&kind));
    for (key, value) in plugin.fields() {
        if is_in(&SET_BY_DRIVER, key) || key.starts_with("cni.dev/") {
            return Err(refused(key, value, "the driver sets this key"));
        }
        if has_parent && is_in(&SELECTORS, key) {
            return Err(refused(key, value, "the link is the allocated device"));
        }
    }
    Ok(())
}

fn check_ipam(ipam: &Json) -> Result<(), Error> {
    for (key, value) in ipam.fields() {
        if is_in(&IPAM_OF_CLASS, key) {
            return Err(refused(key, value, "only a DeviceClass may have this key"));
        }
    }
    let types = configuration::TYPES;
    match ipam.text("type")? {
        Some(kind) if !types.contains(&kind) => {
            let why = format!(
                "not one of {}; a DeviceClass may have other types",
                types.join(", ")
            );
            Err(refused("type", &kind.into(), why))
        }
        Some(_) | None => Ok(()),
    }
}

fn is_in(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|known| known.eq_ignore_ascii_case(key))
}

fn refused(key: &str, value: &Json, why: impl AsRef<str>) -> Error {
    let (key_text, value, why) = (shortened(key), shortened(&value.to_string()), why.as_ref());
    Error::config(format!("{key_text:?}: {value}: {why}")).at_key(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str, is_of_class: bool) -> Result<(), String> {
        let json = Json::parse(text.as_bytes(), "test").expect("JSON");
        check(&json, is_of_class).map_err(|error| error.msg)
    }

    #[test]
    fn claim_names_no_other_link_no_file_and_no_program() {
        for (text, message) in [
            (
                r#"{"master":"eth0"}"#,
                r#""master": "eth0": the driver sets this key"#,
            ),
            (
                r#"{"Master":"eth0"}"#,
                r#""Master": "eth0": the driver sets this key"#,
            ),
            (
                r#"{"cni.dev/attachments":[]}"#,
                r#""cni.dev/attachments": []: the driver sets this key"#,
            ),
            (
                r#"{"type":"host-device","hwaddr":"02:00:00:00:00:01"}"#,
                r#""hwaddr": "02:00:00:00:00:01": the link is the allocated device"#,
            ),
            (
                r#"{"linkInContainer":true}"#,
                r#""linkInContainer": true: the link is the allocated device"#,
            ),
        ] {
            assert_eq!(checked(text, false), Err(message.to_owned()));
            assert_eq!(checked(text, true), Err(message.to_owned()));
        }
        for (text, message) in [
            (
                r#"{"plugins":[]}"#,
                r#""plugins": []: only a DeviceClass may have this key"#,
            ),
            (
                r#"{"name":"pods"}"#,
                r#""name": "pods": only a DeviceClass may have this key"#,
            ),
            (
                r#"{"type":"bridge"}"#,
                r#""type": "bridge": not one of macvlan, ipvlan, vlan, host-device; a DeviceClass may have other types"#,
            ),
            (
                r#"{"ipam":{"type":"host-local","dataDir":"/etc"}}"#,
                r#""ipam": "dataDir": "/etc": only a DeviceClass may have this key"#,
            ),
            (
                r#"{"ipam":{"type":"other"}}"#,
                r#""ipam": "type": "other": not one of dhcp, host-local, static, whereabouts; a DeviceClass may have other types"#,
            ),
        ] {
            assert_eq!(checked(text, false), Err(message.to_owned()));
            assert_eq!(checked(text, true), Ok(()), "{text}");
        }
        let good = r#"{"type":"vlan","vlanId":5,"mtu":1400,"ipam":{"type":"dhcp"}}"#;
        assert_eq!(checked(good, false), Ok(()));
    }

    #[test]
    fn plugin_in_the_list_of_a_class_names_no_parent_either() {
        let text = r#"{"plugins":[{"type":"tuning"},{"type":"macvlan","master":"eth0"}]}"#;
        let message = r#"plugins[1]: "master": "eth0": the driver sets this key"#;
        assert_eq!(checked(text, true), Err(message.to_owned()));
        let other = r#"{"plugins":[{"type":"ptp","device":"netkit"}]}"#;
        assert_eq!(checked(other, true), Ok(()));
    }
}
