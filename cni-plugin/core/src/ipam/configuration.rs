//! Configurations of the built-in IPAMs.

use crate::cni::{Error, NetConf};
use crate::ipam::{dhcp, host_local, static_ip};

/// Creates the registry from one line for each type.
macro_rules! types {
    ($($kind:literal => $name:ident($config:ty),)*) => {
        /// Types that run in this process.
        pub const TYPES: &[&str] = &[$($kind),*];

        /// Configuration of a built-in IPAM.
        #[derive(Debug)]
        pub enum Configuration {
            $(#[doc = concat!("`", $kind, "`.")] $name($config),)*
        }

        impl Configuration {
            /// Parses the configuration of an IPAM of this `type`; `None` if the type is not built
            /// in.
            pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse(conf, cni_args)?)),)*
                    _ => None,
                })
            }

            /// Parses like [`Configuration::parse`], for DEL: only the keys needed to release
            /// addresses.
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
}
