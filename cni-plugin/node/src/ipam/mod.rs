//! IPAM: reserving, checking and releasing the addresses of attachments. Configurations and ranges
//! are in braid-core.
//!
//! ```text
//!  HostLocalConfig ─► host_local::{book, store, index}: files ─┐
//!  StaticConfig ───────────────────────────────────────────────┼─► Lease
//!  DhcpConfig ─► dhcp::call: a daemon ─────────────────────────┤
//!  WhereaboutsConfig ─► whereabouts: journal, API server ──────┘
//! ```

pub mod dhcp;
mod flat_file;
mod host;
pub mod host_local;
pub mod link_probe;
pub mod liveness;
pub mod whereabouts;

pub use braid_core::ipam::configuration::TYPES;
pub use host::{Host, Prober};

use braid_core::cni::{AddResult, Error, NetConf, Owner};
use braid_core::ipam::configuration::Configuration;
use braid_core::ipam::{Claim, Lease, static_ip};
use std::fmt::Debug;
use std::net::IpAddr;

/// A configured IPAM that braid implements. The default methods are for an IPAM that stores no
/// leases.
pub trait Ipam: Debug {
    /// True if addresses come through the container's link: the link is created before `reserve`,
    /// and deleted after `release`.
    fn is_through_link(&self) -> bool {
        false
    }

    /// True if `reserve` asks the hosts on the container's link for addresses, with
    /// [`Host::prober`]. The link is then created before `reserve`, if its type allows it.
    fn probes(&self) -> bool {
        false
    }

    /// True if this configuration may assign an IPv6 address.
    fn has_ipv6(&self) -> bool;

    /// Returns this configuration without IPv6; `None` if it has no IPv4.
    fn without_ipv6(&self) -> Option<Box<dyn Ipam>>;

    /// ADD: reserves addresses for `owner`. After an error no address is reserved.
    fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error>;

    /// ADD for an IPAM claim, which keeps its addresses until the claim is deleted. The default is
    /// for an IPAM that stores no leases, and ignores the claim.
    fn reserve_claimed(
        &self,
        _claim: &Claim,
        owner: &Owner,
        host: Host<'_>,
    ) -> Result<Lease, Error> {
        self.reserve(owner, host)
    }

    /// True if claims keep their addresses.
    fn keeps_claims(&self) -> bool {
        false
    }

    /// DEL for the claim `owner`, which keeps its addresses.
    fn release_claimed(&self, _owner: &Owner, _host: Host<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the attachments of all networks with addresses in journals of this IPAM. Leases of
    /// host-local are in the folders of their networks instead.
    fn owners(&self) -> Result<Vec<Owner>, Error> {
        Ok(Vec::new())
    }

    /// Dry run: returns the lease that [`Ipam::reserve`] would give a new owner now. Writes and
    /// reserves nothing.
    fn peek(&self, host: Host<'_>) -> Result<Lease, Error>;

    /// CHECK: verifies that the addresses from ADD are still valid.
    fn check(
        &self,
        owner: &Owner,
        prev_result: Option<&AddResult>,
        host: Host<'_>,
    ) -> Result<(), Error>;

    /// DEL: releases the addresses of `owner` and returns them. An owner without addresses is a
    /// success.
    fn release(&self, _owner: &Owner, _host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        Ok(Vec::new())
    }

    /// GC: releases the addresses of owners outside `kept` and returns them.
    fn gc(&self, _kept: Kept<'_>, _host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        Ok(Vec::new())
    }

    /// STATUS: checks that this host can serve an ADD. Returns a message if a range is full, which
    /// is not a failure.
    fn status(&self, _host: Host<'_>) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Returns the `host-local` configuration if leases are stored in its format; `None` otherwise.
    fn as_host_local(&self) -> Option<&host_local::HostLocalConfig> {
        None
    }
}

/// Owners that keep their leases at GC.
#[derive(Debug, Clone, Copy)]
pub enum Kept<'a> {
    /// The listed owners.
    Listed(&'a [Owner]),
    /// Every owner that is not certainly gone.
    NotGone,
}

/// Parses the configuration for the IPAM `kind`; `None` if braid does not implement that type.
pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Box<dyn Ipam>>, Error> {
    let conf = flat_file::complete(kind, conf)?;
    Ok(Configuration::parse(kind, &conf, cni_args)?.map(verbs))
}

/// Parses the configuration like [`parse`], but only the part that a release (DEL) needs.
pub fn parse_for_release(kind: &str, conf: &NetConf) -> Result<Option<Box<dyn Ipam>>, Error> {
    let conf = flat_file::complete(kind, conf)?;
    Ok(Configuration::parse_for_release(kind, &conf)?.map(verbs))
}

fn verbs(configuration: Configuration) -> Box<dyn Ipam> {
    match configuration {
        Configuration::Dhcp(config) => Box::new(config),
        Configuration::HostLocal(config) => Box::new(config),
        Configuration::Static(config) => Box::new(config),
        Configuration::Whereabouts(config) => Box::new(config),
    }
}

impl Ipam for static_ip::StaticConfig {
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
