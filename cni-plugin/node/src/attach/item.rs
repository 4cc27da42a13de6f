//! A plugin of a chain: its program, and the source of its addresses.

use crate::ipam::{self, Ipam};
use braid_core::cni::{AddResult, Error, NetConf};
use braid_core::ipam::Lease;
use braid_core::plugins::{self, Addresses, Plugin};

/// Type of a configuration that contains a whole plugin list.
pub const BRAID: &str = "braid";

/// A plugin of a chain.
#[derive(Debug)]
pub struct Item {
    /// The plugin's configuration. A plugin in a list has no `prevResult` here.
    pub conf: NetConf,
    /// Index of the plugin's configuration in the plugin list; 0 without a list. `None` if the
    /// configuration was generated for a plugin of type `flannel`.
    pub(super) listed: Option<usize>,
    /// Program that does the plugin's work.
    pub work: Runner,
    /// Source of the plugin's addresses.
    pub addresses: AddressSource,
}

/// Program that does a plugin's work.
#[derive(Debug)]
pub enum Runner {
    /// This process: braid implements the plugin.
    Native(Box<dyn Plugin>),
    /// This process, as an IPAM that the runtime calls directly. The result is the lease.
    Ipam,
    /// Another program.
    Foreign,
}

/// Source of a plugin's addresses.
#[derive(Debug)]
pub enum AddressSource {
    /// None: the plugin has no IPAM.
    NoIpam,
    /// An IPAM that braid implements.
    Ours(Box<dyn Ipam>),
    /// Another program, with the IPAM's type as its name.
    Foreign(String),
}

/// Strictness in reading a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Refuses a configuration that cannot be read or cannot work.
    Strict,
    /// Reads only the part that is needed to release the addresses.
    ForRelease,
}

impl Reading {
    fn plugin(self, conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
        match self {
            Self::Strict => plugins::parse(conf, args),
            Self::ForRelease => plugins::parse_for_release(conf, args),
        }
    }

    fn ipam(self, kind: &str, conf: &NetConf, args: &str) -> Result<Option<Box<dyn Ipam>>, Error> {
        match self {
            Self::Strict => ipam::parse(kind, conf, args),
            Self::ForRelease => ipam::parse_for_release(kind, conf),
        }
    }
}

impl Item {
    /// True if the addresses are acquired through the container's link, as with DHCP. The link is
    /// then created before the addresses are requested, and deleted after they are released.
    pub fn is_through_link(&self) -> bool {
        matches!(&self.addresses, AddressSource::Ours(ipam) if ipam.is_through_link())
    }

    /// True if the link is created before the addresses are requested: the addresses are acquired
    /// through the link, or probed on it.
    pub fn needs_link(&self) -> bool {
        if let (Runner::Native(plugin), AddressSource::Ours(ipam)) = (&self.work, &self.addresses)
            && ipam.probes()
        {
            return plugin.can_probe();
        }
        self.is_through_link()
    }

    pub(super) fn parse(conf: NetConf, args: &str, reading: Reading) -> Result<Self, Error> {
        if let Some(ipam) = reading.ipam(&conf.plugin, &conf, args)? {
            return Ok(Self {
                conf,
                listed: Some(0),
                work: Runner::Ipam,
                addresses: AddressSource::Ours(ipam),
            });
        }
        let Some(plugin) = reading.plugin(&conf, args)? else {
            return Ok(Self::foreign(conf, 0));
        };
        let addresses = match (plugin.addresses(), conf.ipam.as_str()) {
            (Addresses::Never, _) | (Addresses::Optional, "") => AddressSource::NoIpam,
            (Addresses::Required, "") if reading == Reading::ForRelease => AddressSource::NoIpam,
            (Addresses::Required, "") => {
                return Err(Error::config(format!(
                    "\"ipam\": {} needs an IPAM type",
                    conf.plugin
                )));
            }
            (_, ipam) => match reading.ipam(ipam, &conf, args)? {
                Some(ours) => {
                    let is_judged = ours.is_through_link() && reading == Reading::Strict;
                    if is_judged && let Err(why) = plugin.through_link() {
                        let needs = format!(
                            "{ipam:?} needs a DHCP server behind the link of {}: {why}",
                            conf.plugin
                        );
                        return Err(Error::config(format!("\"ipam\": type {needs}")));
                    }
                    AddressSource::Ours(ours)
                }
                None if reading == Reading::ForRelease && is_no_ipam(ipam) => AddressSource::NoIpam,
                None if is_no_ipam(ipam) => {
                    return Err(Error::config(format!(
                        "\"ipam\": type {ipam:?} is a network plugin, not an IPAM plugin"
                    )));
                }
                None => AddressSource::Foreign(ipam.to_owned()),
            },
        };
        Ok(Self {
            conf,
            listed: Some(0),
            work: Runner::Native(plugin),
            addresses,
        })
    }

    /// Creates the item for a foreign plugin at index `at` of a list.
    pub(super) fn foreign(conf: NetConf, at: usize) -> Self {
        Self {
            conf,
            listed: Some(at),
            work: Runner::Foreign,
            addresses: AddressSource::NoIpam,
        }
    }

    /// Marks the item's configuration as generated: it is not in the list.
    pub(super) fn made(self) -> Self {
        Self {
            listed: None,
            ..self
        }
    }
}

/// True if `kind` is a plugin type of braid that is not an IPAM.
fn is_no_ipam(kind: &str) -> bool {
    kind == BRAID || plugins::TYPES.contains(&kind)
}

/// Converts a foreign IPAM's result to a lease.
pub fn lease_of(result: AddResult) -> Lease {
    Lease {
        ips: result.ips,
        routes: result.routes,
        dns: result.dns,
    }
}
