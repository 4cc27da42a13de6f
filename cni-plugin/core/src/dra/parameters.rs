//! Parameters of an attachment: the opaque configuration of a class or a claim, of kind
//! `Attachment`.
//!
//! ```text
//!  configs of the class ─► configs of the claim ─► Parameters of a request
//!  interface, ips, mac: the last one;  network: key by key;  nad: replaces network, and vice versa
//!  network of a class with a type that claims can't have: the claim's mtu and ipam, or its own network
//! ```

use super::claim::Config;
use super::network_keys::{self, KINDS};
use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::bounds::shortened;
use crate::cni::{Error, Json};
use crate::k8s::selection::interface_name;
use crate::k8s::{ObjectName, names, text_at};
use crate::name::{IfName, Mac};
use serde::{Deserialize, Serialize};

/// `apiVersion` of the parameters.
pub const API_VERSION: &str = "braid.dev/v1alpha1";
/// `kind` of the parameters.
pub const KIND: &str = "Attachment";
/// Known keys.
const KEYS: [&str; 7] = [
    "apiVersion",
    "kind",
    "interface",
    "ips",
    "mac",
    "network",
    "nad",
];
/// Maximum number of addresses.
const MAX_ADDRESSES: usize = 64;
/// Key of a network with a list of plugins.
const PLUGINS: &str = "plugins";

/// Parameters of an attachment. All are optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Name of the interface in the pod.
    pub interface: Option<IfName>,
    /// Addresses as written, with or without prefix length.
    pub ips: Vec<String>,
    /// Hardware address of the interface.
    pub mac: Option<Mac>,
    /// CNI configuration without the parent link. `None` if `nad` is set.
    pub network: Option<Json>,
    /// NetworkAttachmentDefinition with the configuration. `None` if `network` is set.
    pub nad: Option<NadName>,
}

/// Name of a NetworkAttachmentDefinition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NadName {
    /// Namespace; `None` for the namespace of the claim.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// True if a `DeviceClass` names it, so that pods of all namespaces may use it.
    pub is_of_class: bool,
}

impl NadName {
    /// Returns the name with its namespace. `namespace` is the claim's.
    pub fn object(&self, namespace: &str) -> ObjectName {
        let own = self.namespace.as_deref();
        ObjectName {
            namespace: own.unwrap_or(namespace).to_owned(),
            name: self.name.clone(),
        }
    }
}

impl Parameters {
    /// Parses the parameters of a class or of a claim. Only a class may have lists of plugins, and
    /// plugins of any type.
    pub fn parse(json: &Json, is_of_class: bool) -> Result<Self, Error> {
        let Json::Object(fields) = json else {
            return Err(json.mismatch("an object"));
        };
        for (key, value) in fields {
            if !KEYS.contains(&key.as_str()) {
                return Err(wrong(key, value, "unknown key"));
            }
        }
        for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match json.get(key) {
                Some(Json::String(text)) if text == expected => {}
                Some(other) => return Err(wrong(key, other, format!("not {expected:?}"))),
                None => return Err(Error::config(format!("{key:?}: missing, not {expected:?}"))),
            }
        }
        let network = json.object("network")?;
        if let Some(network) = network {
            network_keys::check(network, is_of_class)
                .map_err(|error| error.context("\"network\"").at_key("network"))?;
        }
        let nad = json.str("nad")?;
        if network.is_some() && nad.is_some() {
            let sentence = "\"network\" and \"nad\" can't both be set";
            return Err(Error::config(sentence).at_key("nad"));
        }
        Ok(Self {
            interface: interface(json)?,
            ips: ips(json)?,
            mac: mac(json)?,
            network: network.cloned(),
            nad: nad.map(|text| nad_name(text, is_of_class)).transpose()?,
        })
    }

    /// Returns the parameters of a request: the class's, then the claim's over them. Errors name the
    /// request.
    pub fn effective(request: &str, configs: &[Config]) -> Result<Self, Error> {
        Self::merged(request, configs)
            .map_err(|error| error.context(format_args!("request {request:?}")))
    }

    fn merged(request: &str, configs: &[Config]) -> Result<Self, Error> {
        let mut merged = Self::of_source(request, configs, true)?;
        let own = Self::of_source(request, configs, false)?;
        if let (Some(class), Some(network)) = (&merged.network, &own.network)
            && let Some(kind) = other_kind(class)
        {
            if network.text("type")?.is_some() {
                merged.network = None;
            } else {
                network_keys::check_beside(kind, network)
                    .map_err(|error| error.context("\"network\"").at_key("network"))?;
            }
        }
        merged.merge(own)?;
        Ok(merged)
    }

    /// Returns the parameters that the class alone, or the claim alone, has for a request.
    fn of_source(request: &str, configs: &[Config], is_of_class: bool) -> Result<Self, Error> {
        let mut merged = Self::default();
        for config in configs {
            if config.is_of_class == is_of_class && config.is_for(request) {
                merged.merge(Self::parse(&config.parameters, is_of_class)?)?;
            }
        }
        Ok(merged)
    }

    /// Sets the keys of `later` over the present ones.
    fn merge(&mut self, later: Self) -> Result<(), Error> {
        let Self {
            interface,
            ips,
            mac,
            network,
            nad,
        } = later;
        self.interface = interface.or(self.interface.take());
        self.mac = mac.or(self.mac);
        if !ips.is_empty() {
            self.ips = ips;
        }
        if nad.is_some() {
            self.nad = nad;
            self.network = None;
        }
        if let Some(network) = network {
            self.nad = None;
            match &mut self.network {
                Some(present) => merge_network(present, &network)?,
                None => self.network = Some(network),
            }
        }
        Ok(())
    }
}

/// Returns the type of a class's network that is not one of a claim. Its plugin may read files and
/// start programs by any key.
fn other_kind(network: &Json) -> Option<&str> {
    let kind = text_at(network, "type").filter(|kind| !KINDS.contains(kind));
    kind.filter(|_| network.get(PLUGINS).is_none())
}

/// Sets the keys of `later` in `network`. A key of a single plugin would have no effect on a list.
fn merge_network(network: &mut Json, later: &Json) -> Result<(), Error> {
    if network.get(PLUGINS).is_some() != later.get(PLUGINS).is_some() {
        return Err(Error::config(
            "\"network\": the class has a list of plugins, so no key of it can be changed",
        )
        .at_key("network"));
    }
    for (key, value) in later.fields() {
        network.set(key, value.clone());
    }
    Ok(())
}

fn wrong(key: &str, value: &Json, why: impl AsRef<str>) -> Error {
    let (key_text, value, why) = (shortened(key), shortened(&value.to_string()), why.as_ref());
    Error::config(format!("{key_text:?}: {value}: {why}")).at_key(key)
}

fn interface(json: &Json) -> Result<Option<IfName>, Error> {
    const KEY: &str = "interface";
    let Some(text) = json.str(KEY)? else {
        return Ok(None);
    };
    interface_name(text)
        .map(Some)
        .map_err(|why| wrong(KEY, &text.into(), why))
}

fn mac(json: &Json) -> Result<Option<Mac>, Error> {
    const KEY: &str = "mac";
    let Some(text) = json.str(KEY)? else {
        return Ok(None);
    };
    match Mac::parse(text) {
        None => {
            let why = "not six bytes, as in 02:00:00:00:00:01";
            Err(wrong(KEY, &text.into(), why))
        }
        Some(mac) if mac.0[0] & 1 == 1 => {
            let why = "a multicast address, which no interface can have";
            Err(wrong(KEY, &text.into(), why))
        }
        mac => Ok(mac),
    }
}

fn ips(json: &Json) -> Result<Vec<String>, Error> {
    const KEY: &str = "ips";
    let ips = json.strings(KEY)?;
    if ips.len() > MAX_ADDRESSES {
        let found = ips.len();
        let sentence = format!("{KEY:?}: {found} addresses, more than {MAX_ADDRESSES}");
        return Err(Error::config(sentence).at_key(KEY));
    }
    for (index, text) in ips.iter().enumerate() {
        if parse_ip(text).is_err() && parse_cidr(text).is_err() {
            let text = shortened(text);
            return Err(
                Error::config(format!("{KEY:?}: {text:?} is not an address"))
                    .at_index(index)
                    .at_key(KEY),
            );
        }
    }
    Ok(ips)
}

fn nad_name(text: &str, is_of_class: bool) -> Result<NadName, Error> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if !namespace.is_none_or(names::is_namespace) || !names::is_object(name) {
        let why = "not the name of a NetworkAttachmentDefinition, as in namespace/name";
        return Err(wrong("nad", &text.into(), why));
    }
    Ok(NadName {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        is_of_class,
    })
}

#[cfg(test)]
mod tests;
