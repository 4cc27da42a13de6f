//! A selection: one network that a pod requests in an annotation, with the pod's requests to this
//! network.

mod value;

pub use value::{Bandwidth, Limit, PortMapping, interface_name};

use super::annotation::{Invalid, place_of};
use super::{ObjectName, names};
use crate::cni::Json;
use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::bounds::shortened;
use crate::name::{IfName, Mac};
use std::fmt::Display;
use std::net::IpAddr;
use value::{guid, limit, port_mapping};

/// Maximum number of addresses, and of gateways, of one item.
const MAX_ADDRESSES: usize = 64;
/// Known keys of an item. The specification reserves all other keys without a dot.
const KEYS: [&str; 13] = [
    "name",
    "namespace",
    "ips",
    "mac",
    "interface",
    "interfaceRequest",
    "cni-args",
    "portMappings",
    "bandwidth",
    "default-route",
    "infiniband-guid",
    "ipam-claim-reference",
    "deviceID",
];

/// One item of an annotation that selects networks.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Number of the item in the annotation, from 1; 0 if no annotation has it.
    pub item: usize,
    /// Name of the selected NetworkAttachmentDefinition.
    pub object: ObjectName,
    /// `interface`: name of the interface in the pod.
    pub interface: Option<IfName>,
    /// `ips` as written: addresses with or without prefix length.
    pub ips: Vec<String>,
    /// `mac`: hardware address of the interface.
    pub mac: Option<Mac>,
    /// `cni-args`: arguments for the plugins.
    pub cni_args: Vec<(String, Json)>,
    /// `portMappings`: ports of the node that are forwarded to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// `bandwidth`: rate limits of the interface.
    pub bandwidth: Option<Bandwidth>,
    /// `default-route`: gateways in order; an empty list selects the network's own gateway.
    pub default_route: Option<Vec<IpAddr>>,
    /// `infiniband-guid`: eight hexadecimal bytes separated by colons.
    pub infiniband_guid: Option<String>,
    /// `ipam-claim-reference`: name of an IPAMClaim in the pod's namespace.
    pub ipam_claim: Option<String>,
    /// `deviceID`: id of the device. Only Multus defines this key.
    pub device: Option<String>,
    /// Unknown keys of the item, which the specification reserves.
    pub unknown: Vec<String>,
}

impl Selection {
    /// Returns a selection of the network `object`, for a pod that requests nothing else from this
    /// network.
    pub fn of(item: usize, object: ObjectName) -> Self {
        Self {
            item,
            object,
            interface: None,
            ips: Vec::new(),
            mac: None,
            cni_args: Vec::new(),
            port_mappings: Vec::new(),
            bandwidth: None,
            default_route: None,
            infiniband_guid: None,
            ipam_claim: None,
            device: None,
            unknown: Vec::new(),
        }
    }

    /// Parses an item of the JSON format. `namespace` is used if the item does not name one.
    pub fn parse(item: &Item<'_>, namespace: &str) -> Result<Self, Invalid> {
        let Json::Object(fields) = item.json else {
            return Err(item.wrong("", "not an object"));
        };

        Ok(Self {
            item: item.number,
            object: item.object(namespace)?,
            interface: item.interface()?,
            ips: item.ips()?,
            mac: item.parsed("mac", "not six bytes, as in 02:00:00:00:00:01", Mac::parse)?,
            cni_args: item.cni_args()?,
            port_mappings: item.port_mappings()?,
            bandwidth: item.bandwidth()?,
            default_route: item.default_route()?,
            infiniband_guid: item.parsed(
                "infiniband-guid",
                "not eight bytes, as in 24:8a:07:03:00:8d:ae:2e",
                guid,
            )?,
            ipam_claim: item.parsed(
                "ipam-claim-reference",
                "not the name of an object",
                |text| names::is_object(text).then(|| text.to_owned()),
            )?,
            device: item.device()?,
            unknown: unknown_keys(fields),
        })
    }

    /// Returns the entries of `runtimeConfig` that the pod requests, each as the key in
    /// `runtimeConfig`, the key in the annotation, and the value.
    pub fn runtime_config(&self) -> Vec<(&'static str, &'static str, Json)> {
        let mut asked = Vec::new();
        if !self.ips.is_empty() {
            let ips: Vec<Json> = self.ips.iter().map(|ip| ip.as_str().into()).collect();
            asked.push(("ips", "ips", ips.into()));
        }
        if let Some(mac) = self.mac {
            asked.push(("mac", "mac", mac.to_string().into()));
        }
        if !self.port_mappings.is_empty() {
            let mappings: Vec<Json> = self
                .port_mappings
                .iter()
                .map(PortMapping::to_json)
                .collect();
            asked.push(("portMappings", "portMappings", mappings.into()));
        }
        if let Some(bandwidth) = &self.bandwidth {
            asked.push(("bandwidth", "bandwidth", bandwidth.to_json()));
        }
        if let Some(guid) = self.infiniband_guid.as_deref() {
            asked.push(("infinibandGUID", "infiniband-guid", guid.into()));
        }
        asked
    }

    /// Returns all requests of the pod to the network, by their keys in the annotation. Network and
    /// interface are no part of it.
    pub fn requests(&self) -> Json {
        let mut requests = Json::object_of([]);
        for (_, key, value) in self.runtime_config() {
            requests.set(key, value);
        }
        if !self.cni_args.is_empty() {
            requests.set("cni-args", Json::Object(self.cni_args.clone()));
        }
        if let Some(gateways) = &self.default_route {
            let gateways: Vec<Json> = gateways.iter().map(|ip| ip.to_string().into()).collect();
            requests.set("default-route", gateways);
        }
        let texts = [
            ("ipam-claim-reference", &self.ipam_claim),
            ("deviceID", &self.device),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                requests.set(key, text.as_str());
            }
        }
        requests
    }
}

/// An item of an annotation in JSON format, not yet parsed.
#[derive(Debug)]
pub struct Item<'a> {
    /// The annotation's key.
    pub annotation: &'static str,
    /// Number of the item, from 1.
    pub number: usize,
    /// Content of the item.
    pub json: &'a Json,
}

impl<'a> Item<'a> {
    /// Returns an error about a key, or about the whole item if `key` is empty.
    pub fn wrong(&self, key: &str, why: impl Display) -> Invalid {
        let value = if key.is_empty() {
            Some(self.json)
        } else {
            self.json.get(key)
        };
        Invalid {
            annotation: self.annotation,
            item: self.number,
            place: place_of(self.number, key),
            key: key.to_owned(),
            value: value.map_or_else(String::new, |value| shortened(&value.to_string())),
            why: why.to_string(),
        }
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, Invalid> {
        match self.json.get(key) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "not a string")),
        }
    }

    fn parsed<T>(
        &self,
        key: &str,
        why: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Invalid> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match parse(text) {
            None => Err(self.wrong(key, why)),
            parsed => Ok(parsed),
        }
    }

    /// Returns the items of a list; `None` if the key is absent.
    fn list(&self, key: &str) -> Result<Option<&'a [Json]>, Invalid> {
        match self.json.get(key) {
            None => Ok(None),
            Some(Json::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.wrong(key, "not a list")),
        }
    }

    /// Returns the addresses in a list as strings, not yet parsed; `None` if the key is absent.
    fn addresses(&self, key: &str) -> Result<Option<Vec<&'a str>>, Invalid> {
        let Some(items) = self.list(key)? else {
            return Ok(None);
        };
        if items.len() > MAX_ADDRESSES {
            return Err(self.wrong(
                key,
                format_args!("{} addresses, more than {MAX_ADDRESSES}", items.len()),
            ));
        }
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let Some(text) = item.as_str() else {
                return Err(self.wrong(key, "not a list of strings"));
            };
            texts.push(text);
        }
        Ok(Some(texts))
    }

    fn object(&self, namespace: &str) -> Result<ObjectName, Invalid> {
        let name = self.text("name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(self.wrong("name", "missing"));
        }
        if name.contains('/') {
            return Err(self.wrong(
                "name",
                "use the separate key \"namespace\" for the namespace",
            ));
        }
        if !names::is_object(name) {
            return Err(self.wrong(
                "name",
                "not the name of an object: lower case letters, digits, - and .",
            ));
        }
        let namespace = match self.text("namespace")? {
            None | Some("") => namespace,
            Some(own) => own,
        };
        if !names::is_namespace(namespace) {
            return Err(self.wrong(
                "namespace",
                "not the name of a namespace: lower case letters, digits and -",
            ));
        }
        Ok(ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    fn interface(&self) -> Result<Option<IfName>, Invalid> {
        let key = if self.json.get("interface").is_some() {
            "interface"
        } else {
            "interfaceRequest"
        };
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match interface_name(text) {
            Ok(name) => Ok(Some(name)),
            Err(why) => Err(self.wrong(key, why)),
        }
    }

    fn device(&self) -> Result<Option<String>, Invalid> {
        match self.text("deviceID")? {
            None | Some("") => Ok(None),
            Some(device) => Ok(Some(device.to_owned())),
        }
    }

    fn ips(&self) -> Result<Vec<String>, Invalid> {
        let Some(texts) = self.addresses("ips")? else {
            return Ok(Vec::new());
        };
        if texts.is_empty() {
            return Err(self.wrong("ips", "the list is empty"));
        }
        for (index, text) in texts.iter().enumerate() {
            if parse_ip(text).is_err() && parse_cidr(text).is_err() {
                let why = format_args!("{:?} is not an address", shortened(text));
                return Err(self.wrong("ips", why).at_index(index));
            }
        }
        Ok(texts.into_iter().map(str::to_owned).collect())
    }

    fn cni_args(&self) -> Result<Vec<(String, Json)>, Invalid> {
        match self.json.get("cni-args") {
            None => Ok(Vec::new()),
            Some(Json::Object(fields)) => Ok(fields.clone()),
            Some(_) => Err(self.wrong("cni-args", "not an object")),
        }
    }

    fn port_mappings(&self) -> Result<Vec<PortMapping>, Invalid> {
        const KEY: &str = "portMappings";
        let Some(items) = self.list(KEY)? else {
            return Ok(Vec::new());
        };
        if items.is_empty() {
            return Err(self.wrong(KEY, "the list is empty"));
        }
        let mut mappings = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mapping = port_mapping(item).map_err(|why| {
                let why = format_args!("mapping {}: {why}", index + 1);
                self.wrong(KEY, why).at_index(index)
            })?;
            mappings.push(mapping);
        }
        Ok(mappings)
    }

    fn bandwidth(&self) -> Result<Option<Bandwidth>, Invalid> {
        const KEY: &str = "bandwidth";
        let Some(json) = self.json.get(KEY) else {
            return Ok(None);
        };
        if !matches!(json, Json::Object(_)) {
            return Err(self.wrong(KEY, "not an object"));
        }
        let ingress =
            limit(json, "ingressRate", "ingressBurst").map_err(|why| self.wrong(KEY, why))?;
        let egress =
            limit(json, "egressRate", "egressBurst").map_err(|why| self.wrong(KEY, why))?;
        if ingress.is_none() && egress.is_none() {
            return Err(self.wrong(KEY, "no rate given"));
        }
        Ok(Some(Bandwidth { ingress, egress }))
    }

    fn default_route(&self) -> Result<Option<Vec<IpAddr>>, Invalid> {
        const KEY: &str = "default-route";
        let Some(texts) = self.addresses(KEY)? else {
            return Ok(None);
        };
        let mut gateways = Vec::with_capacity(texts.len());
        for (index, text) in texts.into_iter().enumerate() {
            match parse_ip(text) {
                Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => gateways.push(ip),
                Ok(_) | Err(_) => {
                    let why = format_args!("{:?} is not a gateway address", shortened(text));
                    return Err(self.wrong(KEY, why).at_index(index));
                }
            }
        }
        Ok(Some(gateways))
    }
}

/// Returns the keys that are not in [`KEYS`]. Keys with a dot are extensions and are omitted.
fn unknown_keys(fields: &[(String, Json)]) -> Vec<String> {
    let mut unknown = Vec::new();
    for (key, _) in fields {
        let is_known = KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        if !is_known && !key.contains('.') {
            unknown.push(key.clone());
        }
    }
    unknown
}
