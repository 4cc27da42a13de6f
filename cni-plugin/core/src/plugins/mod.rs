//! Plugins, one file per CNI `type`. Each parses its configuration, and plans from it and from
//! facts about the host.
//!
//! [`parse`] is the only registry. `docs/adding.md` lists the files that a new plugin touches.

pub mod call;
pub mod interface;
pub mod ipv6;
pub mod main;
pub mod meta;
pub mod mtu;
pub mod planned;
mod plugin;
pub mod readdress;

pub use call::Call;
pub use planned::{Adjustment, Linked, Planned};
pub use plugin::{Addresses, Plugin, ThroughLink};

use crate::cni::mac_by::MacBy;
use crate::cni::{Error, Json, NetConf};
use MacBy::{Itself, Nothing, Tuning as ByTuning};
use Release::{Keys, Made};
use main::bridge::Bridge;
use main::dummy::Dummy;
use main::host_device::HostDevice;
use main::loopback::Loopback;
use main::netkit::Netkit;
use main::ptp::Ptp;
use main::tap::TapConf;
use main::vxlan::VxlanConf;
use main::{ipvlan, macvlan, vlan};
use meta::bandwidth::Bandwidth;
use meta::firewall::Firewall;
use meta::flannel::Flannel;
use meta::portmap::Portmap;
use meta::sbr::Sbr;
use meta::tuning::Tuning;
use meta::vrf::Vrf;

/// Substitute for a configuration that DEL can't read. It makes DEL delete everything that an ADD
/// of the type can have created.
enum Release {
    /// JSON object that replaces the configuration's keys.
    Keys(&'static str),
    /// Constructor of the plugin, for a type that refuses every configuration without a device.
    Made(fn() -> Box<dyn Plugin>),
}

/// Generates the registry. Each line has the names of a type, its parser, its [`Release`] and its
/// [`MacBy`].
macro_rules! plugins {
    ($($($kind:literal)|+ => $parse:expr, $release:expr, $mac:expr;)*) => {
        /// Plugin types that braid implements, without IPAM types.
        pub const TYPES: &[&str] = &[$($($kind),+),*];

        /// Parses the configuration of one of [`TYPES`]; returns `None` for any other type.
        pub fn parse(conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
            Ok(Some(match conf.plugin.as_str() {
                $($($kind)|+ => boxed(|| $parse(conf, args))?,)*
                _ => return Ok(None),
            }))
        }

        /// Returns which plugin sets a requested hardware address on an interface of this type.
        pub fn mac_by(kind: &str) -> MacBy {
            match kind {
                $($($kind)|+ => $mac,)*
                _ => Nothing,
            }
        }

        fn release(kind: &str) -> Release {
            match kind {
                $($($kind)|+ => $release,)*
                _ => Keys(NONE),
            }
        }
    };
}

plugins! {
    "bridge" => Bridge::parse, Keys(r#"{"ipMasq":true,"macspoofchk":true}"#), Itself;
    "ptp" | "veth" => |conf, _| Ptp::parse(conf), Keys(ROUTED), ByTuning;
    "netkit" => Netkit::parse, Keys(ROUTED), Itself;
    "macvlan" => macvlan::parse, Keys(NONE), Itself;
    "ipvlan" => |conf, _| ipvlan::parse(conf), Keys(NONE), Nothing;
    "vlan" => |conf, _| vlan::parse(conf), Keys(NONE), ByTuning;
    // A vxlan without its VNI is refused. DEL needs the interface's name alone.
    "vxlan" => |conf, _| VxlanConf::parse(conf), Keys(r#"{"id":1}"#), ByTuning;
    "dummy" => |_, _| Ok(Dummy), Keys(NONE), ByTuning;
    "tap" => TapConf::parse, Keys(NONE), Itself;
    "host-device" => |conf, _| HostDevice::parse(conf), Made(|| Box::new(HostDevice::default())), ByTuning;
    "loopback" => |_, _| Ok(Loopback), Keys(NONE), Nothing;
    "bandwidth" => |conf, _| Bandwidth::parse(conf), Keys(NONE), Nothing;
    "firewall" => |conf, _| Firewall::parse(conf), Keys(NONE), Nothing;
    "flannel" => |conf, _| Flannel::parse(conf), Keys(NONE), Itself;
    "portmap" => |conf, _| Portmap::parse(conf), Keys(NONE), Nothing;
    "sbr" => |conf, _| Sbr::parse(conf), Keys(NONE), Nothing;
    "tuning" => Tuning::parse, Keys(r#"{"mtu":1500}"#), Itself;
    // A VRF without a name is refused.
    "vrf" => |conf, _| Vrf::parse(conf), Keys(r#"{"vrfname":"vrf"}"#), Nothing;
}

/// Configuration without keys.
const NONE: &str = "{}";
/// Keys with which an ADD of a routed link pair creates the most objects.
const ROUTED: &str = r#"{"ipMasq":true,"routed":true,"table":1}"#;

/// Parses a configuration for DEL, which also accepts a configuration that ADD refuses.
///
/// The configuration may have changed since the ADD, or an earlier build may have made the
/// attachment. An unreadable configuration is therefore replaced by the keys with which an ADD
/// creates the most objects.
pub fn parse_for_release(conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
    parse(conf, args).or_else(|_| match release(&conf.plugin) {
        Made(make) => Ok(Some(make())),
        Keys(keys) => {
            let json = Json::parse(keys.as_bytes(), "configuration for DEL")?;
            let conf = NetConf {
                json: json.into(),
                ..conf.clone()
            };
            parse(&conf, "")
        }
    })
}

/// Boxes a parsed plugin. Not inlined, so that each type has a separate function: a CNI call needs
/// only a few of these functions.
#[inline(never)]
fn boxed<P: Plugin + 'static>(
    parse: impl FnOnce() -> Result<P, Error>,
) -> Result<Box<dyn Plugin>, Error> {
    Ok(Box::new(parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Feature;

    #[test]
    fn features_follow_from_the_configured_keys() {
        let features = |conf: &str| {
            let conf = NetConf::parse(format!(r#"{{"name":"n",{conf}}}"#).as_bytes())
                .expect("a configuration");
            let plugin = parse(&conf, "").expect("parsed").expect("ours");
            plugin
                .features()
                .into_iter()
                .map(Feature::name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(features(r#""type":"bridge""#), "veth, bridge");
        let all = features(r#""type":"bridge","vlan":5,"ipMasq":true,"macspoofchk":true"#);
        assert_eq!(
            all,
            "veth, bridge, bridge vlan_filtering, nf_tables masquerade, nf_tables bridge"
        );
        assert_eq!(
            features(r#""type":"bridge","vlanTrunk":[{"id":7}]"#),
            "veth, bridge, bridge vlan_filtering"
        );
        assert_eq!(
            features(r#""type":"ptp","ipMasq":true"#),
            "veth, nf_tables masquerade"
        );
        assert_eq!(features(r#""type":"ptp","device":"netkit""#), "netkit");
        assert_eq!(
            features(r#""type":"bridge","device":"netkit""#),
            "netkit l2, bridge"
        );
        assert_eq!(
            features(r#""type":"netkit","mode":"l2","ipMasq":true"#),
            "netkit l2, nf_tables masquerade"
        );
        assert_eq!(features(r#""type":"macvlan""#), "macvlan");
        assert_eq!(features(r#""type":"ipvlan""#), "ipvlan");
        assert_eq!(features(r#""type":"vlan""#), "vlan");
        assert_eq!(features(r#""type":"vxlan","id":5"#), "vxlan");
        assert_eq!(features(r#""type":"tuning""#), "");
    }
}
