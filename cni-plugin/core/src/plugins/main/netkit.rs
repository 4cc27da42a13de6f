//! `netkit`: a netkit pair (Linux 6.7). Its primary end, on the node, routes to the container.
//! Without an IPAM the plugin creates only the pair.

use super::device::{Device, Ends};
use super::ptp::Ptp;
use crate::cni::{AddResult, Error, NetConf};
use crate::ipam::Lease;
use crate::name::Mac;
use crate::plan::step::{Event, Step};
use crate::plan::thing::LinkRef;
use crate::plan::thing::link::NetkitMode;
use crate::plan::{Facts, Feature, Need};
use crate::plugins::{Addresses, Call, Planned, Plugin, interface};

/// A `netkit` configuration.
#[derive(Debug)]
pub struct Netkit {
    /// Configuration as a `ptp` plugin, which plans a pair with addresses.
    routed: Ptp,
}

impl Netkit {
    /// Reads the configuration. Precedence of the hardware address: config < `CNI_ARGS` <
    /// `args.cni` < `runtimeConfig`.
    pub fn parse(conf: &NetConf, args: &str) -> Result<Self, Error> {
        let json = &conf.json;
        let own = interface::mac_of_conf(conf)?;
        let from_args = interface::mac_of_args(args)?;
        let mac = interface::mac_of_runtime(conf)?
            .or(interface::mac_of_cni_args(conf)?)
            .or(from_args)
            .or(own);
        let device = Device::netkit(json, NetkitMode::L3)?;
        refuse_mac(device, mac)?;
        let mut routed = Ptp::parse(conf)?;
        (routed.device, routed.mac) = (device, mac);
        Ok(Self { routed })
    }

    /// Plans the pair without addresses, both ends up.
    fn bare(&self, call: &Call<'_>) -> Planned {
        let Ptp { device, mtu, .. } = self.routed;
        let (port, pod_mac) = (LinkRef::host(device.host(call)), self.routed.pod_mac(call));
        let steps = vec![
            device.add(
                call,
                Ends {
                    mtu,
                    master: None,
                    pod_mac,
                },
            ),
            Step::add(interface::without_advertisements(&port)),
            call.mark(port.clone()),
            interface::up(&port),
            interface::up(&call.pod()),
            Step::Wait(Event::Up(port)),
        ];
        let interfaces = device.interfaces(call, pod_mac).into();
        let dns = self.routed.dns.clone().unwrap_or_default();
        Planned {
            steps,
            result: AddResult {
                interfaces,
                dns,
                ..AddResult::default()
            },
            warnings: Vec::new(),
        }
    }
}

/// Refuses a hardware address for a device without one.
fn refuse_mac(device: Device, mac: Option<Mac>) -> Result<(), Error> {
    match (device, mac) {
        (Device::Netkit(NetkitMode::L3), Some(mac)) => Err(Error::config(format!(
            "\"mac\": {mac} can't be set: a netkit of mode l3 has no hardware address"
        ))
        .at_key("mac")),
        (Device::Veth | Device::Netkit(_), _) => Ok(()),
    }
}

impl Plugin for Netkit {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        self.routed.needs(call)
    }

    fn gateway_at(&self, call: &Call<'_>) -> Option<LinkRef> {
        self.routed.gateway_at(call)
    }

    fn needs_of(&self, lease: &Lease) -> Vec<Need> {
        self.routed.needs_of(lease)
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.routed.refuse(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        match lease {
            Some(lease) => self.routed.plan(call, facts, Some(lease)),
            None => Ok(self.bare(call)),
        }
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        self.routed.teardown_without_record(call)
    }

    fn features(&self) -> Vec<Feature> {
        self.routed.features()
    }

    fn kind(&self) -> Option<&'static str> {
        self.routed.kind()
    }
}
