//! The `Plugin` trait: the facts that a plugin needs, the calls that it refuses, and its plan.

use super::Call;
use super::planned::{Adjustment, Linked, Planned};
use crate::cni::Error;
use crate::ipam::Lease;
use crate::name::Mac;
use crate::plan::thing::LinkRef;
use crate::plan::{Facts, Feature, Need, Step};
use std::fmt::Debug;

/// Need of a plugin for addresses from an IPAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// Uses no address.
    Never,
    /// Works without addresses, as a layer 2 interface.
    Optional,
    /// Requires an address.
    Required,
}

/// A parsed plugin configuration.
pub trait Plugin: Debug {
    /// Returns the need for addresses, which decides if an IPAM is called.
    fn addresses(&self) -> Addresses {
        Addresses::Never
    }

    /// Returns the facts needed before [`Plugin::refuse`] and [`Plugin::plan`].
    fn needs(&self, call: &Call<'_>) -> Vec<Need>;

    /// Refuses a call that can't work on this host, before an address is reserved.
    fn refuse(&self, _call: &Call<'_>, _facts: &Facts) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the host link that carries the container's gateways, if there is one. IPv6 must be
    /// enabled on that link.
    fn gateway_at(&self, _call: &Call<'_>) -> Option<LinkRef> {
        None
    }

    /// Returns further facts needed before [`Plugin::plan`], once the addresses are known.
    fn needs_of(&self, _lease: &Lease) -> Vec<Need> {
        Vec::new()
    }

    /// Changes the steps that earlier plugins of the network add to the same plan. Returns true if
    /// it changed any.
    fn amend(&self, _call: &Call<'_>, _facts: &Facts, _earlier: &mut [Step]) -> bool {
        false
    }

    /// Returns the hardware address that this plugin sets on the interface of an earlier plugin;
    /// `None` if the plugin does not change the address.
    fn mac(&self) -> Option<Mac> {
        None
    }

    /// Plans the steps and the result of an ADD.
    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error>;

    /// True if [`Plugin::adjust`] can change the state that the steps `present` have created.
    fn adjusts(&self, _present: &[Step]) -> bool {
        false
    }

    /// Plans the change of the state that the steps `present` have created to the state that the
    /// configuration requests. `facts` answer [`Plugin::needs`].
    fn adjust(
        &self,
        _call: &Call<'_>,
        _facts: &Facts,
        _present: &[Step],
    ) -> Result<Adjustment, Error> {
        Err(Error::internal("the plugin does not change in place"))
    }

    /// Returns the plugin as a [`ThroughLink`], for an IPAM that acquires addresses through the new
    /// link. The error is the reason why no DHCP server can answer on that link.
    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Err("it connects only to this node")
    }

    /// True if other hosts can answer probes for an address through the new link.
    fn can_probe(&self) -> bool {
        self.through_link().is_ok()
    }

    /// Returns the steps with which a DEL without a record deletes an attachment. The steps follow
    /// from the configuration and the names in `call`.
    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step>;

    /// Returns the kernel's link kind of the container's interface, for CHECK; `None` if the plugin
    /// creates no interface.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// True if the plugin creates the container's interface or moves one into the container.
    fn makes_interface(&self) -> bool {
        self.kind().is_some()
    }

    /// True if CHECK needs only the configuration and `prevResult`. CHECK then also works for an
    /// attachment without a record, for example from another program.
    fn is_reconstructible(&self) -> bool {
        true
    }

    /// Returns the kernel features that an ADD requires, for STATUS.
    fn features(&self) -> Vec<Feature> {
        Vec::new()
    }

    /// Returns the facts that STATUS checks because an ADD depends on them.
    fn status_needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Checks the facts of [`Plugin::status_needs`]. Returns an error if an ADD would fail, and a
    /// warning for the operator if an ADD would work nevertheless.
    fn status(&self, _facts: &Facts) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

/// A plugin that creates a link through which a DHCP server or other hosts may be reached. Its plan has two parts:
/// the link, then the addresses. The second part takes the first as an argument, so the two can't
/// disagree about the link.
pub trait ThroughLink: Debug {
    /// True if there will be a link. Without one, a user-space program drives the device.
    fn has_link(&self, _facts: &Facts) -> bool {
        true
    }

    /// Plans the link.
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error>;

    /// Adds the steps for the addresses of `lease` to the steps in `linked`. `facts` were read
    /// before the link was created, even if the link exists by now.
    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error>;
}
