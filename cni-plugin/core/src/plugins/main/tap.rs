//! `tap`: an interface with a program, for example a virtual machine, at its other end.

use crate::cni::{Dns, Error, NetConf};
use crate::ipam::Lease;
use crate::name::{IfName, LinkName, Mac, Ns};
use crate::plan::step::Step;
use crate::plan::thing::link::{TAP_MTUS, Tap};
use crate::plan::thing::{Link, LinkKind};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};

/// A `tap` configuration.
#[derive(Debug)]
pub struct TapConf {
    tap: Tap,
    mac: Option<Mac>,
    mtu: Option<i64>,
    /// Bridge in the container that takes the interface as a port.
    bridge: Option<LinkName>,
    dns: Option<Dns>,
}

impl TapConf {
    /// Reads the configuration. Precedence of the hardware address: config < `CNI_ARGS` <
    /// `runtimeConfig`.
    pub fn parse(conf: &NetConf, args: &str) -> Result<Self, Error> {
        let json = &conf.json;
        let own = interface::mac_of_conf(conf)?;
        let from_args = interface::mac_of_args(args)?;
        let (owner, group) = (json.u32("owner")?, json.u32("group")?);
        let context = json.text("selinuxContext")?;
        if let Some(context) = context
            && context.contains(|c: char| c.is_control() || c.is_whitespace())
        {
            return Err(Error::config(format!(
                "\"selinuxContext\": {context:?} is not an SELinux context"
            ))
            .at_key("selinuxContext"));
        }
        let tap = Tap {
            owner,
            group,
            multi_queue: json.bool_or("multiQueue", false)?,
            // Like the reference plugin, which creates the tap itself if both are given, otherwise
            // runs `ip`.
            vnet_hdr: owner.is_some() && group.is_some() && context.is_none(),
            context: context.map(str::to_owned),
        };
        Ok(Self {
            tap,
            mac: interface::mac_of_runtime(conf)?.or(from_args).or(own),
            mtu: mtu::read(json)?,
            bridge: interface::link_name(json, "bridge")?,
            dns: conf.dns.clone(),
        })
    }

    fn mtu(&self, lease: Option<&Lease>) -> Result<Option<u32>, Error> {
        let mtu = mtu::optional_within(self.mtu, &TAP_MTUS, "")?;
        mtu::refuse_ipv6_below(mtu, lease.map_or(&[], |lease| &lease.ips))?;
        Ok(mtu)
    }

    /// Returns the bridge's primary name; `None` if no bridge is configured. The configuration may
    /// have an alternative name of the bridge.
    fn bridge(&self, facts: &Facts) -> Result<Option<IfName>, Error> {
        let Some(bridge) = &self.bridge else {
            return Ok(None);
        };
        let at = facts.place_of(Ns::Pod, bridge);
        match at.as_ref().and_then(|at| facts.link(at)) {
            Some(fact) if fact.kind == "bridge" => Ok(at.map(|at| at.name)),
            Some(_) => Err(Error::internal(format!(
                "{:?} in the container is not a bridge",
                bridge.as_str()
            ))),
            None => Err(Error::internal(format!(
                "failed to get bridge {:?}: no such link in pod",
                bridge.as_str()
            ))),
        }
    }
}

impl Plugin for TapConf {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        if let Some(bridge) = &self.bridge {
            needs.push(Need::NamedLink(Ns::Pod, bridge.clone()));
        }
        needs.push(Need::Link(call.pod()));
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.mtu(None)?;
        self.bridge(facts)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        let mtu = self.mtu(lease.as_ref())?;
        let mac = self.mac.unwrap_or_else(|| call.pod_mac());
        let (at, master, kind) = (
            call.pod(),
            self.bridge(facts)?,
            LinkKind::Tap(self.tap.clone()),
        );
        let steps = vec![Step::add(Link {
            at,
            mac: Some(mac),
            mtu,
            up: false,
            master,
            kind,
        })];
        let linked = Linked::new(call, mac.to_string(), steps);
        // Addresses are not probed before a program opens the tap, so no step waits for the
        // detection.
        let mut planned = linked.attached(call, lease, Dad::On)?;
        planned.result.dns = self.dns.clone().unwrap_or_default();
        Ok(planned)
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Err("the program that serves it has not opened it yet")
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn kind(&self) -> Option<&'static str> {
        Some("tun")
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Tun]
    }
}
