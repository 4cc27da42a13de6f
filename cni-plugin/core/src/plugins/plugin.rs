//! The interface of a plugin: its needs, its refusals and its plan.

use super::Call;
use crate::cni::{AddResult, Error};
use crate::ipam::Lease;
use crate::name::Mac;
use crate::plan::thing::LinkRef;
use crate::plan::{Facts, Feature, Need, Step};
use std::fmt::Debug;

/// A plugin's part of an ADD: its steps and its result.
#[derive(Debug, Default)]
pub struct Planned {
    /// The changes, in order.
    pub steps: Vec<Step>,
    /// The result after this plugin.
    pub result: AddResult,
    /// Warnings for the operator, which are no failure.
    pub warnings: Vec<String>,
}

/// A plugin's need of addresses from an IPAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// It has no use for one.
    Never,
    /// Layer 2 alone will do.
    Optional,
    /// It can't work without.
    Required,
}

/// A parsed plugin configuration.
pub trait Plugin: Debug {
    /// The need of addresses, which decides if an IPAM is called.
    fn addresses(&self) -> Addresses {
        Addresses::Never
    }

    /// The facts needed before [`Plugin::refuse`] and [`Plugin::plan`].
    fn needs(&self, call: &Call<'_>) -> Vec<Need>;

    /// Refuses what can't work on this host, before an address is reserved.
    fn refuse(&self, _call: &Call<'_>, _facts: &Facts) -> Result<(), Error> {
        Ok(())
    }

    /// The link of the host that carries the container's gateways, so that IPv6 has to be on there.
    fn gateway_at(&self, _call: &Call<'_>) -> Option<LinkRef> {
        None
    }

    /// The facts needed before [`Plugin::plan`], once the addresses are known.
    fn needs_of(&self, _lease: &Lease) -> Vec<Need> {
        Vec::new()
    }

    /// Changes what earlier plugins of the network are about to do in the same plan; says if it
    /// did.
    fn amend(&self, _call: &Call<'_>, _facts: &Facts, _earlier: &mut [Step]) -> bool {
        false
    }

    /// The hardware address that it gives the interface which an earlier plugin made; none if it
    /// leaves that as it is.
    fn mac(&self) -> Option<Mac> {
        None
    }

    /// Decides what to do.
    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error>;

    /// The reason why no DHCP server answers through the link that this makes; `None` where one
    /// may.
    fn dhcp_unsupported(&self) -> Option<&'static str> {
        Some("it leads to this node alone")
    }

    /// The plan without addresses, where they come through the link that this makes;
    /// [`Plugin::plan`] with them follows, and its steps for the link must be the same.
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Planned, Error> {
        self.plan(call, facts, None)
    }

    /// The steps that delete an attachment without a record, from names alone.
    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step>;

    /// The kind of the container's interface, for CHECK; `None` where the plugin made none.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// True if it makes the container's interface, of one kind or of any.
    fn makes_interface(&self) -> bool {
        self.kind().is_some()
    }

    /// True if configuration and result suffice to judge the attachment, also one that another
    /// plugin made.
    fn is_reconstructible(&self) -> bool {
        true
    }

    /// The features that an ADD asks of the kernel, for STATUS.
    fn features(&self) -> Vec<Feature> {
        Vec::new()
    }

    /// The facts that STATUS judges, on which an ADD depends.
    fn status_needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Judges those facts; returns a warning for the operator if an ADD will work nevertheless.
    fn status(&self, _facts: &Facts) -> Result<Option<String>, Error> {
        Ok(None)
    }
}
