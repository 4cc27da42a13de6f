//! VLANs of a bridge port, and the gateway interface of one VLAN.

use crate::cni::{Error, Json};
use crate::name::{IfName, Mac};
use crate::plan::Facts;
use crate::plan::facts::LinkFact;
use crate::plan::step::Step;
use crate::plan::thing::vlan::Vlan;
use crate::plan::thing::{Link, LinkKind, LinkRef, PortVlan};
use crate::plugins::call::{bridge_mac, shared_veth};
use std::collections::BTreeSet;

const MAX: i64 = 4094;
/// Default VLAN of untagged frames on a trunk port.
const NATIVE: u16 = 1;

/// The keys `vlan`, `vlanTrunk` and `preserveDefaultVlan`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Vlans {
    /// `vlan`, 1 to 4094: VLAN of the port's untagged frames.
    pub(super) id: Option<u16>,
    /// `vlanTrunk`: VLANs of the port's tagged frames; an empty list still enables VLAN filtering.
    trunk: Option<BTreeSet<u16>>,
    preserve_default: bool,
}

impl Vlans {
    pub(super) fn parse(json: &Json) -> Result<Self, Error> {
        let id = match json.i64("vlan")? {
            None | Some(0) => None,
            Some(id) => Some(checked(id).ok_or_else(|| {
                Error::config(format!(
                    "\"vlan\": invalid VLAN ID {id} (must be between 0 and {MAX})"
                ))
                .at_key("vlan")
            })?),
        };
        let has_trunk = json.list("vlanTrunk")?.is_some();
        let ranges = json.each_object("vlanTrunk", trunk_entry)?;
        let ids: BTreeSet<u16> = ranges.into_iter().flatten().collect();
        let trunk = has_trunk.then_some(ids);
        Ok(Self {
            id,
            trunk,
            preserve_default: json.bool_or("preserveDefaultVlan", false)?,
        })
    }

    /// True if a bridge created for this configuration filters VLANs.
    pub(super) fn is_filtering(&self) -> bool {
        self.id.is_some() || self.trunk.is_some()
    }

    fn tagged(&self) -> impl Iterator<Item = u16> {
        self.trunk.iter().flatten().copied()
    }

    /// Returns the steps that configure the VLANs of a new port.
    pub(super) fn on_port(&self, port: &LinkRef, default_pvid: u16) -> Vec<Step> {
        if self.id.is_none() && self.tagged().next().is_none() {
            return Vec::new();
        }
        let vlan = |id, untagged| {
            Step::ensure(PortVlan {
                at: port.clone(),
                vlan: Vlan {
                    id,
                    pvid: untagged,
                    untagged,
                },
            })
        };
        let mut steps = Vec::new();
        let untagged = self.id.or((!self.preserve_default).then_some(NATIVE));
        if !self.preserve_default && default_pvid != 0 && untagged != Some(default_pvid) {
            let default = Vlan {
                id: default_pvid,
                pvid: true,
                untagged: true,
            };
            steps.push(Step::del(PortVlan {
                at: port.clone(),
                vlan: default,
            }));
        }
        steps.extend(untagged.map(|id| vlan(id, true)));
        for id in self.tagged() {
            if untagged != Some(id) {
                steps.push(vlan(id, false));
            }
        }
        steps
    }

    /// Warns if the bridge does not filter VLANs, so the VLANs have no effect.
    pub(super) fn warnings(&self, bridge: &IfName, existing: Option<&LinkFact>) -> Vec<String> {
        if !self.is_filtering() || existing.is_none_or(|fact| fact.vlan_filtering) {
            return Vec::new();
        }
        vec![format!(
            "bridge {bridge} exists without vlan_filtering: its ports are not separated by VLAN"
        )]
    }
}

fn checked(id: i64) -> Option<u16> {
    if !(1..=MAX).contains(&id) {
        return None;
    }
    u16::try_from(id).ok()
}

fn trunk_id(entry: &Json, key: &str) -> Result<Option<u16>, Error> {
    let Some(id) = entry.i64(key)? else {
        return Ok(None);
    };
    if let Some(id) = checked(id) {
        return Ok(Some(id));
    }
    let sentence = format!("incorrect trunk {key} parameter: {id}");
    Err(Error::config(sentence).at_key(key))
}

/// Reads an entry of `vlanTrunk`: `id`, or `minID` with `maxID`, or both.
fn trunk_entry(entry: &Json) -> Result<Vec<u16>, Error> {
    let (min, max, id) = (
        trunk_id(entry, "minID")?,
        trunk_id(entry, "maxID")?,
        trunk_id(entry, "id")?,
    );
    let missing = |key| {
        Error::config(format!(
            "minID and maxID should be configured simultaneously, {key} is missing"
        ))
    };
    let range = match (min, max) {
        (None, None) => None,
        (Some(min), Some(max)) if min > max => {
            return Err(Error::config(format!(
                "minID is greater than maxID in trunk parameter: {min} > {max}"
            ))
            .at_key("minID"));
        }
        (Some(min), Some(max)) => Some(min..=max),
        (None, _) => return Err(missing("minID")),
        (_, None) => return Err(missing("maxID")),
    };
    let mut ids: Vec<u16> = range.into_iter().flatten().collect();
    ids.extend(id);
    Ok(ids)
}

/// Returns the name of the interface that carries a VLAN's gateway address.
pub(super) fn gateway_name(bridge: &IfName, id: u16) -> Result<IfName, Error> {
    let name = format!("{bridge}.{id}");
    IfName::parse(&name)
        .map_err(|err| Error::config(format!("\"bridge\" and \"vlan\": {name:?}: {err}")))
}

/// Returns the hardware address of a VLAN's gateway interface, or the planned one if the interface
/// does not exist.
pub(super) fn gateway_mac(name: &IfName, facts: &Facts) -> Mac {
    facts
        .link(&LinkRef::host(name.clone()))
        .and_then(|fact| fact.mac)
        .unwrap_or_else(|| bridge_mac(name, &facts.boot_id))
}

/// Returns the steps that create a VLAN's gateway interface if missing. The interface is one end of
/// a veth. The other end is a bridge port in the VLAN. The steps leave the interface down and
/// without its gateway address.
pub(super) fn gateway(bridge: &IfName, id: u16, facts: &Facts) -> Result<Vec<Step>, Error> {
    let name = gateway_name(bridge, id)?;
    let at = LinkRef::host(name.clone());
    let port = LinkRef::host(shared_veth(name.as_str()));
    let default_pvid = facts
        .link(&LinkRef::host(bridge.clone()))
        .map_or(NATIVE, |fact| fact.default_pvid);
    let link = Link {
        at: port.clone(),
        mac: None,
        mtu: None,
        up: true,
        master: Some(bridge.clone()),
        kind: LinkKind::Veth {
            peer: at,
            peer_mac: Some(bridge_mac(&name, &facts.boot_id)),
        },
    };
    let only = Vlans {
        id: Some(id),
        trunk: None,
        preserve_default: false,
    };
    let mut steps = vec![Step::ensure(link)];
    steps.extend(only.on_port(&port, default_pvid));
    Ok(steps)
}
