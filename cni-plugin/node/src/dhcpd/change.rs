//! Changes of a lease's link: setting it up, deleting an expired address with its routes and rules,
//! adding the next address.

use super::lease::ServedLease;
use crate::apply::executor::{OnError, execute};
use crate::apply::observe::observe;
use crate::ipam::dhcp::link::ContainerLink;
use crate::kernel::Kernel;
use crate::sys::netns::NetNs;
use braid_core::cni::{IpConfig, Route};
use braid_core::plan::Facts;
use braid_core::plan::step::Step;
use braid_core::plan::thing::LinkRef;
use braid_core::plugins::interface;
use braid_core::plugins::readdress::{self, Routing};
use nix::errno::Errno;

impl ServedLease {
    /// Sets the link up.
    pub(super) fn set_up(&self, place: &ContainerLink) {
        self.on_link(place, |at, kernel| {
            self.apply(kernel, &[interface::up(at)]);
            Ok(())
        });
    }

    /// Deletes an address with its routes and rules from the link. Stores the routes and rules, so
    /// that they can be added again with the next address.
    pub(super) fn leave(&mut self, place: &ContainerLink, ip: &IpConfig, routes: &[Route]) {
        let mut left = None;
        self.on_link(place, |at, kernel| {
            let facts = facts(at, kernel)?;
            let routing = Routing::of(at, ip, routes, &facts);
            self.apply(kernel, &routing.leave(at));
            left = Some(routing);
            Ok(())
        });
        let Some(left) = left else { return };
        self.stored
            .lost
            .retain(|other| !other.is_same_family(&left));
        self.stored.lost.push(left);
    }

    /// Adds the lease's addresses to the link, in place of the expired ones.
    pub(super) fn arrive(&mut self, place: &ContainerLink) {
        let Ok(lease) = self.session.lease() else {
            return;
        };
        self.on_link(place, |at, kernel| {
            let facts = facts(at, kernel)?;
            self.apply(
                kernel,
                &readdress::arrive(at, &lease.ips, &lease.routes, &self.stored.lost, &facts),
            );
            Ok(())
        });
        self.stored.lost.clear();
    }

    fn on_link(
        &self,
        place: &ContainerLink,
        work: impl FnOnce(&LinkRef, &mut Kernel) -> Result<(), crate::Error>,
    ) {
        if let Err(err) = self.try_on_link(place, work) {
            self.report(format_args!("{err}"));
        }
    }

    fn try_on_link(
        &self,
        place: &ContainerLink,
        work: impl FnOnce(&LinkRef, &mut Kernel) -> Result<(), crate::Error>,
    ) -> Result<(), crate::Error> {
        let at = LinkRef::pod(place.link.ifname.clone());
        let netns = NetNs::open(place.path())?;
        let mut kernel = Kernel::open(Some(netns), self.log.clone())?;
        work(&at, &mut kernel)
    }

    fn apply(&self, kernel: &mut Kernel, steps: &[Step]) {
        for err in execute(kernel, steps, &Facts::default(), OnError::GoOn).errors {
            // EEXIST: another address with the same prefix already added this object.
            if !err.cause.is(&[Errno::EEXIST]) {
                self.report(format_args!("{err}"));
            }
        }
    }
}

fn facts(at: &LinkRef, kernel: &mut Kernel) -> Result<Facts, crate::Error> {
    let mut facts = observe(kernel, &readdress::needs(at))?;
    facts.merge(observe(kernel, &readdress::vrf_needs(&facts))?);
    Ok(facts)
}
