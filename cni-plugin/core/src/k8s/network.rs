//! One network of a pod, ready to be attached: its configuration, its interface and what only this
//! pod asks of it.

use super::nad::Definition;
use super::{ObjectName, request};
use crate::cni::{AddResult, Error, Json};
use crate::name::{IfName, Mac};
use std::net::IpAddr;

/// The capability by which a plugin gets the path of the file with its device.
const DEVICE_INFO_FILE: &str = "CNIDeviceInfoFile";

/// The capability by which a plugin gets its device.
const DEVICE_ID: &str = "deviceID";

/// A network of a pod.
#[derive(Debug, Clone)]
pub struct Network {
    /// True if it is the default network.
    pub is_default: bool,
    /// The NetworkAttachmentDefinition that it comes from.
    pub object: Option<ObjectName>,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
    /// Its configuration, with the arguments of this pod.
    pub definition: Definition,
    /// `runtimeConfig` of this network alone.
    pub runtime_config: Json,
    /// Keys of `runtime_config` that the pod itself asks for.
    pub asked: Vec<&'static str>,
    /// Pairs that its plugins get in `CNI_ARGS`, behind the runtime's own.
    pub cni_args: Vec<(&'static str, String)>,
    /// Gateways of the pod's default route; empty where the network's own is to be used, `None`
    /// where it has none.
    pub default_route: Option<Vec<IpAddr>>,
    /// The claim whose addresses it gets.
    pub ipam_claim: Option<ObjectName>,
    /// The resource whose devices it takes.
    pub resource: Option<String>,
    /// The device that the pod asks for.
    pub device: Option<String>,
}

impl Network {
    /// The name for people and for the status: of the NetworkAttachmentDefinition, or the network's
    /// own.
    pub fn name(&self) -> String {
        self.object
            .as_ref()
            .map_or_else(|| self.definition.name().to_owned(), ToString::to_string)
    }

    /// The configuration that braid's chain is called with.
    pub fn conf(&self) -> Result<Json, Error> {
        self.definition
            .conf(&self.runtime_config)
            .map_err(|error| error.context(format_args!("network {}", self.name())))
    }

    /// `CNI_ARGS` of its plugins, where the runtime's are these.
    pub fn args(&self, runtime: &str) -> String {
        request::args(runtime, &self.cni_args)
    }

    /// Hands over a device.
    pub fn set_device(&mut self, device: &str) {
        self.definition.set_device(device);
        if self.definition.has(DEVICE_ID) {
            self.runtime_config.set(DEVICE_ID, device);
        }
    }

    /// Hands over the path of the device information file, if any plugin has use for it.
    pub fn set_device_info_file(&mut self, path: &str) -> bool {
        let is_wanted = self.definition.has(DEVICE_INFO_FILE);
        if is_wanted {
            self.runtime_config.set(DEVICE_INFO_FILE, path);
        }
        is_wanted
    }

    /// True if the pod requests something of this network that a result shows.
    pub fn is_to_verify(&self) -> bool {
        ["ips", "mac"].iter().any(|key| self.asked.contains(key))
    }

    /// Checks that the result has the addresses that the pod requests, which a plugin may have
    /// ignored. `seen` is the hardware address of the interface, for a result without one. An
    /// interface that is no link of the kernel may have neither.
    pub fn verify(&self, result: &AddResult, seen: Option<Mac>) -> Result<(), Error> {
        let wrong = |key: &str, asked: &str, got: String| {
            Err(Error::internal(format!(
                "network {}: {key} {asked} was asked for, and the plugins gave {got}",
                self.name()
            )))
        };
        if self.asked.contains(&"ips") {
            let given = |asked: &str| {
                let address = asked
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .parse::<IpAddr>();
                address.is_ok_and(|asked| {
                    result
                        .ips
                        .iter()
                        .any(|ip| ip.address.addr() == asked.to_canonical())
                })
            };
            if let Some(missing) = self
                .runtime_config
                .strings("ips")?
                .iter()
                .find(|asked| !given(asked))
            {
                let all: Vec<String> = result.ips.iter().map(|ip| ip.address.to_string()).collect();
                return wrong(
                    "ips",
                    missing,
                    if all.is_empty() {
                        "none".to_owned()
                    } else {
                        all.join(", ")
                    },
                );
            }
        }
        let Some(asked) = self
            .runtime_config
            .str("mac")?
            .filter(|_| self.asked.contains(&"mac"))
        else {
            return Ok(());
        };
        let interface = result
            .interfaces
            .iter()
            .find(|interface| !interface.sandbox.is_empty());
        let of_result = interface
            .map(|interface| interface.mac.clone())
            .filter(|mac| !mac.is_empty());
        match of_result.or_else(|| seen.map(|mac| mac.to_string())) {
            Some(mac) if !asked.eq_ignore_ascii_case(&mac) => wrong("mac", asked, mac),
            Some(_) | None => Ok(()),
        }
    }
}
