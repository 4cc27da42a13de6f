//! The configuration of each IPAM that braid does itself.

use crate::cni::{Error, NetConf};
use crate::ipam::{dhcp, host_local, static_ip};

/// Makes the registry of a line for each type.
macro_rules! types {
    ($($kind:literal => $name:ident($config:ty),)*) => {
        /// The types that are done in this process.
        pub const TYPES: &[&str] = &[$($kind),*];

        /// A configuration.
        #[derive(Debug)]
        pub enum Configuration {
            $(#[doc = concat!("`", $kind, "`.")] $name($config),)*
        }

        impl Configuration {
            /// Reads what an IPAM of this `type` is told; `None` if the type is not one of ours.
            pub fn parse(kind: &str, conf: &NetConf, cni_args: &str) -> Result<Option<Self>, Error> {
                Ok(match kind {
                    $($kind => Some(Self::$name(<$config>::parse(conf, cni_args)?)),)*
                    _ => None,
                })
            }

            /// [`Configuration::parse`] for DEL: only what is needed to give back.
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
    "dhcp" => Dhcp(dhcp::Config),
    "host-local" => HostLocal(host_local::Config),
    "static" => Static(static_ip::Config),
}
