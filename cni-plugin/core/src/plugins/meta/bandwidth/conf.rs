//! Configuration of `bandwidth`: rates, bursts and the subnets to shape.

use crate::cni::{Error, Json, NetConf};
use crate::plan::thing::shaping::{Rate, Subnets};
use ipnet::IpNet;

/// Lowest rate in bits per second: one byte per second.
const LEAST_BPS: u64 = 8;
/// Upper bound of a burst in bytes, exclusive, as in the reference plugin.
const BURST_LIMIT: u64 = u32::MAX as u64;
/// Bursts in bits that the kubelet and containerd write for "no burst given".
const UNSET_BURSTS: [u64; 2] = [(1 << 31) - 1, (1 << 32) - 1];
/// Lowest of the large bursts in bits that also mean "no burst given". CRI-O writes a burst a
/// little below the limit.
const UNSET_BURST_FROM: u64 = 8 * (BURST_LIMIT - 1);
/// Maximum number of subnets in a configuration.
const MOST_SUBNETS: usize = 64;
/// Duration of the default burst in milliseconds at the configured rate. The burst has at least
/// [`LEAST_BURST`] bytes.
const BURST_MS: u64 = 10;
/// Lower bound of the default burst in bytes.
const LEAST_BURST: u64 = 64 * 1024;

/// A `bandwidth` configuration.
#[derive(Debug)]
pub struct Bandwidth {
    /// Limit for packets to the container.
    pub(super) ingress: Option<Rate>,
    /// Limit for packets from the container.
    pub(super) egress: Option<Rate>,
    /// Subnets that select the shaped packets; `None` shapes all.
    pub(super) subnets: Option<Subnets>,
}

impl Bandwidth {
    /// Reads the configuration. If it has any of the four rate and burst keys,
    /// `runtimeConfig.bandwidth` is ignored.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        let of = match conf.json.object_in("runtimeConfig", "bandwidth")? {
            Some(runtime) if !KEYS.iter().any(|key| conf.json.has(key)) => runtime,
            _ => &conf.json,
        };
        // Without subnets in the runtime's part, the configuration's subnets apply.
        let subnets =
            subnets(of)?.map_or_else(|| subnets(&conf.json), |subnets| Ok(Some(subnets)))?;
        let (ingress, egress) = (
            rate(of, "ingressRate", "ingressBurst")?,
            rate(of, "egressRate", "egressBurst")?,
        );
        Ok(Self {
            ingress,
            egress,
            subnets,
        })
    }

    /// True if the configuration limits nothing.
    pub(super) fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

/// Reads `shapedSubnets` or `unshapedSubnets`.
fn subnets(json: &Json) -> Result<Option<Subnets>, Error> {
    let parsed = |key: &str| {
        let mut nets = Vec::new();
        for (index, text) in json.strings(key)?.iter().enumerate() {
            let net = text.parse::<IpNet>().map_err(|err| {
                Error::config(format!("{key:?}: bad subnet {text:?}: {err}"))
                    .at_index(index)
                    .at_key(key)
            })?;
            nets.push(net.trunc());
        }
        Ok::<_, Error>(nets)
    };
    let (shaped, unshaped) = (parsed("shapedSubnets")?, parsed("unshapedSubnets")?);
    let (only, nets) = match (shaped.len(), unshaped.len()) {
        (0, 0) => return Ok(None),
        (_, 0) => (true, shaped),
        (0, _) => (false, unshaped),
        _ => {
            return Err(Error::config(
                "\"shapedSubnets\" and \"unshapedSubnets\" can't both be set",
            )
            .at_key("unshapedSubnets"));
        }
    };
    if nets.len() > MOST_SUBNETS {
        return Err(Error::config(format!(
            "{} subnets are more than {MOST_SUBNETS}",
            nets.len()
        )));
    }
    Ok(Some(Subnets { only, nets }))
}

/// Reads the limit of one direction; absent and zero mean no limit.
fn rate(json: &Json, rate_key: &str, burst_key: &str) -> Result<Option<Rate>, Error> {
    let (bps, burst) = (
        json.u64(rate_key)?.unwrap_or(0),
        json.u64(burst_key)?.unwrap_or(0),
    );
    match (bps, burst) {
        (0, 0) => Ok(None),
        (_, 0) => Err(Error::config(format!(
            "if rate is set, burst must also be set: {rate_key:?} is {bps}"
        ))
        .at_key(rate_key)),
        (0, _) => Err(Error::config(format!(
            "if burst is set, rate must also be set: {burst_key:?} is {burst}"
        ))
        .at_key(burst_key)),
        (..LEAST_BPS, _) => Err(Error::config(format!(
            "{rate_key:?}: {bps} bit/s is less than a byte a second, {LEAST_BPS}"
        ))
        .at_key(rate_key)),
        _ if burst / 8 >= BURST_LIMIT => Err(Error::config(format!(
            "burst cannot be more than 4GB: {burst_key:?} is {burst} bit"
        ))
        .at_key(burst_key)),
        _ => Ok(Some(Rate {
            bps,
            burst: given_or_default(bps, burst),
        })),
    }
}

/// Returns `burst` in bits, or the default burst if `burst` is a runtime's number for "no burst
/// given". Such a number would let the first 256 MB or more pass unshaped.
fn given_or_default(bps: u64, burst: u64) -> u64 {
    if UNSET_BURSTS.contains(&burst) || burst >= UNSET_BURST_FROM {
        (Rate { bps, burst }.bytes_in(BURST_MS))
            .max(LEAST_BURST)
            .saturating_mul(8)
    } else {
        burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Bandwidth, String> {
        let json = Json::parse(text.as_bytes(), "a test").expect("json");
        Ok(Bandwidth {
            ingress: rate(&json, "ingressRate", "ingressBurst").map_err(|err| err.msg)?,
            egress: rate(&json, "egressRate", "egressBurst").map_err(|err| err.msg)?,
            subnets: subnets(&json).map_err(|err| err.msg)?,
        })
    }

    #[test]
    fn subnets_of_the_runtime_override_the_configuration() {
        let nets = |runtime: &str| {
            let text = format!(
                r#"{{"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "shapedSubnets": ["10.0.0.0/8"],
                    "runtimeConfig": {{"bandwidth": {{"ingressRate": 8000, "ingressBurst": 8000{runtime}}}}}}}"#
            );
            let conf = NetConf::parse(text.as_bytes()).expect("a configuration");
            Bandwidth::parse(&conf)
                .expect("good")
                .subnets
                .expect("some")
                .nets
        };
        let net = |text: &str| vec![text.parse::<IpNet>().expect("a subnet")];
        assert_eq!(nets(""), net("10.0.0.0/8"));
        assert_eq!(
            nets(r#", "unshapedSubnets": ["10.9.0.0/16"]"#),
            net("10.9.0.0/16")
        );
    }

    #[test]
    fn zero_and_absent_mean_no_limit() {
        assert!(parse("{}").expect("good").is_unlimited());
        assert!(
            parse(r#"{"ingressRate": 0, "ingressBurst": 0}"#)
                .expect("good")
                .is_unlimited()
        );
    }

    #[test]
    fn rate_and_burst_require_each_other_and_have_bounds() {
        for (text, why) in [
            (r#"{"ingressRate": 1000}"#, "burst must also be set"),
            (r#"{"egressBurst": 1000}"#, "rate must also be set"),
            (
                r#"{"egressRate": 7, "egressBurst": 80}"#,
                "less than a byte",
            ),
            (
                r#"{"egressRate": 8, "egressBurst": 34359738360}"#,
                "more than 4GB",
            ),
            (
                r#"{"egressRate": 8, "egressBurst": 18446744073709551615}"#,
                "more than 4GB",
            ),
            (
                r#"{"shapedSubnets": ["10.0.0.0/8"], "unshapedSubnets": ["10.0.0.0/9"]}"#,
                "can't both be set",
            ),
            (
                r#"{"shapedSubnets": ["10.0.0.0"]}"#,
                "bad subnet \"10.0.0.0\"",
            ),
            (r#"{"unshapedSubnets": ["10.0.0.0/33"]}"#, "bad subnet"),
        ] {
            let refused = parse(text).expect_err("refused");
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn an_unset_burst_of_a_runtime_becomes_the_default() {
        assert_eq!(given_or_default(1_000_000_000, (1 << 32) - 1), 10_000_000);
        assert_eq!(given_or_default(1_000_000, (1 << 31) - 1), 8 * 65_536);
        assert_eq!(
            given_or_default(1_000_000, 8 * (BURST_LIMIT - 1) + 7),
            8 * 65_536
        );
        assert_eq!(given_or_default(1_000_000, 80_000), 80_000);
    }
}
