//! One file per `type`: what its configuration means, and the plan that follows from it and the
//! facts.
//!
//! [`parse`] is the only registry. `docs/adding.md` lists the files that a new plugin touches.

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

/// The types that are no IPAM and done in this process.
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

/// Parses the configuration of a known type; `None` for a foreign one.
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

/// For DEL, which takes back what an ADD may have made before somebody changed the configuration,
/// or by an earlier build: what can't be read counts as whatever leaves the most behind. Nothing
/// that was refused may keep a container from going.
pub fn parse_for_release(conf: &NetConf, args: &str) -> Result<Option<Box<dyn Plugin>>, Error> {
    parse(conf, args).or_else(|_| {
        if conf.plugin == "host-device" {
            return Ok(Some(Box::new(main::host_device::HostDevice::default())));
        }
        let most = match conf.plugin.as_str() {
            "bridge" => r#"{"ipMasq":true,"macspoofchk":true}"#,
            "ptp" | "veth" | "netkit" => r#"{"ipMasq":true,"routed":true,"table":1}"#,
            "tuning" => r#"{"mtu":1500}"#,
            // Of a VRF without a name nothing is known.
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

/// In a place of its own for each type: a call has need of few.
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
    fn a_plugin_asks_only_for_what_its_keys_need() {
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
