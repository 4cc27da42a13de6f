//! Children of a link: `macvlan`, `ipvlan` and `vlan`. The parent is found by name or by the
//! default route, on the host or in the container.

use crate::cni::{AddResult, Dns, Error, Json, NetConf};
use crate::ipam::Lease;
use crate::name::{IfName, LinkName, Mac, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::Step;
use crate::plan::thing::link::{ETHERNET_MTUS, IpvlanMode, MacvlanMode};
use crate::plan::thing::{Link, LinkKind, LinkRef};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};

/// A `macvlan`, `ipvlan` or `vlan` configuration.
#[derive(Debug)]
pub struct Child {
    /// `master`: a name or an alternative name.
    parent: Option<LinkName>,
    /// Namespace of the parent: `linkInContainer`.
    ns: Ns,
    kind: ChildKind,
    mtu: Option<i64>,
    dns: Option<Dns>,
}

/// Type of the child, with the settings that only this type has.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChildKind {
    /// Has a separate hardware address, and at most its parent's MTU.
    Macvlan {
        mode: MacvlanMode,
        mac: Option<Mac>,
        /// `bcqueuelen` in packets; `None` means the kernel's default.
        bc_queue_len: Option<u32>,
    },
    /// Has its parent's hardware address, and any MTU.
    Ipvlan { mode: IpvlanMode },
    /// Has its parent's hardware address, and at most its parent's MTU.
    Vlan { id: u16 },
}

impl Child {
    pub(super) fn parse(conf: &NetConf, kind: ChildKind) -> Result<Self, Error> {
        let json: &Json = &conf.json;
        let ns = if json.bool_or("linkInContainer", false)? {
            Ns::Pod
        } else {
            Ns::Host
        };
        let parent = interface::link_name(json, "master")?;
        Ok(Self {
            parent,
            ns,
            kind,
            mtu: mtu::read(json)?,
            dns: conf.dns.clone(),
        })
    }

    /// Returns the parent's name. An ipvlan without `master` takes the only interface of
    /// `prevResult`, if any.
    fn parent(&self, call: &Call<'_>) -> Result<Option<LinkName>, Error> {
        match (&self.parent, self.kind, call.prev) {
            (None, ChildKind::Ipvlan { .. }, Some(prev)) => Ok(Some(only_interface(prev)?.into())),
            (parent, ..) => Ok(parent.clone()),
        }
    }

    /// Returns the fact that [`Self::find`] needs. Without a name the parent is the link of the
    /// default route.
    fn need(&self, parent: Option<LinkName>) -> Need {
        match parent {
            Some(name) => Need::NamedLink(self.ns, name),
            None => Need::DefaultLink(self.ns),
        }
    }

    /// Returns the parent's namespace and name, and its fact. Without a name the parent is the link
    /// of the default route.
    fn find<'a>(
        &self,
        parent: Option<LinkName>,
        facts: &'a Facts,
    ) -> Result<(LinkRef, &'a LinkFact), Error> {
        let name = parent.or_else(|| facts.default_link(self.ns).cloned().map(LinkName::from));
        let name = name.ok_or_else(|| {
            Error::internal(format!("no default route interface found in {}", self.ns))
        })?;
        if let Some(at) = facts.place_of(self.ns, &name)
            && let Some(fact) = facts.link(&at)
        {
            return Ok((at, fact));
        }
        let name = name.as_str();
        Err(Error::internal(format!(
            "failed to lookup master {name:?}: no such link in {}",
            self.ns
        )))
    }

    /// Refuses a VLAN on a parent that is down, because the VLAN could not come up. A macvlan or an
    /// ipvlan can come up on such a parent.
    fn refuse_down(&self, parent: Option<LinkName>, facts: &Facts) -> Result<(), Error> {
        let (at, fact) = self.find(parent, facts)?;
        if matches!(self.kind, ChildKind::Vlan { .. }) && !fact.up {
            return Err(Error::internal(format!(
                "master {:?} is down, so no VLAN of it can come up",
                at.name.as_str()
            )));
        }
        Ok(())
    }

    /// Returns the requested MTU; `None` means the parent's MTU. An MTU outside the bounds of the
    /// type, or too small for an IPv6 address of the lease, is an error.
    fn mtu(
        &self,
        call: &Call<'_>,
        lease: Option<&Lease>,
        facts: &Facts,
    ) -> Result<Option<u32>, Error> {
        let (at, parent) = self.find(self.parent(call)?, facts)?;
        let (bounds, whose) = match self.kind {
            ChildKind::Macvlan { .. } | ChildKind::Vlan { .. } => (
                *ETHERNET_MTUS.start()..=parent.mtu,
                format!(", the MTU of master {:?}", at.name.as_str()),
            ),
            ChildKind::Ipvlan { .. } => (ETHERNET_MTUS, String::new()),
        };
        let mtu = mtu::optional_within(self.mtu, &bounds, &whose)?;
        mtu::refuse_ipv6_below(
            mtu.or(Some(parent.mtu)),
            lease.map_or(&[], |lease| &lease.ips),
        )?;
        Ok(mtu)
    }

    /// Returns the lease to apply; `None` for a child without addresses. An ipvlan requires
    /// addresses. Without an IPAM, an ipvlan takes over the addresses in `prevResult`.
    fn lease(&self, call: &Call<'_>, lease: Option<Lease>) -> Result<Option<Lease>, Error> {
        let given = match self.kind {
            ChildKind::Macvlan { .. } | ChildKind::Vlan { .. } => lease,
            ChildKind::Ipvlan { .. } => {
                let lease = lease.or_else(|| taken_over(call.prev?));
                let none = || {
                    Error::config("\"ipam\": ipvlan needs an IPAM type or addresses in prevResult")
                };
                Some(lease.ok_or_else(none)?)
            }
        };
        if let Some(lease) = &given {
            interface::refuse_no_addresses(&lease.ips)?;
        }
        Ok(given)
    }

    /// Returns the mode of duplicate address detection.
    fn dad(&self) -> Dad {
        match self.kind {
            ChildKind::Macvlan { .. }
            | ChildKind::Ipvlan {
                mode: IpvlanMode::L2,
            }
            | ChildKind::Vlan { .. } => Dad::On,
            // Layer 3 modes have no neighbours that could answer.
            ChildKind::Ipvlan {
                mode: IpvlanMode::L3 | IpvlanMode::L3s,
            } => Dad::Off,
        }
    }

    /// Returns the hardware address that the child will have, the hardware address to request from
    /// the kernel, and the link kind with its parent.
    fn link(
        &self,
        call: &Call<'_>,
        parent: LinkRef,
        fact: &LinkFact,
    ) -> (Option<Mac>, Option<Mac>, LinkKind) {
        match self.kind {
            ChildKind::Macvlan {
                mode,
                mac: asked,
                bc_queue_len,
            } => {
                // The kernel gives a child in passthru mode its parent's address and accepts no
                // other.
                let is_through = mode == MacvlanMode::Passthru;
                let inherited = if is_through { fact.mac } else { None };
                let mac = asked.or(inherited).unwrap_or_else(|| call.pod_mac());
                let told = if is_through { asked } else { Some(mac) };
                (
                    Some(mac),
                    told,
                    LinkKind::Macvlan {
                        parent,
                        mode,
                        bc_queue_len,
                    },
                )
            }
            ChildKind::Ipvlan { mode } => (fact.mac, None, LinkKind::Ipvlan { parent, mode }),
            ChildKind::Vlan { id } => (fact.mac, None, LinkKind::Vlan { parent, id }),
        }
    }
}

/// Returns the addresses and routes of `prevResult`; `None` without an address.
fn taken_over(prev: &AddResult) -> Option<Lease> {
    if prev.ips.is_empty() {
        return None;
    }
    Some(Lease {
        ips: prev.ips.clone(),
        routes: prev.routes.clone(),
        ..Lease::default()
    })
}

fn only_interface(prev: &AddResult) -> Result<IfName, Error> {
    match prev.interfaces.as_slice() {
        [only] if !only.name.is_empty() => IfName::parse(&only.name)
            .map_err(|err| Error::config(format!("prevResult interface {:?}: {err}", only.name))),
        _ => Err(Error::config(
            "chained master failure. PrevResult lacks a single named interface",
        )),
    }
}

impl ThroughLink for Child {
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error> {
        let (parent, fact) = self.find(self.parent(call)?, facts)?;
        let mtu = self.mtu(call, None, facts)?;
        let (mac, told, kind) = self.link(call, parent, fact);
        let made = vec![Step::add(Link {
            at: call.pod(),
            mac: told,
            mtu,
            up: false,
            master: None,
            kind,
        })];
        let mac = mac.map(|mac| mac.to_string()).unwrap_or_default();
        Ok(Linked::new(call, mac, made))
    }

    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        self.mtu(call, lease.as_ref(), facts)?;
        let mut planned = linked.attached(call, lease, self.dad())?;
        let settle = interface::settle(&call.pod(), &planned.result.ips, self.dad());
        planned.steps.extend(settle);
        planned.result.dns = self.dns.clone().unwrap_or_default();
        Ok(planned)
    }
}

impl Plugin for Child {
    fn addresses(&self) -> Addresses {
        match self.kind {
            ChildKind::Macvlan { .. } | ChildKind::Ipvlan { .. } => Addresses::Optional,
            ChildKind::Vlan { .. } => Addresses::Required,
        }
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        if let Ok(parent) = self.parent(call) {
            needs.push(self.need(parent));
        }
        needs.push(Need::Link(call.pod()));
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.mtu(call, None, facts)?;
        self.refuse_down(self.parent(call)?, facts)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        let lease = self.lease(call, lease)?;
        self.complete(call, facts, self.plan_link(call, facts)?, lease)
    }

    /// False for an ipvlan: the kernel passes it only answers to its addresses, and it has none yet.
    fn can_probe(&self) -> bool {
        !matches!(self.kind, ChildKind::Ipvlan { .. })
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        match self.kind {
            ChildKind::Macvlan { .. }
            | ChildKind::Vlan { .. }
            | ChildKind::Ipvlan {
                mode: IpvlanMode::L2,
            } => Ok(self),
            ChildKind::Ipvlan {
                mode: IpvlanMode::L3 | IpvlanMode::L3s,
            } => Err("in layer 3 it carries no broadcast"),
        }
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn features(&self) -> Vec<Feature> {
        match self.kind {
            ChildKind::Macvlan { .. } => vec![Feature::Macvlan],
            ChildKind::Ipvlan { .. } => vec![Feature::Ipvlan],
            ChildKind::Vlan { .. } => vec![Feature::Vlan],
        }
    }

    fn kind(&self) -> Option<&'static str> {
        match self.kind {
            ChildKind::Macvlan { .. } => Some("macvlan"),
            ChildKind::Ipvlan { .. } => Some("ipvlan"),
            ChildKind::Vlan { .. } => Some("vlan"),
        }
    }

    /// False for an ipvlan without `master`: its parent's name was in a `prevResult` that is no
    /// longer available.
    fn is_reconstructible(&self) -> bool {
        !matches!(self.kind, ChildKind::Ipvlan { .. }) || self.parent.is_some()
    }

    /// Returns the need for the parent, because every ADD requires the parent. Empty for a parent
    /// in the container, which does not exist yet.
    fn status_needs(&self) -> Vec<Need> {
        match self.ns {
            Ns::Host => vec![self.need(self.parent.clone())],
            Ns::Pod => Vec::new(),
        }
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        match self.ns {
            Ns::Host => match self.refuse_down(self.parent.clone(), facts) {
                Ok(()) => Ok(None),
                Err(err) => Err(Error::not_available(err.msg)),
            },
            Ns::Pod => Ok(None),
        }
    }
}
