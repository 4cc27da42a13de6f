//! Configurations of the built-in IPAM plugins.

use crate::cni::{Error, NetConf};
use crate::ipam::whereabouts::WhereaboutsConfig;
use crate::ipam::{dhcp, host_local, static_ip};

/// Defines the registry of built-in IPAM plugins from one line for each type.
macro_rules! types {
    ($($kind:literal => $name:ident($config:ty),)*) => {
        /// Types of the built-in IPAM plugins, which run in this process.
        pub const TYPES: &[&str] = &[$($kind),*];

        /// Configuration of a built-in IPAM plugin.
        #[derive(Debug)]
        pub enum Configuration {
            $(#[doc = concat!("`", $kind, "`.")] $name($config),)*
        }

        impl Configuration {
            /// Parses the configuration of the IPAM plugin type `kind`; `None` if the type is not
            /// built in.
            pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse(conf, cni_args)?)),)*
                    _ => None,
                })
            }

            /// Parses only the keys that DEL needs to release addresses; `None` if the type `kind`
            /// is not built in.
            pub fn parse_for_release(kind: &str, conf: &NetConf) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse_for_release(conf)?)),)*
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
    "whereabouts" => Whereabouts(WhereaboutsConfig),
}
