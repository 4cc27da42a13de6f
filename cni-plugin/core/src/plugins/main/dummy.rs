//! `dummy`: an interface with addresses and no connection.

use crate::cni::Error;
use crate::ipam::Lease;
use crate::plan::step::Step;
use crate::plan::thing::{Link, LinkKind};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink};

/// A `dummy` configuration, which has no keys.
#[derive(Debug)]
pub struct Dummy;

impl Plugin for Dummy {
    fn addresses(&self) -> Addresses {
        Addresses::Required
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        vec![Need::Link(call.pod())]
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        interface::refuse_taken(call, facts)
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Err("it drops all packets")
    }

    /// Plans the link. As in the reference plugin, `dns` comes from the IPAM.
    fn plan(
        &self,
        call: &Call<'_>,
        _facts: &Facts,
        lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let (at, mac) = (call.pod(), call.pod_mac());
        let link = Link {
            at,
            mac: Some(mac),
            mtu: None,
            up: false,
            master: None,
            kind: LinkKind::Dummy,
        };
        let dns = lease
            .as_ref()
            .map(|lease| lease.dns.clone())
            .unwrap_or_default();
        // A dummy has no neighbours that could answer.
        let linked = Linked::new(call, mac.to_string(), vec![Step::add(link)]);
        let mut planned = linked.attached(call, lease, Dad::Off)?;
        planned.result.dns = dns;
        Ok(planned)
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn kind(&self) -> Option<&'static str> {
        Some("dummy")
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Dummy]
    }
}
