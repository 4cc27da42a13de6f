//! Addresses: which ones an attachment gets, and who remembers it.
//!
//! ```text
//!  config ─► range::RangeSet ─► host_local::{allocator (pure), book, store, index (files)} ─┐
//!  config ─► static_ip ─────────────────────────────────────────────────────────────────────┴─► lease::Lease
//! ```

pub mod host_local;
pub mod lease;
pub mod liveness;
pub mod range;
pub mod static_ip;

pub use host_local::Host;
pub use lease::Lease;

use crate::cni::{AddResult, Error, NetConf, Owner};
use range::RangeSet;
use std::net::IpAddr;

/// The types that are done in this process.
pub const TYPES: [&str; 2] = ["host-local", "static"];

/// An IPAM that braid does itself, configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ipam {
    /// `host-local`.
    HostLocal(host_local::Config),
    /// `static`.
    Static(static_ip::Config),
}

impl Ipam {
    /// Reads the configuration for the IPAM of this `type`; `None` if the type is not one of ours.
    pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Self>, Error> {
        Ok(match kind {
            "host-local" => Some(Self::HostLocal(host_local::Config::parse(conf, cni_args)?)),
            "static" => Some(Self::Static(static_ip::Config::parse(conf, cni_args)?)),
            _ => None,
        })
    }

    /// [`Ipam::parse`] for DEL: only what is needed to give back, which of `static` is nothing.
    pub fn parse_for_release(kind: &str, conf: &NetConf) -> Result<Option<Self>, Error> {
        Ok(match kind {
            "host-local" => Some(Self::HostLocal(host_local::Config::parse_for_release(conf)?)),
            "static" => Some(Self::Static(static_ip::Config::default())),
            _ => None,
        })
    }

    /// Whether it may give an IPv6 address.
    pub fn has_ipv6(&self) -> bool {
        match self {
            Self::HostLocal(config) => config.ranges.iter().any(|set| !set.is_ipv4()),
            Self::Static(config) => config.addresses.iter().any(|ip| ip.address.addr().is_ipv6()),
        }
    }

    /// The same without IPv6; `None` where nothing is left.
    pub fn without_ipv6(&self) -> Option<Self> {
        let mut ipam = self.clone();
        let (routes, is_empty) = match &mut ipam {
            Self::HostLocal(config) => {
                config.ranges.retain(RangeSet::is_ipv4);
                config.requested.retain(IpAddr::is_ipv4);
                (&mut config.routes, config.ranges.is_empty())
            }
            Self::Static(config) => {
                config.addresses.retain(|ip| ip.address.addr().is_ipv4());
                (&mut config.routes, config.addresses.is_empty())
            }
        };
        routes.retain(|route| route.dst.addr().is_ipv4());
        (!is_empty).then_some(ipam)
    }

    /// ADD: what `owner` gets. On an error nothing is held.
    pub fn reserve(&self, owner: &Owner, host: Host<'_>) -> Result<Lease, Error> {
        match self {
            Self::HostLocal(config) => host_local::reserve(config, owner, host),
            Self::Static(config) => Ok(config.lease()),
        }
    }

    /// The dry run: what [`Ipam::reserve`] would give a new owner now. Nothing is written, and nothing is held.
    pub fn peek(&self, host: Host<'_>) -> Result<Lease, Error> {
        match self {
            Self::HostLocal(config) => host_local::peek(config, host),
            Self::Static(config) => Ok(config.lease()),
        }
    }

    /// DEL: frees what `owner` holds and says what that was. Holding nothing is success.
    pub fn release(&self, owner: &Owner, host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        match self {
            Self::HostLocal(config) => host_local::release(config, owner, host),
            Self::Static(_) => Ok(Vec::new()),
        }
    }

    /// CHECK: whether what ADD gave is still so.
    pub fn check(&self, owner: &Owner, prev_result: Option<&AddResult>, host: Host<'_>) -> Result<(), Error> {
        match self {
            Self::HostLocal(config) => host_local::check(config, owner, host),
            Self::Static(config) => config.check(prev_result, &owner.ifname),
        }
    }

    /// GC: frees what is held by others than `valid` and says what that was.
    pub fn gc(&self, valid: &[Owner], host: Host<'_>) -> Result<Vec<IpAddr>, Error> {
        match self {
            Self::HostLocal(config) => {
                Ok(host_local::gc(config, valid, host)?.into_iter().map(|lease| lease.ip).collect())
            }
            Self::Static(_) => Ok(Vec::new()),
        }
    }

    /// STATUS: whether an ADD could be served, as far as the host has a part in it; what is full is said and is no failure.
    pub fn status(&self, host: Host<'_>) -> Result<Option<String>, Error> {
        match self {
            Self::HostLocal(config) => host_local::status(config, host),
            Self::Static(_) => Ok(None),
        }
    }
}
