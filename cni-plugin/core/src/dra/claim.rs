//! `ResourceClaims` with devices of this driver: the shares that the scheduler allocated, and the
//! parameters for them.

use super::message::about;
use super::{BANDWIDTH, DRIVER, quantity};
use crate::cni::bounds::shortened;
use crate::cni::{Error, Json, Kind};
use crate::k8s::claimed::ClaimedDevice;
use crate::k8s::{ObjectName, names};
use serde::{Deserialize, Serialize};

/// Maximum number of devices of a claim. The API server accepts 32.
const MAX_RESULTS: usize = 64;
/// Maximum number of configurations of a claim. The API server accepts 32 of the claim, and 32 of
/// each class.
const MAX_CONFIGS: usize = 2048;
/// Maximum number of pods that a claim is reserved for, as in the API server.
const MAX_PODS: usize = 256;
/// Maximum length in bytes of a name or an id that the scheduler wrote.
const MAX_NAME: usize = 253;

/// A claim with its allocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`: letters, digits and `-`.
    pub uid: String,
    /// Allocated devices of this driver, in the order of the allocation. Empty before the
    /// allocation.
    pub shares: Vec<Share>,
    /// Configurations for this driver, in the order of the allocation.
    pub configs: Vec<Config>,
    /// Pods that the claim is reserved for, in the order of their reservation.
    pub pods: Vec<ClaimingPod>,
}

/// A device, or the part of it, that a request of a claim got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Name of the request, or `<request>/<alternative>` for a request with `firstAvailable`.
    pub request: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Id of the share; `None` if the request has the device alone.
    pub share_id: Option<String>,
    /// Reserved bandwidth in bits per second, not 0; `None` if none is reserved.
    pub bandwidth: Option<u64>,
}

/// Parameters for requests of a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// True if a `DeviceClass` has them, false if the claim has them.
    pub is_of_class: bool,
    /// Names of the requests; empty for all requests.
    pub requests: Vec<String>,
    /// The parameters, not yet parsed.
    pub parameters: Json,
}

/// A pod that a claim is reserved for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimingPod {
    /// Name; the namespace is the claim's.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
}

impl Claim {
    /// Parses a `ResourceClaim` of `resource.k8s.io/v1`.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let json = Json::parse(body, "ResourceClaim")?;
        let metadata = json.object("metadata")?.unwrap_or(&Json::Null);
        let name = ObjectName {
            namespace: metadata.string("namespace")?,
            name: metadata.string("name")?,
        };
        if !names::is_namespace(&name.namespace) || !names::is_object(&name.name) {
            let name = shortened(&name.to_string());
            return Err(Error::decode(format!(
                "ResourceClaim {name:?}: invalid name"
            )));
        }
        Self::with_name(name.clone(), &json).map_err(|error| about(&name, error))
    }

    fn with_name(name: ObjectName, json: &Json) -> Result<Self, Error> {
        let uid = json.object("metadata")?.unwrap_or(&Json::Null);
        let uid = uid.string("uid")?;
        if !is_uid(&uid) {
            return Err(Error::decode(format!("invalid uid {:?}", shortened(&uid))));
        }
        let status = json.object("status")?.unwrap_or(&Json::Null);
        let devices = status.object_in("allocation", "devices")?;
        let devices = devices.unwrap_or(&Json::Null);
        refuse_many(devices, "results", MAX_RESULTS)?;
        refuse_many(devices, "config", MAX_CONFIGS)?;
        refuse_many(status, "reservedFor", MAX_PODS)?;
        let shares = devices.each_object("results", Share::parse)?;
        let configs = devices.each_object("config", Config::parse)?;
        let pods = status.each_object("reservedFor", ClaimingPod::parse)?;
        Ok(Self {
            name,
            uid,
            shares: shares.into_iter().flatten().collect(),
            configs: configs.into_iter().flatten().collect(),
            pods: pods.into_iter().flatten().collect(),
        })
    }

    /// Refuses a pod other than the first one that the claim is reserved for. Attachments are for
    /// one pod.
    pub fn refuse_second(&self, pod_uid: &str) -> Result<(), Error> {
        let first = self.pods.first();
        if first.is_some_and(|pod| pod.uid == pod_uid) {
            return Ok(());
        }
        let claim = &self.name;
        Err(match first {
            Some(pod) => Error::new(
                Kind::TryAgain,
                format!(
                    "claim {claim}: pod {} uses it, and a claim is for one pod",
                    shortened(&pod.name)
                ),
            ),
            None => Error::new(
                Kind::TryAgain,
                format!("claim {claim}: it is not reserved for the pod yet"),
            ),
        })
    }
}

impl Share {
    /// Returns the name of the request in the claim, without the alternative.
    pub fn main_request(&self) -> &str {
        main_of(&self.request)
    }

    /// Returns the device of this share for a record, with the name and the uid of its claim.
    pub fn claimed(&self, claim: &ObjectName, uid: &str) -> ClaimedDevice {
        ClaimedDevice {
            claim: claim.clone(),
            claim_uid: uid.to_owned(),
            request: self.request.clone(),
            pool: self.pool.clone(),
            device: self.device.clone(),
            share_id: self.share_id.clone(),
        }
    }

    /// Parses an item of `results`; `None` for a device of another driver.
    fn parse(json: &Json) -> Result<Option<Self>, Error> {
        if json.str("driver")? != Some(DRIVER) {
            return Ok(None);
        }
        if json.bool_or("adminAccess", false)? {
            // The scheduler would give the same bandwidth to others.
            return Err(Error::config("\"adminAccess\": true: not supported"));
        }
        let bandwidth = match json
            .object("consumedCapacity")?
            .map(|all| all.get(BANDWIDTH))
        {
            Some(Some(quantity)) => Some(quantity::of_json(quantity)?),
            Some(None) | None => None,
        };
        if bandwidth == Some(0) {
            return Err(Error::config(format!("{BANDWIDTH:?} is 0")));
        }
        Ok(Some(Self {
            request: required(json, "request")?,
            pool: required(json, "pool")?,
            device: required(json, "device")?,
            share_id: json.text("shareID")?.map(str::to_owned),
            bandwidth,
        }))
    }
}

impl Config {
    /// Parses an item of `config` in an allocation; `None` for another driver.
    fn parse(json: &Json) -> Result<Option<Self>, Error> {
        let is_of_class = json.str("source")? == Some("FromClass");
        Self::of(json, is_of_class)
    }

    /// Parses an item of `config` in a claim or a class; `None` for another driver.
    pub fn of(json: &Json, is_of_class: bool) -> Result<Option<Self>, Error> {
        let Some(opaque) = json.object("opaque")? else {
            return Ok(None);
        };
        if opaque.str("driver")? != Some(DRIVER) {
            return Ok(None);
        }
        Ok(Some(Self {
            is_of_class,
            requests: json.strings("requests")?,
            parameters: opaque.get("parameters").cloned().unwrap_or(Json::Null),
        }))
    }

    /// True if the parameters are for this request. Parameters for a request are for each of its
    /// alternatives too.
    pub fn is_for(&self, request: &str) -> bool {
        let is_it = |name: &String| name == request || name == main_of(request);
        self.requests.is_empty() || self.requests.iter().any(is_it)
    }
}

impl ClaimingPod {
    /// Parses an item of `reservedFor`; `None` for an object other than a pod.
    fn parse(json: &Json) -> Result<Option<Self>, Error> {
        if json.str("resource")? != Some("pods") || json.text("apiGroup")?.is_some() {
            return Ok(None);
        }
        Ok(Some(Self {
            name: required(json, "name")?,
            uid: required(json, "uid")?,
        }))
    }
}

/// True for the uid of a claim. It becomes the name of a file.
pub fn is_uid(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(is_part)
}

/// Returns the name of a request without its alternative.
fn main_of(request: &str) -> &str {
    request.split_once('/').map_or(request, |(main, _)| main)
}

fn required(json: &Json, key: &str) -> Result<String, Error> {
    match json.text(key)? {
        Some(text) if text.len() <= MAX_NAME => Ok(text.to_owned()),
        Some(text) => Err(Error::decode(format!("{key:?}: {} bytes", text.len()))),
        None => Err(Error::decode(format!("{key:?}: missing"))),
    }
}

fn refuse_many(json: &Json, key: &str, most: usize) -> Result<(), Error> {
    let found = json.list(key)?.map_or(0, <[Json]>::len);
    if found > most {
        return Err(Error::decode(format!(
            "{key:?}: {found} items, more than {most}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
