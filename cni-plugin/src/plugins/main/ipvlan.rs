//! `ipvlan`: a child of a link that shares its parent's hardware address.

use super::child::{Child, Parent};
use crate::cni::{AddResult, Dns, Error, Interface, NetConf};
use crate::ipam::Lease;
use crate::plan::step::Step;
use crate::plan::thing::link::IpvlanMode;
use crate::plan::thing::{Link, LinkKind};
use crate::plan::{Facts, Feature, IfName, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Planned, Plugin, mtu};

/// An `ipvlan` configuration.
#[derive(Debug)]
pub struct Ipvlan {
    parent: Parent,
    mode: IpvlanMode,
    mtu: Option<i64>,
    dns: Option<Dns>,
}

impl Ipvlan {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        Ok(Self {
            parent: Parent::parse(json)?,
            mode: mode(json.str_or("mode", "")?)?,
            mtu: mtu::read(json)?,
            dns: conf.dns.clone(),
        })
    }

    /// The parent: without `master`, the only interface of `prevResult`, where there is one.
    fn parent(&self, call: &Call<'_>) -> Result<Parent, Error> {
        let mut parent = self.parent.clone();
        if let (None, Some(prev)) = (&parent.name, call.prev) {
            parent.name = only_interface(prev)?;
        }
        Ok(parent)
    }
}

fn only_interface(prev: &AddResult) -> Result<Option<IfName>, Error> {
    match prev.interfaces.as_slice() {
        [only] if !only.name.is_empty() => {
            let name = IfName::parse(&only.name);
            name.map(Some).map_err(|err| Error::config(format!("prevResult interface {:?}: {err}", only.name)))
        }
        _ => Err(Error::config("chained master failure. PrevResult lacks a single named interface")),
    }
}

fn mode(text: &str) -> Result<IpvlanMode, Error> {
    Ok(match text {
        "" | "l2" => IpvlanMode::L2,
        "l3" => IpvlanMode::L3,
        "l3s" => IpvlanMode::L3s,
        _ => return Err(Error::config(format!("unknown ipvlan mode: {text:?}"))),
    })
}

impl Plugin for Ipvlan {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let parent = self.parent(call).ok();
        parent.map(|parent| parent.need()).into_iter().chain([Need::Link(call.pod())]).collect()
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.parent(call)?.mtu(self.mtu, Child::Ipvlan, &[], facts)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        let (parent, parent_fact) = self.parent(call)?.find(facts)?;
        let given = lease.or_else(|| {
            // A chained ipvlan without an IPAM of its own takes over what the plugin before it got.
            let prev = call.prev.filter(|prev| !prev.ips.is_empty())?;
            Some(Lease { ips: prev.ips.clone(), routes: prev.routes.clone(), ..Lease::default() })
        });
        let Lease { mut ips, routes, .. } =
            given.ok_or_else(|| Error::config("\"ipam\": ipvlan needs an IPAM type or addresses in prevResult"))?;
        interface::refuse_no_addresses(&ips)?;
        for ip in &mut ips {
            ip.interface = Some(0);
        }
        let mut steps = vec![Step::add(Link {
            at: call.pod(),
            mac: None,
            mtu: self.parent(call)?.mtu(self.mtu, Child::Ipvlan, &ips, facts)?,
            up: false,
            master: None,
            kind: LinkKind::Ipvlan { parent, mode: self.mode },
        })];
        // Layer 3 modes have no neighbours, so nobody could answer.
        let dad = if self.mode == IpvlanMode::L2 { Dad::On } else { Dad::Off };
        steps.extend(interface::configure(&call.pod(), &ips, &routes, dad));
        steps.extend(interface::settle(&call.pod(), &ips, dad));
        let interface = Interface {
            name: call.ifname.to_string(),
            mac: parent_fact.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            sandbox: call.sandbox.to_owned(),
            ..Interface::default()
        };
        let dns = self.dns.clone().unwrap_or_default();
        let result = AddResult { interfaces: vec![interface], ips, routes, dns };
        Ok(Planned { steps, result, warnings: Vec::new() })
    }

    fn remnants(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Ipvlan]
    }

    /// Without `master` the parent was an interface of a result that is no more.
    fn is_told(&self) -> bool {
        self.parent.name.is_some()
    }

    fn kind(&self) -> Option<&'static str> {
        Some("ipvlan")
    }

    fn status_needs(&self) -> Vec<Need> {
        self.parent.status_need().into_iter().collect()
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        self.parent.status(facts).map(|()| None)
    }
}
