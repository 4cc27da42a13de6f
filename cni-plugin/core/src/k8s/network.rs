//! One network of a pod, ready to be attached: its configuration, its interface and the pod's
//! requests.

use super::claimed::ClaimedDevice;
use super::device_info::Device;
use super::nad::Definition;
use super::{ObjectName, request};
use crate::cni::{AddResult, Error, Json};
use crate::name::{IfName, Mac};
use std::net::IpAddr;

/// Capability of plugins that take the path of the device information file.
const DEVICE_INFO_FILE: &str = "CNIDeviceInfoFile";

/// Capability of plugins that take a device id.
const DEVICE_ID: &str = "deviceID";

/// A network of a pod.
#[derive(Debug, Clone)]
pub struct Network {
    /// True for the default network.
    pub is_default: bool,
    /// NetworkAttachmentDefinition of the network, if any.
    pub object: Option<ObjectName>,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
    /// Configuration, including the pod's `cni-args`.
    pub definition: Definition,
    /// `runtimeConfig` for the plugins of this network only.
    pub runtime_config: Json,
    /// Keys of `runtime_config` that the pod requests.
    pub asked: Vec<&'static str>,
    /// Key-value pairs that are appended to the runtime's `CNI_ARGS` for the plugins.
    pub cni_args: Vec<(&'static str, String)>,
    /// Gateways of the pod's default route; an empty list selects the network's own gateway. `None`
    /// if the pod does not request its default route on this network.
    pub default_route: Option<Vec<IpAddr>>,
    /// `IPAMClaim` that provides this network's addresses, if any.
    pub ipam_claim: Option<ObjectName>,
    /// Name of the resource that provides the network's device, if any.
    pub resource: Option<String>,
    /// Id of its device: the one that the pod requests, or one of the resource.
    pub device: Option<String>,
    /// All requests of the pod to this network ([`Selection::requests`]); `None` if the pod's annotation
    /// did not select it.
    ///
    /// [`Selection::requests`]: super::selection::Selection::requests
    pub requests: Option<Json>,
    /// Device of a resource claim on which the network is, if any.
    pub claimed: Option<ClaimedDevice>,
}

impl Network {
    /// Returns the network's name for messages and the status: the name of its
    /// NetworkAttachmentDefinition if it has one, or else the name in its configuration.
    pub fn name(&self) -> String {
        self.object
            .as_ref()
            .map_or_else(|| self.definition.name().to_owned(), ToString::to_string)
    }

    /// Returns the configuration with which braid runs the network's plugins.
    pub fn conf(&self) -> Result<Json, Error> {
        self.definition
            .conf(&self.runtime_config)
            .map_err(|error| error.context(format_args!("network {}", self.name())))
    }

    /// Returns `CNI_ARGS` for the plugins: `runtime`, the runtime's value, and the pairs in
    /// `cni_args`.
    pub fn args(&self, runtime: &str) -> String {
        request::args(runtime, &self.cni_args)
    }

    /// Passes the device id to the plugins in their configuration, and in `runtimeConfig` if a
    /// plugin has the capability `deviceID`.
    pub fn set_device(&mut self, device: &str) {
        self.device = Some(device.to_owned());
        self.definition.set_device(device);
        if self.definition.has(DEVICE_ID) {
            self.runtime_config.set(DEVICE_ID, device);
        }
    }

    /// Returns the device of the resource, if it has one.
    pub fn device(&self) -> Option<Device> {
        let (resource, id) = self.resource.clone().zip(self.device.clone())?;
        Some(Device { resource, id })
    }

    /// Passes the path of the device information file to the plugins in `runtimeConfig`. Returns
    /// false if no plugin has the capability `CNIDeviceInfoFile`.
    pub fn set_device_info_file(&mut self, path: &str) -> bool {
        let is_wanted = self.definition.has(DEVICE_INFO_FILE);
        if is_wanted {
            self.runtime_config.set(DEVICE_INFO_FILE, path);
        }
        is_wanted
    }

    /// True if the pod requests IP addresses or a hardware address, which [`Self::verify`] checks.
    pub fn is_to_verify(&self) -> bool {
        ["ips", "mac"].iter().any(|key| self.asked.contains(key))
    }

    /// Checks that the result has the IP and hardware addresses that the pod requests, because
    /// plugins can ignore a request. `seen` is the hardware address that the kernel reports for the
    /// interface. It is checked if the result has no hardware address. If `seen` is `None` too, the
    /// hardware address is not checked, because the interface may not be a kernel link.
    pub fn verify(&self, result: &AddResult, seen: Option<Mac>) -> Result<(), Error> {
        let wrong = |key: &str, asked: &str, got: String| {
            Err(Error::internal(format!(
                "network {}: {key} {asked} was requested, but the plugins returned {got}",
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
        let found = match interface {
            Some(interface) if !interface.mac.is_empty() => Some(interface.mac.clone()),
            Some(_) | None => seen.map(|mac| mac.to_string()),
        };
        match found {
            Some(mac) if !asked.eq_ignore_ascii_case(&mac) => wrong("mac", asked, mac),
            Some(_) | None => Ok(()),
        }
    }
}
