//! Plugins, one file per `type`. Each parses its configuration and plans from it and the facts.
//!
//! [`parse`] is the only registry. A new plugin is one file in `main/` or `meta/`, one line here
//! and its goldens.

pub mod call;
pub mod interface;
pub mod ipv6;
pub mod main;
pub mod meta;
pub mod mtu;
mod plugin;
pub mod readdress;

pub use call::Call;
pub use plugin::{Addresses, Planned, Plugin};

use crate::cni::{Error, Json, NetConf};

/// The types that this process implements, without IPAM types.
pub const TYPES: &[&str] = &[
    "bridge",
    "ptp",
    "veth",
    "netkit",
    "macvlan",
    "ipvlan",
    "vlan",
    "dummy",
    "tap",
    "host-device",
    "loopback",
    "bandwidth",
    "firewall",
    "flannel",
    "portmap",
    "sbr",
    "tuning",
    "vrf",
];

/// Parses the configuration of a known type; returns `None` for a foreign type.
pub fn parse(conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
    Ok(Some(match conf.plugin.as_str() {
        "bridge" => boxed(|| main::bridge::Bridge::parse(conf, args))?,
        "ptp" | "veth" => boxed(|| main::ptp::Ptp::parse(conf))?,
        "netkit" => boxed(|| main::netkit::Netkit::parse(conf, args))?,
        "macvlan" => boxed(|| main::macvlan::parse(conf, args))?,
        "ipvlan" => boxed(|| main::ipvlan::parse(conf))?,
        "vlan" => boxed(|| main::vlan::parse(conf))?,
        "dummy" => Box::new(main::dummy::Dummy),
        "tap" => boxed(|| main::tap::TapConf::parse(conf, args))?,
        "host-device" => boxed(|| main::host_device::HostDevice::parse(conf))?,
        "loopback" => Box::new(main::loopback::Loopback),
        "bandwidth" => boxed(|| meta::bandwidth::Bandwidth::parse(conf))?,
        "firewall" => boxed(|| meta::firewall::Firewall::parse(conf))?,
        "flannel" => boxed(|| meta::flannel::Flannel::parse(conf))?,
        "portmap" => boxed(|| meta::portmap::Portmap::parse(conf))?,
        "sbr" => boxed(|| meta::sbr::Sbr::parse(conf))?,
        "tuning" => boxed(|| meta::tuning::Tuning::parse(conf, args))?,
        "vrf" => boxed(|| meta::vrf::Vrf::parse(conf))?,
        _ => return Ok(None),
    }))
}

/// Parses a configuration for DEL, and never refuses one that ADD would refuse.
///
/// The configuration may have changed since the ADD, or an earlier build may have made the
/// attachment. An unreadable configuration therefore counts as the one that leaves the most behind.
pub fn parse_for_release(conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
    parse(conf, args).or_else(|_| {
        if conf.plugin == "host-device" {
            return Ok(Some(Box::new(main::host_device::HostDevice::default())));
        }
        let most = match conf.plugin.as_str() {
            "bridge" => r#"{"ipMasq":true,"macspoofchk":true}"#,
            "ptp" | "veth" | "netkit" => r#"{"ipMasq":true,"routed":true,"table":1}"#,
            "tuning" => r#"{"mtu":1500}"#,
            // Without a name nothing is known about a VRF.
            "vrf" => r#"{"vrfname":"vrf"}"#,
            _ => "{}",
        };
        let json = Json::parse(most.as_bytes(), "what leaves the most behind")?;
        parse(
            &NetConf {
                json: json.into(),
                ..conf.clone()
            },
            "",
        )
    })
}

/// Boxes a parsed plugin. Not inlined, so that each type has a separate function: a call needs only
/// a few of them.
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
        assert_eq!(features(r#""type":"tuning""#), "");
    }
}
