//! Devices of a pod's networks, as the kubelet assigned them, with information from their device
//! plugins.

use crate::apply::host::Machine;
use crate::attach::device_file::DeviceFile;
use crate::source::cluster::Cluster;
use crate::store::record::Record;
use braid_core::cni::Error;
use braid_core::k8s::device_info::{Asked, CNI, DIR, Device, assign, cni_file};
use braid_core::k8s::dynamic::{Given, Offered};
use braid_core::k8s::network::Network;
use braid_core::k8s::settings::Settings;
use braid_core::k8s::{ObjectName, Pod};
use braid_core::name::IfName;

/// Function that returns the devices on a node that a driver offers. Its arguments are node and
/// driver.
pub(super) type Offer<'o> = dyn FnMut(&str, &str) -> Result<Vec<Offered>, Error> + 'o;

/// The container that gets devices, its node and its cluster.
#[derive(Clone, Copy)]
pub(super) struct On<'a> {
    pub(super) container_id: &'a str,
    pub(super) machine: &'a dyn Machine,
    pub(super) cluster: &'a dyn Cluster,
    pub(super) settings: &'a Settings,
    pub(super) held: &'a Held,
}

/// Devices that a running container has.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Devices of attachments that stay.
    used: Vec<Device>,
    /// Devices of attachments that leave or change, each with interface and network.
    former: Vec<(IfName, Option<ObjectName>, Device)>,
}

impl Held {
    /// Returns the devices in a container's record. The attachments with the indices `leaving` leave or
    /// change.
    pub(super) fn of(record: &Record, leaving: &[usize]) -> Self {
        let mut held = Self::default();
        for (at, attached) in record.attachments.iter().enumerate() {
            let Some(device) = attached.device.clone() else {
                continue;
            };
            if leaving.contains(&at) {
                let (ifname, object) = (attached.ifname.clone(), attached.object.clone());
                held.former.push((ifname, object, device));
            } else {
                held.used.push(device);
            }
        }
        held
    }

    /// Returns the device of the attachment that this network replaces.
    fn former(&self, network: &Network) -> Option<&Device> {
        let mut all = self.former.iter();
        let is_its =
            |(ifname, object, _): &&_| *ifname == network.ifname && *object == network.object;
        all.find(is_its).map(|(_, _, device)| device)
    }
}

/// Assigns to each network its device and the path of its device information file. Returns each
/// network with its file. The kubelet is queried only if a network takes a device that the pod does
/// not name. The API is queried only if this device may be from a resource claim.
pub(super) fn give(
    networks: Vec<Network>,
    pod: Option<&Pod>,
    on: On<'_>,
    offer: &mut Offer<'_>,
) -> Result<Vec<(Network, Option<DeviceFile>)>, Error> {
    let mut resources: Vec<Option<&str>> = Vec::new();
    for network in &networks {
        let resource = network.resource.as_deref();
        resources.push(resource.filter(|_| network.device.is_none()));
    }
    let given = match pod.filter(|_| resources.iter().any(Option::is_some)) {
        Some(pod) => of_pod(pod, &resources, on, offer)?,
        None => Given::default(),
    };
    let mut asked = Vec::new();
    for (network, resource) in networks.iter().zip(resources) {
        let former = on.held.former(network);
        asked.push(Asked { resource, former });
    }
    let mut used = on.held.used.clone();
    used.extend(networks.iter().filter_map(Network::device));
    let assigned = assign(&asked, &given.by_resource, &used)?;
    let of_each = networks.into_iter().zip(assigned);
    of_each
        .map(|(mut network, assigned)| {
            let device = network.device.clone().or(assigned);
            let file = file(&mut network, device.as_deref(), on)
                .map_err(|err| err.context(format_args!("network {}", network.name())))?;
            Ok((network, file))
        })
        .collect()
}

/// Returns the devices that the kubelet assigned to a pod. Devices of resource claims are included
/// if a network needs them.
fn of_pod(
    pod: &Pod,
    resources: &[Option<&str>],
    on: On<'_>,
    offer: &mut Offer<'_>,
) -> Result<Given, Error> {
    let mut given = on.cluster.devices(on.settings, &pod.name)?;
    for driver in given.drivers(resources) {
        let offered = offer(&pod.node, &driver)?;
        given.learn(&driver, &offered);
    }
    Ok(given)
}

/// Returns the device information file of a network; `None` if no plugin of the network uses one
/// and the device plugin wrote none.
fn file(
    network: &mut Network,
    device: Option<&str>,
    on: On<'_>,
) -> Result<Option<DeviceFile>, Error> {
    let DeviceFile { path, .. } = file_of(network, on.container_id, on.machine)?;
    let is_wanted = network.set_device_info_file(&path.display().to_string());
    let mut content = None;
    if let Some(device) = device {
        network.set_device(device);
        if let Some(resource) = &network.resource {
            content = on.cluster.device_info(resource, device)?;
        }
    }
    Ok((is_wanted || content.is_some()).then_some(DeviceFile { path, content }))
}

/// Returns the device information file of a network in this container, without content. The file
/// need not exist.
pub(super) fn file_of(
    network: &Network,
    container_id: &str,
    machine: &dyn Machine,
) -> Result<DeviceFile, Error> {
    let path = machine
        .root()
        .at(DIR)
        .join(CNI)
        .join(cni_file(container_id, network.ifname.as_str())?);
    Ok(DeviceFile {
        path,
        content: None,
    })
}
