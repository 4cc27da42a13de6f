//! Links of the node: the decision which ones are offered as devices, and with which capacity.

use super::device::Form;
use super::rate::Rate;
use super::settings::{Glob, Settings};
use crate::cni::owner::Owner;
use crate::name::IfName;
use crate::plan::facts::LinkFact;
use std::fmt::{Display, Formatter};

/// Smallest bandwidth of a claim in bits per second.
pub const MIN: Rate = Rate(1_000_000);
/// Default bandwidth of a claim as a part of the link's capacity.
const DEFAULT_PART: u64 = 100;
/// Links that the agent and the default network make.
const OWN: [&str; 2] = ["braid0", "braid-vxlan"];
/// Bridge that plugins make without a configured name.
const BRIDGE: &str = "cni0";
/// Start of the names that plugins give to the host's ends of pods' links.
const ENDS: [&str; 6] = ["veth", "cali", "lxc", "eni", "azv", "gke"];
/// Most links over each other, such as a VLAN over a VLAN over a bond.
const MOST_LEVELS: u8 = 4;
/// Kinds of links that have all traffic of their ports.
const MASTERS: [&str; 4] = ["bond", "team", "bridge", "openvswitch"];

/// Facts of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Name.
    pub name: IfName,
    /// The kernel's facts.
    pub fact: LinkFact,
    /// The device behind the link; `None` if the link is virtual.
    pub device: Option<Device>,
    /// Speed as the driver reports it, or as it reported it before the carrier was lost, in Mbit/s.
    pub speed_mbit: Option<u32>,
    /// True if the link has an address of the node that other hosts may use.
    pub is_uplink: bool,
}

impl Nic {
    /// Returns the kind of the link as users know it.
    pub fn kind(&self) -> &str {
        match (self.fact.kind.as_str(), self.fact.mode) {
            ("", _) => "physical",
            ("tun", Some("tap")) => "tap",
            (kind, _) => kind,
        }
    }

    /// True if the link can carry packets.
    pub fn has_carrier(&self) -> bool {
        self.fact.up && self.fact.carrier
    }
}

/// Device behind a link, as in the paths of sysfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Address on the PCI bus, for example `0000:03:00.0`.
    pub pci: Option<String>,
    /// PCI address of the physical function; `None` unless this is a virtual function or a
    /// subfunction.
    pub physical: Option<String>,
    /// Root of the PCI bus, for example `pci0000:00`.
    pub root: Option<String>,
    /// NUMA node; `None` on a machine with one.
    pub numa_node: Option<u32>,
}

impl Device {
    /// Parses the path of a device below `/sys/devices`, the content of the file `numa_node`, and
    /// the target of the symbolic link `physfn`. Both are of the device or of the device above it.
    /// A missing one is empty.
    pub fn of(path: &str, numa_node: &str, physfn: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let root = parts.clone().find(|part| is_root(part));
        let (last, above) = (parts.next_back(), parts.next_back());
        // A function of a device, of virtio or of its own driver, has no address. The address above
        // an USB device is that of the host's controller.
        let is_sub = |part: &str| part.contains(".sf.");
        let is_function = |part: &str| part.starts_with("virtio") || is_sub(part);
        let pci = match (last, above) {
            (Some(last), _) if is_pci(last) => Some(last),
            (Some(last), Some(above)) if is_function(last) && is_pci(above) => Some(above),
            _ => None,
        };
        let physical = physfn.rsplit('/').next().filter(|part| is_pci(part));
        let physical = physical.or(pci.filter(|_| last.is_some_and(is_sub)));
        Self {
            pci: pci.map(str::to_owned),
            physical: physical.map(str::to_owned),
            root: root.filter(|_| pci.is_some()).map(str::to_owned),
            // -1: the machine does not say.
            numa_node: numa_node.trim().parse().ok(),
        }
    }
}

/// True for `pci0000:00`.
fn is_root(part: &str) -> bool {
    let numbers = part.strip_prefix("pci");
    let numbers = numbers.and_then(|numbers| numbers.split_once(':'));
    numbers.is_some_and(|(domain, bus)| is_hex(domain) && is_hex(bus))
}

/// True for `0000:03:00.0`.
fn is_pci(part: &str) -> bool {
    let [domain, bus, slot] = part.split(':').collect::<Vec<_>>()[..] else {
        return false;
    };
    let function = slot.split_once('.');
    let is_slot = function.is_some_and(|(slot, function)| is_hex(slot) && is_hex(function));
    is_hex(domain) && is_hex(bus) && is_slot
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_hexdigit())
}

/// A link that is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer<'n> {
    /// The link.
    pub nic: &'n Nic,
    /// Capacity of the link.
    pub speed: Rate,
    /// Bandwidth for claims: the capacity without the host's reserve.
    pub bandwidth: Rate,
    /// Forms in which it is offered.
    pub forms: &'static [Form],
}

/// Reason why a link is not offered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The settings leave it out, or it is virtual and the settings do not include it.
    NotIncluded,
    /// It has no hardware address, as `lo` and tunnels.
    NoMac,
    /// braid made it.
    Own,
    /// It is the host's end of a pod's link.
    PodsEnd,
    /// A plugin made the bridge.
    PluginsBridge,
    /// It is a port of this link.
    Port(String),
    /// It is a virtual function or a subfunction of this link, or of this PCI device if the node has
    /// no such link. `include` does not name it. Functions share the port with each other, so they
    /// are refused also if the physical function is not offered.
    Function(String),
    /// It is over this link, which is offered. `include` does not name it.
    Over(String),
    /// Its speed is not known.
    NoSpeed,
    /// It has less bandwidth than a claim without the host's reserve.
    TooSlow(Rate),
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotIncluded => f.write_str("dra.include or dra.exclude leaves it out"),
            Self::NoMac => f.write_str("it has no hardware address"),
            Self::Own => f.write_str("braid made it"),
            Self::PodsEnd => f.write_str("it is the end of a pod's link"),
            Self::PluginsBridge => f.write_str("it is the bridge of a plugin"),
            Self::Port(master) => write!(f, "it is a port of {master}"),
            Self::Function(physical) => write!(
                f,
                "it is a virtual function of {physical}: only its full name in dra.include \
                 offers it"
            ),
            Self::Over(lower) => write!(
                f,
                "it is over {lower}, which is offered: only its full name in dra.include offers it"
            ),
            Self::NoSpeed => f.write_str("its speed is not known: dra.capacity can set it"),
            Self::TooSlow(rate) => write!(
                f,
                "{rate} bit/s are left beside dra.reserve, less than {MIN}"
            ),
        }
    }
}

/// Returns the bandwidth of a claim that requests none, on a link with this capacity.
pub fn default_bandwidth(speed: Rate) -> Rate {
    Rate(speed.0 / DEFAULT_PART).max(MIN)
}

/// Decides which links are offered. The refused ones are those that the settings include.
pub fn offers<'n>(
    nics: &'n [Nic],
    settings: &Settings,
) -> (Vec<Offer<'n>>, Vec<(&'n IfName, Refusal)>) {
    let (mut offers, mut refused) = (Vec::new(), Vec::new());
    for nic in nics {
        match offer(nic, nics, settings) {
            Ok(offer) => offers.push(offer),
            Err(Refusal::NotIncluded) => {}
            Err(refusal) => refused.push((&nic.name, refusal)),
        }
    }
    let candidates: Vec<&Nic> = offers.iter().map(|offer| offer.nic).collect();
    offers.retain(|offer| {
        let refusal = over_offered(offer.nic, nics, &candidates, settings);
        let is_offered = refusal.is_none();
        refused.extend(refusal.map(|refusal| (&offer.nic.name, refusal)));
        is_offered
    });
    offers.sort_by_key(|offer| &offer.nic.name);
    (offers, refused)
}

/// True if the speed of the link is of interest.
pub fn is_candidate(nic: &Nic, nics: &[Nic], settings: &Settings) -> bool {
    refusal(nic, nics, settings).is_none()
}

fn offer<'n>(nic: &'n Nic, nics: &[Nic], settings: &Settings) -> Result<Offer<'n>, Refusal> {
    if let Some(refusal) = refusal(nic, nics, settings) {
        return Err(refusal);
    }
    let speed = settings.capacity_of(&nic.name);
    let speed = speed.or(nic.speed_mbit.map(Rate::of_mbit));
    let speed = speed.ok_or(Refusal::NoSpeed)?;
    let bandwidth = Rate(speed.0.saturating_sub(settings.reserve.0));
    if bandwidth < MIN {
        return Err(Refusal::TooSlow(bandwidth));
    }
    Ok(Offer {
        nic,
        speed,
        bandwidth,
        forms: if has_uplink(nic, nics) {
            // Moved into a pod, it would take the node off the network.
            &[Form::Shared]
        } else {
            &[Form::Shared, Form::Whole]
        },
    })
}

/// Returns the reason why a link is not offered, whatever its speed and the links below it.
fn refusal(nic: &Nic, nics: &[Nic], settings: &Settings) -> Option<Refusal> {
    let has = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(&nic.name));
    let is_included = if settings.include.is_empty() {
        nic.device.is_some()
    } else {
        has(&settings.include)
    };
    if !is_included || has(&settings.exclude) {
        return Some(Refusal::NotIncluded);
    }
    let name = nic.name.as_str();
    if name == "lo" || nic.fact.mac.is_none() {
        return Some(Refusal::NoMac);
    }
    if nic.fact.alias.starts_with(Owner::ALIAS_PREFIX) || OWN.contains(&name) {
        return Some(Refusal::Own);
    }
    let is_named = settings.is_named(&nic.name);
    if is_outside(nic) && !is_named && ENDS.iter().any(|end| name.starts_with(end)) {
        return Some(Refusal::PodsEnd);
    }
    if nic.fact.kind == "bridge" && (name == BRIDGE || has_pods(nic, nics)) {
        return Some(Refusal::PluginsBridge);
    }
    let function = || function_of(nic, nics).filter(|_| !is_named);
    port_of(nic, nics).or_else(function)
}

/// True if the link, or a link over it such as a VLAN or its bridge, has an address of the Node.
fn has_uplink(nic: &Nic, nics: &[Nic]) -> bool {
    let above = reachable(nic, nics, |lower, upper| is_over(upper, lower));
    nic.is_uplink || above.iter().any(|upper| upper.is_uplink)
}

/// Returns the refusal of a link that sends through one of these candidates, unless `include` names
/// it. The lowest candidate has none below it, so it is offered.
fn over_offered(
    nic: &Nic,
    nics: &[Nic],
    candidates: &[&Nic],
    settings: &Settings,
) -> Option<Refusal> {
    if settings.is_named(&nic.name) {
        return None;
    }
    let below = reachable(nic, nics, |upper, lower| {
        is_over(upper, lower) || is_function(upper, lower)
    });
    let is_candidate = |lower: &&&Nic| candidates.iter().any(|one| one.name == lower.name);
    let lowest = below.iter().rfind(is_candidate)?;
    Some(Refusal::Over(lowest.name.to_string()))
}

/// Returns the links that are reached from a link in at most [`MOST_LEVELS`] steps, nearest first.
fn reachable<'n>(
    from: &'n Nic,
    nics: &'n [Nic],
    is_next: impl Fn(&Nic, &Nic) -> bool,
) -> Vec<&'n Nic> {
    let mut reached = Vec::new();
    let mut last = vec![from];
    for _ in 0..MOST_LEVELS {
        let is_reached = |nic: &&Nic| last.iter().any(|one| is_next(one, nic));
        last = nics.iter().filter(is_reached).collect();
        reached.extend(&last);
    }
    reached
}

/// True if `upper` sends through `lower`: as a VLAN or a macvlan over it, or as the bond or the
/// bridge of this port. The other end of a pair is not below it.
fn is_over(upper: &Nic, lower: &Nic) -> bool {
    let (fact, index) = (&upper.fact, Some(lower.fact.index));
    let is_here = fact.parent_netns.is_none() && !fact.is_end();
    is_here && fact.parent == index || is_port(lower, upper)
}

/// True if `upper` is a virtual function or a subfunction of `lower`.
fn is_function(upper: &Nic, lower: &Nic) -> bool {
    let (Some(upper), Some(lower)) = (&upper.device, &lower.device) else {
        return false;
    };
    // A subfunction has the address of its physical function.
    upper.physical.is_some() && upper.physical == lower.pci && lower.physical.is_none()
}

fn function_of(nic: &Nic, nics: &[Nic]) -> Option<Refusal> {
    let address = nic.device.as_ref()?.physical.as_deref()?;
    let physical = nics.iter().find(|lower| is_function(nic, lower));
    let physical = physical.map_or(address, |physical| physical.name.as_str());
    Some(Refusal::Function(physical.to_owned()))
}

/// True if the other end of a pair is in another namespace.
fn is_outside(nic: &Nic) -> bool {
    nic.fact.is_end() && nic.fact.parent_netns.is_some()
}

/// True if a bridge has ports to other namespaces.
fn has_pods(bridge: &Nic, nics: &[Nic]) -> bool {
    let index = Some(bridge.fact.index);
    nics.iter()
        .any(|port| port.fact.master == index && is_outside(port))
}

fn port_of(nic: &Nic, nics: &[Nic]) -> Option<Refusal> {
    let master = nics.iter().find(|master| is_port(nic, master))?;
    Some(Refusal::Port(master.name.as_str().to_owned()))
}

fn is_port(nic: &Nic, master: &Nic) -> bool {
    nic.fact.master == Some(master.fact.index) && MASTERS.contains(&master.fact.kind.as_str())
}

#[cfg(test)]
mod tests;
