//! The `Plugin` trait: needs, refusals and plan.

use super::Call;
use super::planned::{Linked, Planned};
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

    /// Returns the host link that carries the container's gateways. IPv6 must be enabled on it.
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
    /// `None` if it keeps the address.
    fn mac(&self) -> Option<Mac> {
        None
    }

    /// Plans the steps and the result of an ADD.
    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error>;

    /// Returns the two parts of the plan, for an IPAM that acquires addresses through the new link;
    /// the error is the reason why no DHCP server can answer there.
    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Err("it connects only to this node")
    }

    /// Returns the steps that delete an attachment without a record, from names alone.
    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step>;

    /// Returns the kind of the container's interface, for CHECK; `None` if the plugin creates none.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// True if the plugin provides the container's interface, of one kind or of any.
    fn makes_interface(&self) -> bool {
        self.kind().is_some()
    }

    /// True if configuration and result suffice to check an attachment, also one that another
    /// program made.
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

    /// Checks the facts of [`Plugin::status_needs`]. Returns a warning for the operator if an ADD
    /// will work nevertheless.
    fn status(&self, _facts: &Facts) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

/// A plugin behind whose new link a DHCP server may answer. Its plan has two parts, and the second
/// takes the first, so that they cannot disagree about the link.
pub trait ThroughLink: Debug {
    /// Plans the link.
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error>;

    /// Adds the steps for the addresses of `lease` to those of the link. `facts` are those before
    /// the link, also if it exists by now.
    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error>;
}
