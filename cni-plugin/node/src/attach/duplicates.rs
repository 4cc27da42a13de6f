//! IPv6 addresses of running containers that another host has, as the kernel's duplicate address
//! detection finds them.
//!
//! The kernel keeps such an address and does not use it (`dadfailed`). A detection may run long after
//! ADD: when a link without a carrier gets one, or when a program opens a tap.

use super::repair::is_settled;
use crate::apply::host::Machine;
use crate::store::record::{Attached, Record};
use crate::sys::netns::NetNs;
use braid_core::cni::Error;
use braid_core::name::Ns;
use braid_core::plan::thing::{Addr, Thing};
use braid_core::plan::{Facts, Need, Step};
use std::net::IpAddr;

/// An address of a container that another host has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duplicate {
    /// The network's name.
    pub network: String,
    /// Name of the container's interface.
    pub ifname: String,
    /// The address.
    pub address: IpAddr,
}

/// The detection of a container's addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// Addresses that another host has.
    pub duplicates: Vec<Duplicate>,
    /// True if the detection of an address has not ended, or not begun.
    pub is_open: bool,
}

/// Reads the detection of a container's addresses. Enters its namespace only if the record has
/// addresses with detection.
pub fn look(record: &Record, machine: &dyn Machine) -> Result<Detection, Error> {
    let detected: Vec<(&Attached, &Addr)> = detected(record).collect();
    if detected.is_empty() {
        return Ok(Detection::default());
    }
    let Some(Ok(netns)) = record.netns.as_deref().map(NetNs::open) else {
        return Ok(Detection::default());
    };
    let mut host = machine.open(Some(netns)).map_err(Error::from)?;
    if !record.is_of(host.pod_cookie()) {
        return Ok(Detection::default());
    }
    let mut needs: Vec<Need> = detected
        .iter()
        .map(|(_, addr)| Need::Addrs(addr.at.clone()))
        .collect();
    needs.dedup();
    let facts = host.observe(&needs).map_err(Error::from)?;
    Ok(judge(&detected, &facts))
}

/// Returns the addresses of a container with detection.
fn detected(record: &Record) -> impl Iterator<Item = (&Attached, &Addr)> {
    let attachments = record.attachments.iter().filter(|it| is_settled(it));
    attachments.flat_map(|attached| {
        let addresses = attached.steps().filter_map(|step| {
            if let Step::Add(Thing::Addr(addr)) = step {
                Some(addr)
            } else {
                None
            }
        });
        let has_detection =
            |addr: &&Addr| addr.at.ns == Ns::Pod && addr.net.addr().is_ipv6() && !addr.no_dad;
        addresses
            .filter(has_detection)
            .map(move |addr| (attached, addr))
    })
}

fn judge(detected: &[(&Attached, &Addr)], facts: &Facts) -> Detection {
    let mut detection = Detection::default();
    for (attached, addr) in detected {
        let address = addr.net.addr();
        let mut present = facts.addrs(&addr.at).iter();
        let Some(fact) = present.find(|fact| fact.net.addr() == address) else {
            continue;
        };
        if fact.dad_failed {
            detection.duplicates.push(Duplicate {
                network: attached.network.clone(),
                ifname: attached.ifname.to_string(),
                address,
            });
        } else {
            detection.is_open |= fact.tentative;
        }
    }
    detection
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::Key;
    use braid_core::cni::{Attachment, Json, Owner};
    use braid_core::name::IfName;
    use braid_core::plan::facts::AddrFact;
    use braid_core::plan::thing::LinkRef;
    use std::rc::Rc;

    fn at() -> LinkRef {
        LinkRef::pod(IfName::parse("net1").expect("a name"))
    }

    fn record(addresses: &[(&str, bool)]) -> Record {
        let attachment = Attachment {
            container_id: "a".to_owned(),
            ifname: at().name,
            netns: None,
            args: String::new(),
        };
        let mut attached = Attached::new("lan", "macvlan", &attachment, Rc::new(Json::Null));
        let step = |(net, no_dad): &(&str, bool)| {
            Step::add(Addr {
                at: at(),
                net: net.parse().expect("an address"),
                no_prefix_route: false,
                no_dad: *no_dad,
            })
        };
        attached.parts = vec![addresses.iter().map(step).collect()];
        let key = Key {
            owner: Owner::new("lan", "a", "net1"),
            plugin: "macvlan".to_owned(),
        };
        Record::new(key, None, vec![attached])
    }

    #[test]
    fn failed_and_open_detections_of_recorded_ipv6_addresses_count() {
        let record = record(&[
            ("10.211.0.5/24", false),
            ("fd41::5/64", false),
            ("fd41::6/64", false),
            ("fd41::7/64", true),
        ]);
        let detected: Vec<_> = detected(&record).collect();
        let nets: Vec<String> = detected.iter().map(|it| it.1.net.to_string()).collect();
        assert_eq!(nets, ["fd41::5/64", "fd41::6/64"]);
        let judged = |flags: [(bool, bool); 2]| {
            let facts = ["fd41::5/64", "fd41::6/64"].into_iter().zip(flags);
            let facts = facts.map(|(net, (tentative, dad_failed))| AddrFact {
                net: net.parse().expect("an address"),
                tentative,
                dad_failed,
                scope: 0,
            });
            let all = Facts {
                addrs: [(at(), facts.collect())].into(),
                ..Facts::default()
            };
            let Detection {
                duplicates,
                is_open,
            } = judge(&detected, &all);
            let found = duplicates.iter().map(|it| it.address.to_string());
            (found.collect::<Vec<_>>(), is_open)
        };
        assert_eq!(judged([(false, false); 2]), (vec![], false));
        assert_eq!(judged([(false, false), (true, false)]), (vec![], true));
        // The kernel leaves a failed address tentative.
        let failed = vec!["fd41::5".to_owned()];
        assert_eq!(judged([(true, true), (false, false)]), (failed, false));
        let none = judge(&detected, &Facts::default());
        assert_eq!(none, Detection::default(), "the pod has deleted them");
    }
}
