//! The agent's configuration: key `config.yaml` of the `ConfigMap`, or a file.
//!
//! ```yaml
//! mode: auto
//! type: ptp
//! mtu: 0
//! vxlan: {id: 4626, port: 4789}
//! noMasquerade: [10.8.0.0/16]
//! clearNetworkUnavailable: false
//! log: {level: info, format: text}
//! dra: {enabled: false, include: [], exclude: [], capacity: {}, reserve: 0}
//! ```

use crate::error::Error;
use braid_core::dra::settings::Settings;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Smallest MTU of a link with IPv6 (RFC 8200, section 5), and the largest of a veth.
const MTUS: RangeInclusive<u32> = 1280..=65_535;
/// A VXLAN network identifier has 24 bits (RFC 7348, section 5).
const VXLAN_IDS: RangeInclusive<u32> = 1..=0xFF_FFFF;
/// UDP ports.
const PORTS: RangeInclusive<u16> = 1..=u16::MAX;

/// Configuration of the agent. Each key has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Traffic between nodes.
    pub mode: Mode,
    /// Type of the default network.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// MTU of pods in bytes. `None` derives it from the uplink.
    #[serde(deserialize_with = "mtu")]
    pub mtu: Option<u32>,
    /// The link between nodes that share none.
    pub vxlan: Vxlan,
    /// Destinations that see the addresses of pods, beside pods and nodes of the cluster.
    pub no_masquerade: Vec<IpNet>,
    /// Ends the condition `NetworkUnavailable` of the node when it is ready.
    pub clear_network_unavailable: bool,
    /// Log of the agent.
    pub log: Log,
    /// Links of the node that are offered as devices.
    pub dra: Settings,
}

/// Traffic between nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `Direct` to a node on a shared link that passes packets with addresses of pods, `Vxlan` to
    /// others.
    #[default]
    Auto,
    /// Routes through the addresses of other nodes.
    Direct,
    /// All traffic through VXLAN.
    Vxlan,
    /// As flanneld of the other nodes expects it: through VXLAN, or direct, or direct to nodes on a
    /// shared link and VXLAN to others.
    Flannel,
    /// No routes.
    None,
}

/// Type of the default network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A veth with a route for each pod.
    #[default]
    Ptp,
    /// A bridge per node.
    Bridge,
    /// A netkit pair with a route for each pod (Linux 6.7).
    Netkit,
}

impl Kind {
    /// Returns the plugin's type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Netkit => "netkit",
        }
    }
}

/// Settings of the VXLAN link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vxlan {
    /// VXLAN network identifier, 1 to 16,777,215.
    #[serde(deserialize_with = "vxlan_id")]
    pub id: u32,
    /// UDP port. Firewalls must pass it between nodes.
    #[serde(deserialize_with = "port")]
    pub port: u16,
}

impl Default for Vxlan {
    fn default() -> Self {
        Self {
            id: 4626,
            port: 4789,
        }
    }
}

/// Log of the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Least important level that is written.
    pub level: Level,
    /// Form of a line.
    pub format: Format,
}

/// Level of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Failed operations.
    Error,
    /// Also conditions that need attention.
    Warn,
    /// Also changes of the node.
    #[default]
    Info,
    /// Also decisions.
    Debug,
    /// Also each event.
    Trace,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Time, level, target, and `key=value`.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Config {
    /// Parses a configuration. `overrides` are values of the environment, which precede those of
    /// the text. An error has the path of the key.
    pub fn parse(text: &str, overrides: &Overrides) -> Result<Self, Error> {
        let invalid = |why: &dyn Display| Error::new("read config.yaml", why);
        let parsed: Option<Value> = serde_saphyr::from_str(text).map_err(|err| invalid(&err))?;
        let mut value = parsed.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        if let Some(object) = value.as_object_mut() {
            overrides.apply(object);
        }
        serde_path_to_error::deserialize(value).map_err(|err| invalid(&err))
    }
}

/// Values of the environment: `BRAID_MODE` and `BRAID_MTU`. Without a value, the configuration
/// decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Value of `mode`.
    pub mode: Option<String>,
    /// Value of `mtu`.
    pub mtu: Option<String>,
}

impl Overrides {
    fn apply(&self, object: &mut serde_json::Map<String, Value>) {
        if let Some(mode) = &self.mode {
            object.insert("mode".to_owned(), Value::from(mode.as_str()));
        }
        if let Some(mtu) = &self.mtu {
            // A text that is no number stays a text, which the key refuses.
            let number = mtu
                .parse::<u64>()
                .map_or(Value::from(mtu.as_str()), Value::from);
            object.insert("mtu".to_owned(), number);
        }
    }
}

fn mtu<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let mtu = i64::deserialize(deserializer)?;
    if mtu == 0 {
        return Ok(None);
    }
    within(mtu, &MTUS, "0, or ").map(Some)
}

fn vxlan_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    within(i64::deserialize(deserializer)?, &VXLAN_IDS, "")
}

fn port<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    within(i64::deserialize(deserializer)?, &PORTS, "")
}

/// Returns the value if it is in the range. `also` names further valid values.
fn within<T, E>(value: i64, range: &RangeInclusive<T>, also: &str) -> Result<T, E>
where
    T: TryFrom<i64> + PartialOrd + Display,
    E: serde::de::Error,
{
    let (first, last) = (range.start(), range.end());
    let valid = T::try_from(value)
        .ok()
        .filter(|value| range.contains(value));
    valid.ok_or_else(|| E::custom(format_args!("{value} is not {also}{first} to {last}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::dra::rate::Rate;
    use braid_core::dra::settings::Glob;
    use std::collections::BTreeMap;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, &Overrides::default()).map_err(|err| err.to_string())
    }

    #[test]
    fn each_key_has_a_default_and_can_be_set() {
        for empty in ["", "{}", "# nothing\n", "vxlan: {}\n"] {
            assert_eq!(parse(empty), Ok(Config::default()), "{empty:?}");
        }
        let text = "
mode: vxlan
type: bridge
mtu: 1400
vxlan: {id: 7, port: 8472}
noMasquerade: [10.8.0.0/16, 'fd08::/48']
clearNetworkUnavailable: true
log:
  level: debug
  format: json
dra: {enabled: true, include: ['eth*'], capacity: {eth1: 10G}, reserve: 1000000}
";
        let ranges = ["10.8.0.0/16", "fd08::/48"].map(|text| text.parse().expect("a range"));
        let glob = |text| Glob::parse(text).expect("a glob");
        assert_eq!(
            parse(text),
            Ok(Config {
                mode: Mode::Vxlan,
                kind: Kind::Bridge,
                mtu: Some(1400),
                vxlan: Vxlan { id: 7, port: 8472 },
                no_masquerade: ranges.to_vec(),
                clear_network_unavailable: true,
                log: Log {
                    level: Level::Debug,
                    format: Format::Json,
                },
                dra: Settings {
                    is_enabled: true,
                    include: vec![glob("eth*")],
                    exclude: Vec::new(),
                    capacity: BTreeMap::from([(glob("eth1"), Rate::of_mbit(10_000))]),
                    reserve: Rate::of_mbit(1),
                },
            })
        );
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_errors_with_the_path_of_the_key() {
        for (text, path, words) in [
            ("mode: fast", "mode", "unknown variant `fast`"),
            ("mtu: 100", "mtu", "100 is not 0, or 1280 to 65535"),
            ("mtu: -1", "mtu", "-1 is not"),
            ("mtu: big", "mtu", "invalid type"),
            ("vxlan: {id: 0}", "vxlan.id", "0 is not 1 to 16777215"),
            (
                "vxlan: {port: 65536}",
                "vxlan.port",
                "65536 is not 1 to 65535",
            ),
            ("vxlan: {port: 0}", "vxlan.port", "0 is not 1 to 65535"),
            ("vxlan: {vni: 7}", "vxlan.vni", "unknown field `vni`"),
            ("noMasquerade: [10.0.0.0]", "noMasquerade[0]", "invalid"),
            ("colour: red", "colour", "unknown field `colour`"),
            ("log: {level: loud}", "log.level", "unknown variant `loud`"),
            ("dra: {all: true}", "dra.all", "unknown field `all`"),
            ("dra: {include: ['eth[']}", "dra.include[0]", "a pattern"),
            (
                "dra: {capacity: {eth1: 1x}}",
                "dra.capacity.eth1",
                "not a number with a suffix",
            ),
            ("dra: {reserve: -5}", "dra.reserve", "bits per second"),
        ] {
            let err = parse(text).expect_err(text);
            let start = format!("read config.yaml: {path}: ");
            assert!(err.starts_with(&start) && err.contains(words), "{err}");
        }
        for text in ["- a", "mode: [", "5"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_environment_overrides_mode_and_mtu() {
        let overrides = |mode: &str, mtu: &str| Overrides {
            mode: Some(mode.to_owned()),
            mtu: Some(mtu.to_owned()),
        };
        let config = Config::parse("mode: none\nmtu: 0", &overrides("direct", "9000"));
        let config = config.expect("a configuration");
        assert_eq!((config.mode, config.mtu), (Mode::Direct, Some(9000)));
        let err = Config::parse("", &overrides("direct", "large")).expect_err("no number");
        assert!(err.to_string().contains("mtu"), "{err}");
    }
}
