//! Links that a configuration identifies by a device of the host, which sysfs maps to a link.

use crate::effect::link;
use crate::kernel::Kernel;
use crate::{Context, Error};
use braid_core::name::{IfName, LinkName, Mac, Ns};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::LinkRef;
use braid_core::plan::thing::moved::{Device, DeviceFact};
use std::fs;
use std::path::{Path, PathBuf};

const PCI: &str = "/sys/bus/pci/devices";
const AUXILIARY: &str = "/sys/bus/auxiliary/devices";
/// Drivers that pass a device to a program in user space.
const USERSPACE: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Finds the device and reads its link.
pub(crate) fn read(kernel: &mut Kernel, device: &Device, facts: &mut Facts) -> Result<(), Error> {
    let found = match on_bus(device) {
        Ok(Bus {
            driver: Some(driver),
            ..
        }) => DeviceFact::Userspace(driver),
        Ok(bus) => match name_of(kernel, device, &bus)? {
            Ok(name) => DeviceFact::Link(name),
            Err(why) => DeviceFact::Missing(why),
        },
        Err(why) => DeviceFact::Missing(why),
    };
    if let DeviceFact::Link(name) = &found {
        link::read(kernel, &LinkRef::host(name.clone()), facts)?;
    }
    facts.devices.insert(device.clone(), found);
    Ok(())
}

/// Folder and driver of a device.
#[derive(Default)]
struct Bus {
    folder: Option<PathBuf>,
    /// Driver that passes the device to a program in user space.
    driver: Option<String>,
}

fn on_bus(device: &Device) -> Result<Bus, String> {
    let folder = match (&device.id, &device.pci) {
        (Some(id), _) => {
            let pci = Path::new(PCI).join(id);
            let auxiliary = Path::new(AUXILIARY).join(id);
            if pci.exists() {
                pci
            } else if auxiliary.exists() {
                return Ok(Bus {
                    folder: Some(auxiliary),
                    driver: None,
                });
            } else {
                return Err(format!(
                    "runtime config DeviceID {id} not found or unsupported"
                ));
            }
        }
        (None, Some(id)) => Path::new(PCI).join(id),
        (None, None) => return Ok(Bus::default()),
    };
    let link = folder.join("driver");
    let driver = fs::canonicalize(&link)
        .map_err(|err| format!("error with host device: {}: {err}", link.display()))?;
    let name = driver.file_name().unwrap_or_default().to_string_lossy();
    let is_userspace = USERSPACE.contains(&&*name);
    Ok(Bus {
        driver: is_userspace.then(|| name.into_owned()),
        folder: Some(folder),
    })
}

/// Returns the name of the device's link, or the reason why there is none.
fn name_of(
    kernel: &mut Kernel,
    device: &Device,
    bus: &Bus,
) -> Result<Result<IfName, String>, Error> {
    Ok(match (device, &bus.folder) {
        (
            Device {
                name: Some(name), ..
            },
            _,
        ) => return by_name(kernel, name),
        (Device { mac: Some(mac), .. }, _) => return by_mac(kernel, *mac),
        (
            Device {
                path: Some(path), ..
            },
            _,
        ) => first_below(&Path::new(path).join("net")),
        (_, Some(folder)) => first_below(&net_folder(folder)),
        (_, None) => Err("no key names it".to_owned()),
    })
}

fn by_name(kernel: &mut Kernel, name: &LinkName) -> Result<Result<IfName, String>, Error> {
    let found = kernel
        .named_link(Ns::Host, name)
        .doing(format_args!("look up link {:?} of host", name.as_str()))?;
    Ok(match found {
        Some((own, _)) => Ok(own),
        None => Err(format!("no such link in host: {:?}", name.as_str())),
    })
}

/// Finds a link by hardware address. If several links have this address, such as a VLAN and its
/// parent, returns the oldest link.
fn by_mac(kernel: &mut Kernel, mac: Mac) -> Result<Result<IfName, String>, Error> {
    let mut links = link::list(kernel.host()).doing("list links of the host")?;
    links.sort_by_key(|(_, fact)| fact.index);
    let oldest = links.iter().find(|(_, fact)| fact.mac == Some(mac));
    if let Some((name, _)) = oldest
        && let Ok(name) = IfName::parse(name)
    {
        return Ok(Ok(name));
    }
    Ok(Err(format!(
        "no link of the host has hardware address {mac}"
    )))
}

/// Returns the sysfs folder with the names of the device's links. For a virtio device, this folder
/// is one level deeper, below the PCI device.
fn net_folder(folder: &Path) -> PathBuf {
    let own = folder.join("net");
    if own.exists() {
        return own;
    }
    for name in entries(folder).unwrap_or_default() {
        if name.starts_with("virtio") {
            return folder.join(name).join("net");
        }
    }
    own
}

fn first_below(folder: &Path) -> Result<IfName, String> {
    let names = entries(folder)
        .map_err(|err| format!("failed to read directory {}: {err}", folder.display()))?;
    if let Some(first) = names.first()
        && let Ok(name) = IfName::parse(first)
    {
        return Ok(name);
    }
    Err(format!(
        "failed to find network device in path {}",
        folder.display()
    ))
}

/// Lists the names in a folder, sorted.
fn entries(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
