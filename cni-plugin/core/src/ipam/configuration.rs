//! Configurations of the built-in IPAM plugins.

use crate::cni::{Error, NetConf};
use crate::ipam::whereabouts::WhereaboutsConfig;
use crate::ipam::{dhcp, host_local, static_ip};

/// Type of the IPAM plugin for cluster-wide addresses.
pub const WHEREABOUTS: &str = "whereabouts";

/// True if a network with the IPAM `whereabouts` takes its addresses from braid instead of the program
/// of this name.
pub fn is_native(conf: &NetConf) -> Result<bool, Error> {
    match conf.json.object("ipam")? {
        Some(ipam) => ipam
            .bool_or("native", false)
            .map_err(|err| err.at_key("ipam")),
        None => Ok(false),
    }
}

/// Defines the registry of built-in IPAM plugins from one line for each type.
macro_rules! types {
    ($($kind:literal => $name:ident($config:ty),)*) => {
        /// Types of the built-in IPAM plugins, which run in this process.
        pub const TYPES: &[&str] = &[$($kind),*];

        /// Configuration of a built-in IPAM plugin.
        #[derive(Debug)]
        pub enum Configuration {
            $(#[doc = concat!("`", $kind, "`.")] $name($config),)*
            /// `whereabouts` with `"native": true`. Without this key, the type is that of another
            /// program, so it is not one of [`TYPES`].
            Whereabouts(WhereaboutsConfig),
        }

        impl Configuration {
            /// Parses the configuration of the IPAM plugin type `kind`; `None` if the type is not
            /// built in.
            pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse(conf, cni_args)?)),)*
                    WHEREABOUTS if is_native(conf)? => {
                        Some(Self::Whereabouts(WhereaboutsConfig::parse(conf, cni_args)?))
                    }
                    _ => None,
                })
            }

            /// Parses only the keys that DEL needs to release addresses; `None` if the type `kind`
            /// is not built in.
            pub fn parse_for_release(kind: &str, conf: &NetConf) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse_for_release(conf)?)),)*
                    WHEREABOUTS if is_native(conf)? => {
                        Some(Self::Whereabouts(WhereaboutsConfig::parse_for_release(conf)?))
                    }
                    _ => None,
                })
            }
        }
    };
}

types! {
    "dhcp" => Dhcp(dhcp::DhcpConfig),
    "host-local" => HostLocal(host_local::HostLocalConfig),
    "static" => Static(static_ip::StaticConfig),
}
