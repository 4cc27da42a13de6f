//! Network definition of an attachment by a claim: the parameters' network, or the one of a
//! NetworkAttachmentDefinition, on the link of the device and with the reserved rate.

use super::DRIVER;
use super::device::{self, Form};
use super::network_keys::{KINDS, SHARED_KIND, WHOLE_KIND};
use crate::cni::address::parse_cidr;
use crate::cni::bounds::shortened;
use crate::cni::{Error, Json, NetConf};
use crate::ipam::configuration::Configuration;
use crate::k8s::nad::Definition;
use crate::k8s::text_at;
use crate::name::IfName;
use crate::plugins::{self, Addresses};

/// CNI version of a network without one.
const CNI_VERSION: &str = "1.0.0";
/// Type and capability of the plugin that limits the rate.
const BANDWIDTH: &str = "bandwidth";
/// Keys of that plugin with a rate, or with the packets that it applies to.
const LIMITS: [&str; 6] = [
    "ingressRate",
    "ingressBurst",
    "egressRate",
    "egressBurst",
    "shapedSubnets",
    "unshapedSubnets",
];
/// Keys other than `device` with which `host-device` finds its link.
const OTHER_SELECTORS: [&str; 4] = ["deviceID", "hwaddr", "kernelpath", "pciBusID"];

/// Link of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent<'a> {
    /// Name of the link.
    pub(super) link: &'a IfName,
    /// Form in which it is offered.
    pub(super) form: Form,
}

/// Returns the definition of a network without a NetworkAttachmentDefinition.
pub(super) fn of_network(network: Option<&Json>, parent: Parent<'_>) -> Result<Definition, Error> {
    let mut json = network.cloned().unwrap_or_else(|| Json::object_of([]));
    if json.get("type").is_none() && json.get("plugins").is_none() {
        json.set(
            "type",
            match parent.form {
                Form::Shared => SHARED_KIND,
                Form::Whole => WHOLE_KIND,
            },
        );
    }
    if json.get("cniVersion").is_none() && json.get("cniVersions").is_none() {
        json.set("cniVersion", CNI_VERSION);
    }
    let name = name(&json, parent.link);
    Definition::parse(json, &name).map_err(|error| error.context("\"network\"").at_key("network"))
}

/// Returns the default name of a network: one for each link, and one for each VLAN of it. IPAM
/// plugins keep the addresses in use by this name, so attachments in one network need one name.
fn name(network: &Json, link: &IfName) -> String {
    let device = device::name(link, Form::Shared);
    match network
        .get("vlanId")
        .filter(|_| text_at(network, "type") == Some("vlan"))
    {
        Some(Json::Number(id)) => format!("{DRIVER}-{device}.{id}"),
        Some(_) | None => format!("{DRIVER}-{device}"),
    }
}

/// Refuses a network with an interface of a type that claims can't have.
pub(super) fn refuse_other_kind(definition: &Definition) -> Result<(), Error> {
    let kind = kind(definition);
    if KINDS.contains(&kind) {
        return Ok(());
    }
    let (kind, kinds) = (shortened(kind), KINDS.join(", "));
    Err(Error::config(format!(
        "\"type\": {kind:?}: not one of {kinds}; a DeviceClass may have other types"
    )))
}

/// Returns the type of the plugin that makes the interface.
pub(super) fn kind(definition: &Definition) -> &str {
    definition.types().next().unwrap_or_default()
}

/// Sets the link, static addresses and the limit of the rate in bits per second. Refuses plugins
/// that can't be used on the device.
pub(super) fn complete(
    definition: &mut Definition,
    parent: Parent<'_>,
    ips: &[String],
    rate: Option<u64>,
) -> Result<(), Error> {
    refuse_unfit(definition, parent.form, rate)?;
    set_parent(definition, parent.link);
    set_addresses(definition, ips)?;
    if rate.is_some() {
        limit(definition)?;
    }
    check(definition)
}

/// Refuses plugins that would take a shared device from other pods, and a mode without a limit of
/// the rate.
fn refuse_unfit(definition: &Definition, form: Form, rate: Option<u64>) -> Result<(), Error> {
    for plugin in definition.plugins() {
        let (kind, mode) = (text_at(plugin, "type"), text_at(plugin, "mode"));
        let fault = match (kind, mode) {
            (Some("host-device"), _) if form == Form::Shared => {
                "\"type\": \"host-device\": the device is shared"
            }
            (Some("macvlan"), Some("passthru")) if form == Form::Shared => {
                "\"mode\": \"passthru\": the device is shared"
            }
            (Some("ipvlan"), Some("l3s")) if rate.is_some() => {
                "\"mode\": \"l3s\": its rate can't be limited; use mode l2 or l3"
            }
            _ => continue,
        };
        return Err(Error::config(fault));
    }
    Ok(())
}

/// Sets the link in all plugins that have one.
fn set_parent(definition: &mut Definition, link: &IfName) {
    let kinds: Vec<String> = definition.types().map(str::to_owned).collect();
    let mut is_set = false;
    for (index, kind) in kinds.iter().enumerate() {
        if !KINDS.contains(&kind.as_str()) {
            continue;
        }
        is_set = true;
        if kind == WHOLE_KIND {
            definition.set(index, "device", link.as_str());
            for key in OTHER_SELECTORS {
                definition.remove(index, key);
            }
        } else {
            definition.set(index, "master", link.as_str());
            definition.remove(index, "linkInContainer");
        }
        definition.remove(index, "runtimeConfig");
    }
    if !is_set {
        definition.set(0, "master", link.as_str());
    }
}

/// Lets the interface have the addresses as they are if the network has no IPAM.
fn set_addresses(definition: &mut Definition, ips: &[String]) -> Result<(), Error> {
    if ips.is_empty() {
        return Ok(());
    }
    let ipam = |definition: &Definition| {
        let ipam = definition.plugins().first()?.get("ipam")?;
        text_at(ipam, "type").map(str::to_owned)
    };
    if ipam(definition).is_none_or(|kind| kind.is_empty()) {
        definition.set(0, "ipam", Json::object_of([("type", "static".into())]));
    }
    let without_length = ips.iter().find(|text| parse_cidr(text).is_err());
    match without_length {
        Some(text) if ipam(definition).as_deref() == Some("static") => {
            let sentence = "needs a prefix length, as in 192.0.2.5/24";
            Err(Error::config(format!("\"ips\": {:?} {sentence}", shortened(text))).at_key("ips"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes a plugin of type `bandwidth` apply the rate of the claim to all packets.
fn limit(definition: &mut Definition) -> Result<(), Error> {
    let Some(index) = definition.types().position(|kind| kind == BANDWIDTH) else {
        return definition.append(BANDWIDTH, BANDWIDTH);
    };
    let plugin = definition.plugins().get(index);
    let has = |key: &&&str| plugin.is_some_and(|plugin| plugin.get(key).is_some());
    if let Some(key) = LIMITS.iter().find(has) {
        return Err(Error::config(format!(
            "{key:?}: the network has its own limit, but the claim's applies"
        )));
    }
    definition.grant(&[index], BANDWIDTH)
}

/// Refuses configurations that an ADD would refuse.
fn check(definition: &Definition) -> Result<(), Error> {
    let kind = kind(definition);
    for (index, plugin) in definition.plugins().iter().enumerate() {
        let mut complete = plugin.clone();
        complete.set("name", definition.name());
        complete.set("cniVersion", definition.version().as_str());
        let conf = NetConf::from_json(complete)?;
        let Some(known) = plugins::parse(&conf, "")? else {
            continue;
        };
        // The reference plugin takes addresses of an earlier plugin, and there is none.
        let is_first_ipvlan = index == 0 && kind == "ipvlan";
        match (known.addresses(), conf.ipam.as_str()) {
            (Addresses::Never, _) => {}
            (Addresses::Optional, "") if !is_first_ipvlan => {}
            (Addresses::Optional | Addresses::Required, "") => {
                return Err(Error::config(format!(
                    "\"type\": {kind:?}: it requires an \"ipam\" with a type, or \"ips\""
                )));
            }
            (Addresses::Optional | Addresses::Required, ipam) => {
                Configuration::parse(ipam, &conf, "")?;
            }
        }
    }
    Ok(())
}
