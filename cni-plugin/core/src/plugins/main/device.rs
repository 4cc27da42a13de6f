//! Pair of links between node and container, for `bridge`, `ptp` and `netkit`: a veth or a netkit.

use crate::cni::{Error, Interface, Json};
use crate::name::{IfName, Mac};
use crate::plan::step::Step;
use crate::plan::thing::link::NetkitMode;
use crate::plan::thing::{Link, LinkKind, LinkRef};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::{Call, interface};

/// Link kind of the pair.
///
/// The primary end of a netkit is on the node. Settings and programs of both ends can be changed
/// only from the primary end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    Veth,
    Netkit(NetkitMode),
}

/// Settings of a pair besides its names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends<'a> {
    /// MTU of both ends in bytes; `None` means the kernel's default.
    pub(super) mtu: Option<u32>,
    /// Bridge that takes the node's end as a port.
    pub(super) master: Option<&'a IfName>,
    /// Hardware address of the container's end, unused for a netkit of mode l3.
    pub(super) pod_mac: Mac,
}

impl Device {
    /// Reads `device`, and `mode` for a netkit.
    pub(super) fn parse(json: &Json, default: NetkitMode) -> Result<Self, Error> {
        match json.str_or("device", "")? {
            "" | "veth" => Ok(Self::Veth),
            "netkit" => Self::netkit(json, default),
            other => Err(Error::config(format!("unknown device: {other:?}")).at_key("device")),
        }
    }

    /// Reads `mode` of a netkit.
    pub(super) fn netkit(json: &Json, default: NetkitMode) -> Result<Self, Error> {
        Ok(Self::Netkit(match json.str_or("mode", "")? {
            "" => default,
            "l2" => NetkitMode::L2,
            "l3" => NetkitMode::L3,
            other => {
                return Err(Error::config(format!("unknown netkit mode: {other:?}")).at_key("mode"));
            }
        }))
    }

    /// Returns the name of the node's end.
    pub(super) fn host(self, call: &Call<'_>) -> IfName {
        match self {
            Self::Veth => call.host_veth(),
            Self::Netkit(_) => call.host_netkit(),
        }
    }

    /// Returns `mac` if the ends have hardware addresses, otherwise `None`.
    pub(super) fn addressed(self, mac: Mac) -> Option<Mac> {
        match self {
            Self::Veth | Self::Netkit(NetkitMode::L2) => Some(mac),
            Self::Netkit(NetkitMode::L3) => None,
        }
    }

    /// Returns the step that creates the pair, both ends down.
    pub(super) fn add(self, call: &Call<'_>, ends: Ends<'_>) -> Step {
        let (peer, peer_mac) = (call.pod(), self.addressed(ends.pod_mac));
        Step::add(Link {
            at: LinkRef::host(self.host(call)),
            mac: self.addressed(call.host_mac()),
            mtu: ends.mtu,
            up: false,
            master: ends.master.cloned(),
            kind: match self {
                Self::Veth => LinkKind::Veth { peer, peer_mac },
                Self::Netkit(mode) => LinkKind::Netkit {
                    peer,
                    peer_mac,
                    mode,
                },
            },
        })
    }

    /// Returns the entries of both ends in `interfaces` of a CNI result, the node's end first.
    /// Their `mac` is empty if the ends have no hardware address.
    pub(super) fn interfaces(self, call: &Call<'_>, pod_mac: Mac) -> [Interface; 2] {
        let text = |mac| {
            self.addressed(mac)
                .map(|mac| mac.to_string())
                .unwrap_or_default()
        };
        let host = Interface {
            name: self.host(call).to_string(),
            mac: text(call.host_mac()),
            ..Interface::default()
        };
        [host, call.interface(text(pod_mac))]
    }

    /// Returns the steps with which a DEL without a record deletes a container's pair. With
    /// `ip_masq` the steps also delete the masquerading of the container's addresses.
    pub(super) fn teardown_without_record(self, call: &Call<'_>, ip_masq: bool) -> Vec<Step> {
        interface::del_pair(call, self.host(call), ip_masq)
    }

    /// Returns the kernel feature that creates the pair.
    pub(super) fn feature(self) -> Feature {
        match self {
            Self::Veth => Feature::Veth,
            Self::Netkit(NetkitMode::L2) => Feature::NetkitL2,
            Self::Netkit(NetkitMode::L3) => Feature::Netkit,
        }
    }

    /// Returns the fact needed before [`Self::refuse`]; `None` for a veth, because every kernel
    /// that braid supports has veths.
    pub(super) fn need(self) -> Option<Need> {
        match self {
            Self::Veth => None,
            Self::Netkit(NetkitMode::L2) => Some(Need::Features(&[Feature::NetkitL2])),
            Self::Netkit(NetkitMode::L3) => Some(Need::Features(&[Feature::Netkit])),
        }
    }

    /// Refuses a kernel that can't create the pair.
    pub(super) fn refuse(self, facts: &Facts) -> Result<(), Error> {
        let feature = self.feature();
        match facts.features.get(&feature) {
            Some(Some(said)) => Err(Error::internal(format!(
                "this kernel lacks {}: {said}; see `braid doctor`",
                feature.name()
            ))),
            Some(None) | None => Ok(()),
        }
    }

    /// Returns the kernel's name for the link kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Netkit(_) => "netkit",
        }
    }
}
