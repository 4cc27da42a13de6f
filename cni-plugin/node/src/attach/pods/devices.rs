//! Devices of a pod's networks: those that the kubelet gave the pod, and what their device plugins
//! say of them.

use crate::apply::host::Machine;
use crate::attach::device_file::DeviceFile;
use crate::source::files;
use braid_core::cni::Error;
use braid_core::k8s::Pod;
use braid_core::k8s::device_info::{CNI, DP, assign, cni_file, dp_file};
use braid_core::k8s::dynamic::{Given, Offered};
use braid_core::k8s::network::Network;

/// Devices that a driver offers on a node.
pub(super) type Offer<'o> = dyn FnMut(&str, &str) -> Result<Vec<Offered>, Error> + 'o;

/// Gives each network its device, and the path of its file; returns it with the file. The kubelet
/// is asked where a network takes a device and the pod does not name it itself, and the API where
/// the device may be one of a resource claim.
pub(super) fn give(
    networks: Vec<Network>,
    pod: Option<&Pod>,
    (container_id, machine): (&str, &dyn Machine),
    offer: &mut Offer<'_>,
) -> Result<Vec<(Network, Option<DeviceFile>)>, Error> {
    let resource = |network: &Network| {
        network
            .resource
            .clone()
            .filter(|_| network.device.is_none())
    };
    let asked: Vec<Option<String>> = networks.iter().map(resource).collect();
    let asked: Vec<Option<&str>> = asked.iter().map(Option::as_deref).collect();
    let given = match pod.filter(|_| asked.iter().any(Option::is_some)) {
        Some(pod) => of_pod(pod, &asked, machine, offer)?,
        None => Given::default(),
    };
    let assigned = assign(&asked, &given.by_resource)?;
    let of_each = networks.into_iter().zip(assigned);
    of_each
        .map(|(mut network, assigned)| {
            let device = network.device.clone().or(assigned);
            let file = file(&mut network, device.as_deref(), (container_id, machine))
                .map_err(|err| err.context(format_args!("network {}", network.name())))?;
            Ok((network, file))
        })
        .collect()
}

/// The devices of a pod, those of its resource claims included where they are needed.
fn of_pod(
    pod: &Pod,
    asked: &[Option<&str>],
    machine: &dyn Machine,
    offer: &mut Offer<'_>,
) -> Result<Given, Error> {
    let mut given = machine.devices(&pod.name)?;
    for driver in given.drivers(asked) {
        let offered = offer(&pod.node, &driver)?;
        given.learn(&driver, &offered);
    }
    Ok(given)
}

/// The file of a network with this device; none where nobody has use for it.
fn file(
    network: &mut Network,
    device: Option<&str>,
    (container_id, machine): (&str, &dyn Machine),
) -> Result<Option<DeviceFile>, Error> {
    let DeviceFile { path, .. } = file_of(network, container_id, machine)?;
    let is_wanted = network.set_device_info_file(&path.display().to_string());
    let mut content = None;
    if let Some(device) = device {
        network.set_device(device);
        if let Some(resource) = &network.resource {
            let told = machine.devinfo().join(DP).join(dp_file(resource, device)?);
            content = files::read(&told)?.pop().map(|file| file.bytes);
        }
    }
    Ok((is_wanted || content.is_some()).then_some(DeviceFile { path, content }))
}

/// The file of a network in this container, whether it is there or not.
pub(super) fn file_of(
    network: &Network,
    container_id: &str,
    machine: &dyn Machine,
) -> Result<DeviceFile, Error> {
    let path = machine
        .devinfo()
        .join(CNI)
        .join(cni_file(container_id, network.ifname.as_str())?);
    Ok(DeviceFile {
        path,
        content: None,
    })
}
