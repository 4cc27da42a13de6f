//! Addresses: which ones an attachment gets, and who remembers it. Configurations and ranges are in
//! braid-core.
//!
//! ```text
//!  host_local::Config ─► host_local::{book, store, index}: files ─┐
//!  static_ip::Config ─────────────────────────────────────────────┼─► Lease
//!  dhcp::Config ─► dhcp::call: a daemon ──────────────────────────┘
//! ```

pub mod dhcp;
mod host;
pub mod host_local;
pub mod liveness;

pub use braid_core::ipam::configuration::TYPES;
pub use host::Host;

use braid_core::cni::{AddResult, Error, NetConf, Owner};
use braid_core::ipam::configuration::Configuration;
use braid_core::ipam::{Claim, Lease, static_ip};
use std::fmt::Debug;
use std::net::IpAddr;

/// An IPAM that braid does itself, configured. Unless it says otherwise, it remembers nothing.
pub trait Ipam: Debug {
    /// True if its addresses come through the container's link: that is made first, and goes last.
    fn is_through_link(&self) -> bool {
        false
    }

    /// True if it may give an IPv6 address.
    fn has_ipv6(&self) -> bool;

    /// The same without IPv6; `None` where nothing is left.
    fn without_ipv6(&self) -> Option<Box<dyn Ipam>>;

    /// ADD: what `owner` gets. On an error nothing is held.
    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error>;

    /// ADD for a claim, which holds what it gets until it is deleted. One that keeps no leases has
    /// nothing to do with claims.
    fn reserve_claimed(
        &self,
        _claim: &Claim,
        owner: &Owner,
        host: Host<'_>,
    ) -> Result<Lease, Error> {
        self.reserve(owner, host)
    }

    /// The dry run: what [`Ipam::reserve`] would give a new owner now. Nothing is written, and
    /// nothing is held.
    fn peek(&self, host: Host<'_>) -> Result<Lease, Error>;

    /// CHECK: whether what ADD gave is still so.
    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        host: Host<'_>,
    ) -> Result<(), Error>;

    /// DEL: frees what `owner` holds and says what that was. Holding nothing is success.
    fn release(&self, _owner: &Owner, _host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        Ok(Vec::new())
    }

    /// GC: frees what is held by others than those `kept` and says what that was.
    fn gc(&self, _kept: Kept<'_>, _host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        Ok(Vec::new())
    }

    /// STATUS: whether an ADD could be served, as far as the host has a part in it; what is full is
    /// said and is no failure.
    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// The configuration of one that keeps its leases as `host-local` does.
    fn as_host_local(&self) -> Option<&host_local::Config> {
        None
    }
}

/// Owners whose leases GC keeps.
#[derive(Debug, Clone, Copy)]
pub enum Kept<'a> {
    /// These.
    Listed(&'a [Owner]),
    /// All that are not surely gone.
    NotGone,
}

/// Reads the configuration for the IPAM of this `type`; `None` if the type is not one of ours.
pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Box<dyn Ipam>>, Error> {
    Ok(Configuration::parse(kind, conf, cni_args)?.map(verbs))
}

/// [`parse`] for DEL: only what is needed to give back.
pub fn parse_for_release(kind: &str, conf: &NetConf) -> Result<Option<Box<dyn Ipam>>, Error> {
    Ok(Configuration::parse_for_release(kind, conf)?.map(verbs))
}

fn verbs(configuration: Configuration) -> Box<dyn Ipam> {
    match configuration {
        Configuration::Dhcp(config) => Box::new(config),
        Configuration::HostLocal(config) => Box::new(config),
        Configuration::Static(config) => Box::new(config),
    }
}

impl Ipam for static_ip::Config {
    fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|ip| ip.address.addr().is_ipv6())
    }

    fn without_ipv6(&self) -> Option<Box<dyn Ipam>> {
        let mut config = self.clone();
        config.addresses.retain(|ip| ip.address.addr().is_ipv4());
        config.routes.retain(|route| route.dst.addr().is_ipv4());
        if config.addresses.is_empty() {
            None
        } else {
            Some(Box::new(config))
        }
    }

    fn reserve(&self, _owner: &Owner, _host: Host<'_>) -> Result<Lease, Error> {
        Ok(self.lease())
    }

    fn peek(&self, _host: Host<'_>) -> Result<Lease, Error> {
        Ok(self.lease())
    }

    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        _host: Host<'_>,
    ) -> Result<(), Error> {
        self.check_gateways(prev_result, &owner.ifname)
    }
}
