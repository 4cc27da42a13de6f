//! What macvlan and ipvlan share: a parent link, by name or by default route, on the host or in the container.

use crate::cni::{Error, IpConfig, Json};
use crate::plan::facts::LinkFact;
use crate::plan::step::Ns;
use crate::plan::thing::LinkRef;
use crate::plan::thing::link::ETHERNET_MTUS;
use crate::plan::{Facts, IfName, Need};
use crate::plugins::{interface, mtu};

/// Kind of a child. The kernel gives a macvlan no larger MTU than its parent's, and an ipvlan any.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    Macvlan,
    Ipvlan,
}

/// The keys `master` and `linkInContainer`.
#[derive(Debug, Clone)]
pub(super) struct Parent {
    pub(super) name: Option<IfName>,
    ns: Ns,
}

impl Parent {
    pub(super) fn parse(json: &Json) -> Result<Self, Error> {
        let ns = if json.bool_or("linkInContainer", false)? { Ns::Pod } else { Ns::Host };
        Ok(Self { name: interface::ifname(json, "master")?, ns })
    }

    /// What has to be read to find it.
    pub(super) fn need(&self) -> Need {
        match &self.name {
            Some(name) => Need::Link(LinkRef { ns: self.ns, name: name.clone() }),
            None => Need::DefaultLink(self.ns),
        }
    }

    /// Where it is, and what it is.
    pub(super) fn find<'a>(&self, facts: &'a Facts) -> Result<(LinkRef, &'a LinkFact), Error> {
        let name = self.name.as_ref().or_else(|| facts.default_links.get(&self.ns));
        let name = name.ok_or_else(|| Error::internal(format!("no default route interface found in {}", self.ns)))?;
        let at = LinkRef { ns: self.ns, name: name.clone() };
        match facts.link(&at) {
            Some(fact) => Ok((at, fact)),
            None => Err(Error::internal(format!(
                "failed to lookup master {:?}: no such link in {}",
                name.as_str(),
                self.ns
            ))),
        }
    }

    /// The MTU asked for, within the bounds of `kind`. A child without one of its own gets the parent's, which must do for
    /// `ips`.
    pub(super) fn mtu(
        &self,
        wanted: Option<i64>,
        kind: Child,
        ips: &[IpConfig],
        facts: &Facts,
    ) -> Result<Option<u32>, Error> {
        let (at, parent) = self.find(facts)?;
        let (bounds, whose) = match kind {
            Child::Macvlan => {
                (*ETHERNET_MTUS.start()..=parent.mtu, format!(", the MTU of master {:?}", at.name.as_str()))
            }
            Child::Ipvlan => (ETHERNET_MTUS, String::new()),
        };
        let mtu = wanted.map(|mtu| mtu::within(mtu, &bounds, &whose)).transpose()?;
        mtu::refuse_ipv6_below(mtu.or(Some(parent.mtu)), ips).map(|()| mtu)
    }

    /// STATUS: without its parent no ADD can work. A parent in the container is not there yet.
    pub(super) fn status_need(&self) -> Option<Need> {
        (self.ns == Ns::Host).then(|| self.need())
    }

    pub(super) fn status(&self, facts: &Facts) -> Result<(), Error> {
        match self.ns {
            Ns::Pod => Ok(()),
            Ns::Host => self.find(facts).map(drop).map_err(|err| Error::not_available(err.msg)),
        }
    }
}
