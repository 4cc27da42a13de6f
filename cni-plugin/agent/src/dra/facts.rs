//! Facts of the node's links, read from rtnetlink, ethtool and sysfs.

use crate::error::Error;
use braid_core::dra::nic::{self, Device, Nic};
use braid_core::dra::settings::Settings;
use braid_core::name::IfName;
use braid_core::plan::facts::{AddrFact, LinkFact};
use braid_node::effect::addr;
use braid_node::kernel::link;
use braid_node::sys::carrier::speed_mbit;
use braid_node::sys::netlink::Socket;
use braid_node::sys::release::is_at_least;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

/// Folder of buses, each with links to its devices. Unlike `/sys/class/net`, it has the devices of all
/// network namespaces.
const BUSES: &str = "/sys/bus";
const LINKS: &str = "/sys/class/net";

/// Reads all links of a node on another thread: a driver may be slow.
pub(super) async fn of_node(settings: Settings) -> Result<Vec<Nic>, Error> {
    let work = spawn_blocking(move || read(&settings));
    let joined = work.await;
    joined.unwrap_or_else(|err| Err(Error::new("read the node's links", err)))
}

/// Reads all links. Only links that may be offered have their speed read.
fn read(settings: &Settings) -> Result<Vec<Nic>, Error> {
    let failed = |err: &dyn std::fmt::Display| Error::new("read the node's links", err);
    let mut socket = Socket::route().map_err(|err| failed(&err))?;
    let links = link::list(&mut socket).map_err(|err| failed(&err))?;
    let addrs = addr::list(&mut socket, 0).map_err(|err| failed(&err))?;
    let uplinks = uplinks(&addrs);
    let mut nics = Vec::new();
    for (name, fact) in links {
        let Ok(name) = IfName::parse(&name) else {
            continue;
        };
        nics.push(Nic {
            device: device(&name, &fact),
            is_uplink: uplinks.contains(&fact.index),
            name,
            fact,
            speed_mbit: None,
        });
    }
    let socket = UnixDatagram::unbound().map_err(|err| failed(&err))?;
    for number in 0..nics.len() {
        let nic = &nics[number];
        if nic::is_candidate(nic, &nics, settings) {
            let speed = speed_mbit(&socket, &nic.name);
            nics[number].speed_mbit = speed.unwrap_or_else(|err| {
                tracing::debug!(link = %nic.name, error = %err, "read the speed");
                None
            });
        }
    }
    Ok(nics)
}

/// Returns the indexes of the links that have an address which other hosts may use: of the Node, of its
/// routes, of its storage. A pod with such a link alone would take the address from the node.
fn uplinks(addrs: &[(u32, AddrFact)]) -> BTreeSet<u32> {
    let used = addrs.iter().filter(|(_, addr)| is_used(addr.net.addr()));
    used.map(|(index, _)| *index).collect()
}

fn is_used(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

/// Returns the device behind a link; `None` if the link is virtual.
fn device(name: &IfName, fact: &LinkFact) -> Option<Device> {
    let path = if is_at_least(5, 14) {
        let device = &fact.hardware.device;
        if device.is_empty() {
            return None;
        }
        on_bus(device)
    } else {
        Some(of_link(name, fact)?)
    };
    let Some(path) = path else {
        return Some(Device::default());
    };
    let folders = || [Some(path.as_path()), path.parent()].into_iter().flatten();
    let numa_node = folders().find_map(numa_node).unwrap_or_default();
    let physfn = folders().find_map(physfn).unwrap_or_default();
    Some(Device::of(
        &path.to_string_lossy(),
        &numa_node,
        &physfn.to_string_lossy(),
    ))
}

fn numa_node(folder: &Path) -> Option<String> {
    fs::read_to_string(folder.join("numa_node")).ok()
}

/// Returns the path of the physical function of a virtual one.
fn physfn(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join("physfn")).ok()
}

/// Returns the folder of a device on whichever bus.
fn on_bus(device: &str) -> Option<PathBuf> {
    let buses = fs::read_dir(BUSES).ok()?;
    let mut links = buses
        .flatten()
        .map(|bus| bus.path().join("devices").join(device));
    links.find_map(|link| fs::canonicalize(link).ok())
}

/// Returns the folder of the device of a link, as older kernels tell it. The mounted sysfs may be that of
/// another network namespace.
fn of_link(name: &IfName, fact: &LinkFact) -> Option<PathBuf> {
    let folder = Path::new(LINKS).join(name.as_str());
    let index = fs::read_to_string(folder.join("ifindex")).ok()?;
    let is_same = index.trim().parse() == Ok(fact.index);
    let device = fs::canonicalize(folder.join("device")).ok()?;
    is_same.then_some(device)
}
