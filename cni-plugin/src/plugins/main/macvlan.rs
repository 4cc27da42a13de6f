//! `macvlan`: a child of a link, with a hardware address of its own.

use super::child::{Child, Parent};
use crate::cni::{AddResult, Dns, Error, Interface, NetConf};
use crate::ipam::Lease;
use crate::plan::step::Step;
use crate::plan::thing::link::MacvlanMode;
use crate::plan::thing::{Link, LinkKind};
use crate::plan::{Facts, Feature, Mac, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Planned, Plugin, mtu};

/// A `macvlan` configuration.
#[derive(Debug)]
pub struct Macvlan {
    parent: Parent,
    mode: MacvlanMode,
    mtu: Option<i64>,
    mac: Option<Mac>,
    /// `bcqueuelen` in packets; 0 means the kernel's default.
    bc_queue_len: Option<u32>,
    dns: Option<Dns>,
}

impl Macvlan {
    /// Reads the configuration; config < `CNI_ARGS` < `runtimeConfig` for the hardware address.
    pub fn parse(conf: &NetConf, args: &str) -> Result<Self, Error> {
        let json = &conf.json;
        let own = json.str("mac")?.filter(|mac| !mac.is_empty()).map(|text| interface::mac("mac", text)).transpose()?;
        let from_args = interface::mac_of_args(args)?;
        Ok(Self {
            parent: Parent::parse(json)?,
            mode: mode(json.str_or("mode", "")?)?,
            mtu: mtu::read(json)?,
            mac: interface::mac_of_runtime(conf)?.or(from_args).or(own),
            bc_queue_len: json.u32("bcqueuelen")?.filter(|len| *len > 0),
            dns: conf.dns.clone(),
        })
    }

    fn pod_mac(&self, call: &Call<'_>, facts: &Facts) -> Result<Mac, Error> {
        // In passthru mode the child has its parent's address: the kernel gives it, and takes no other for it.
        let inherited = match self.mode {
            MacvlanMode::Passthru => self.parent.find(facts)?.1.mac,
            _ => None,
        };
        Ok(self.mac.or(inherited).unwrap_or_else(|| call.pod_mac()))
    }
}

fn mode(text: &str) -> Result<MacvlanMode, Error> {
    Ok(match text {
        "" | "bridge" => MacvlanMode::Bridge,
        "private" => MacvlanMode::Private,
        "vepa" => MacvlanMode::Vepa,
        "passthru" => MacvlanMode::Passthru,
        _ => return Err(Error::config(format!("unknown macvlan mode: {text:?}"))),
    })
}

impl Plugin for Macvlan {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        vec![self.parent.need(), Need::Link(call.pod())]
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.parent.mtu(self.mtu, Child::Macvlan, &[], facts)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        let (parent, _) = self.parent.find(facts)?;
        let mac = self.pod_mac(call, facts)?;
        let explicit = Some(mac).filter(|_| self.mode != MacvlanMode::Passthru || self.mac.is_some());
        let mut steps = vec![Step::add(Link {
            at: call.pod(),
            mac: explicit,
            mtu: self.parent.mtu(self.mtu, Child::Macvlan, lease.as_ref().map_or(&[], |lease| &lease.ips), facts)?,
            up: false,
            master: None,
            kind: LinkKind::Macvlan { parent, mode: self.mode, bc_queue_len: self.bc_queue_len },
        })];
        let interface = Interface {
            name: call.ifname.to_string(),
            mac: mac.to_string(),
            sandbox: call.sandbox.to_owned(),
            ..Interface::default()
        };
        let mut result = AddResult { interfaces: vec![interface], ..AddResult::default() };
        if let Some(Lease { mut ips, routes, .. }) = lease {
            interface::refuse_no_addresses(&ips)?;
            for ip in &mut ips {
                ip.interface = Some(0);
            }
            steps.extend(interface::configure(&call.pod(), &ips, &routes, Dad::On));
            steps.extend(interface::settle(&call.pod(), &ips, Dad::On));
            (result.ips, result.routes) = (ips, routes);
        } else {
            steps.push(interface::up(&call.pod()));
        }
        result.dns = self.dns.clone().unwrap_or_default();
        Ok(Planned { steps, result, warnings: Vec::new() })
    }

    fn remnants(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Macvlan]
    }

    fn kind(&self) -> Option<&'static str> {
        Some("macvlan")
    }

    fn status_needs(&self) -> Vec<Need> {
        self.parent.status_need().into_iter().collect()
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        self.parent.status(facts).map(|()| None)
    }
}
