//! `host-device`: moves a host link into the container for the container's lifetime.

use crate::cni::{AddResult, Dns, Error, Json, NetConf};
use crate::ipam::Lease;
use crate::name::{IfName, LinkName};
use crate::plan::facts::LinkFact;
use crate::plan::step::Step;
use crate::plan::thing::moved::{Device, DeviceFact};
use crate::plan::thing::{LinkRef, Moved};
use crate::plan::{Facts, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};

/// Folder of all devices in sysfs.
const DEVICES: &str = "/sys/devices/";
/// The reason why DHCP is unsupported: the container gets no link.
const NO_LINK: &str = "a program drives the device";

/// A `host-device` configuration.
#[derive(Debug, Default)]
pub struct HostDevice {
    device: Device,
    /// `DPDKMode`: a program drives the device, regardless of its driver's name.
    is_userspace: bool,
    dns: Option<Dns>,
}

/// Result of the search for the device on this host.
enum Found<'a> {
    Link(IfName, &'a LinkFact),
    Userspace,
}

impl HostDevice {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let runtime = json.object("runtimeConfig")?;
        let device = Device {
            name: interface::link_name(json, "device")?,
            mac: match json.text("hwaddr")? {
                Some(text) => Some(interface::mac("hwaddr", text)?),
                None => None,
            },
            path: match json.text("kernelpath")? {
                Some(text) => Some(path(text)?),
                None => None,
            },
            pci: bus_id(json, "pciBusID")?,
            id: match runtime {
                Some(runtime) => {
                    bus_id(runtime, "deviceID").map_err(|e| e.at_key("runtimeConfig"))?
                }
                None => None,
            },
        };
        if device == Device::default() {
            let sentence = "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"";
            return Err(Error::config(sentence));
        }
        Ok(Self {
            device,
            is_userspace: json.bool_or("DPDKMode", false)?,
            dns: conf.dns.clone(),
        })
    }

    fn find<'a>(&self, facts: &'a Facts) -> Result<Found<'a>, Error> {
        let missing = |why: &str| Error::internal(format!("failed to find host device: {why}"));
        match facts.devices.get(&self.device) {
            Some(DeviceFact::Userspace(_)) => Ok(Found::Userspace),
            Some(DeviceFact::Link(_)) if self.is_userspace && !self.has_bus() => {
                Ok(Found::Userspace)
            }
            Some(DeviceFact::Link(name)) => match facts.link(&LinkRef::host(name.clone())) {
                Some(fact) => Ok(Found::Link(name.clone(), fact)),
                None => Err(missing(&format!(
                    "no such link in host: {:?}",
                    name.as_str()
                ))),
            },
            Some(DeviceFact::Missing(why)) => Err(missing(why)),
            None => Err(missing("the device was not read")),
        }
    }

    /// True if the configuration names a device on a bus. The driver of such a device shows if a
    /// user-space program drives it.
    fn has_bus(&self) -> bool {
        self.device.pci.is_some() || self.device.id.is_some()
    }

    fn refuse_mtu(fact: &LinkFact, lease: Option<&Lease>) -> Result<(), Error> {
        mtu::refuse_ipv6_below(Some(fact.mtu), lease.map_or(&[], |lease| &lease.ips))
    }

    /// Plans a device that a user-space program drives. The result reports the addresses to the
    /// program. No link is configured.
    fn driven_by_program(&self, call: &Call<'_>, lease: Option<Lease>) -> Result<Planned, Error> {
        let mut result = AddResult {
            interfaces: vec![call.interface(String::new())],
            ..AddResult::default()
        };
        if let Some(Lease {
            mut ips, routes, ..
        }) = lease
        {
            interface::refuse_no_addresses(&ips)?;
            for ip in &mut ips {
                ip.interface = Some(0);
            }
            (result.ips, result.routes) = (ips, routes);
        }
        result.dns = self.dns.clone().unwrap_or_default();
        Ok(Planned {
            result,
            ..Planned::default()
        })
    }
}

fn bus_id(json: &Json, key: &str) -> Result<Option<String>, Error> {
    match json.text(key)? {
        Some(id) => Ok(Some(of_bus(key, id)?)),
        None => Ok(None),
    }
}

/// Checks `kernelpath`: it must be below `/sys/devices/`, without `..`.
fn path(text: &str) -> Result<String, Error> {
    let is_below = text.starts_with(DEVICES)
        && !text.contains('\0')
        && text.split('/').all(|part| part != "..");
    let sentence =
        || format!("kernel device path {text:?} must be absolute and begin with {DEVICES}");
    if is_below {
        Ok(text.to_owned())
    } else {
        Err(Error::config(format!("\"kernelpath\": {}", sentence())).at_key("kernelpath"))
    }
}

/// Checks a device's name in the sysfs folder of its bus, for example a PCI address.
fn of_bus(key: &str, text: &str) -> Result<String, Error> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || ":._-".contains(c);
    let fits = text.chars().all(is_name) && text != "." && text != "..";
    if fits {
        Ok(text.to_owned())
    } else {
        Err(Error::config(format!("{key:?}: {text:?} is not a device name on a bus")).at_key(key))
    }
}

impl ThroughLink for HostDevice {
    fn has_link(&self, facts: &Facts) -> bool {
        !matches!(self.find(facts), Ok(Found::Userspace))
    }

    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error> {
        match self.find(facts)? {
            Found::Userspace => Err(Error::config(format!(
                "\"ipam\": DHCP needs a link: {NO_LINK}"
            ))),
            Found::Link(name, fact) => {
                let made = vec![Step::add(Moved::new(call.pod(), name, fact))];
                let mac = fact.mac.map(|mac| mac.to_string()).unwrap_or_default();
                Ok(Linked::new(call, mac, made))
            }
        }
    }

    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        if let Found::Link(_, fact) = self.find(facts)? {
            Self::refuse_mtu(fact, lease.as_ref())?;
        }
        let mut planned = linked.attached(call, lease, Dad::On)?;
        let settle = interface::settle(&call.pod(), &planned.result.ips, Dad::On);
        planned.steps.extend(settle);
        planned.result.dns = self.dns.clone().unwrap_or_default();
        Ok(planned)
    }
}

impl Plugin for HostDevice {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn makes_interface(&self) -> bool {
        true
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        vec![Need::Device(self.device.clone()), Need::Link(call.pod())]
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        match self.find(facts)? {
            Found::Link(..) => interface::refuse_taken(call, facts),
            Found::Userspace => Ok(()),
        }
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        match self.find(facts)? {
            Found::Userspace => self.driven_by_program(call, lease),
            Found::Link(..) => self.complete(call, facts, self.plan_link(call, facts)?, lease),
        }
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        if self.is_userspace && !self.has_bus() {
            Err(NO_LINK)
        } else {
            Ok(self)
        }
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Moved::any(
            call.pod(),
            self.device.name.as_ref().and_then(LinkName::short),
        ))]
    }

    /// False: configuration and result do not identify the device.
    fn is_reconstructible(&self) -> bool {
        false
    }

    /// Returns the need for the device. A missing device is only a warning, because a container may
    /// hold it at this moment.
    fn status_needs(&self) -> Vec<Need> {
        vec![Need::Device(self.device.clone())]
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        Ok(self.find(facts).err().map(|err| err.msg))
    }
}
