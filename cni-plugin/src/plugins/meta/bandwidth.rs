//! `bandwidth`: how much a container may receive and send, on whatever interface it has.

use crate::cni::{AddResult, Error, Json, NetConf};
use crate::ipam::Lease;
use crate::plan::shaping::{Rate, Shaper, Shaping, Toward};
use crate::plan::step::{LinkRef, Step};
use crate::plan::{Facts, Feature, IfName, Need};
use crate::plugins::{Addresses, Call, Planned, Plugin};

/// Least rate, in bits per second: one byte.
const LEAST_BPS: u64 = 8;
/// A burst of this many bytes and more is refused, as by the reference plugin.
const BURST_LIMIT: u64 = u32::MAX as u64;
/// What the kubelet and containerd write for "no burst given", in bits; CRI-O writes a little less than the limit.
const UNSET_BURSTS: [u64; 2] = [(1 << 31) - 1, (1 << 32) - 1];
const UNSET_BURST_FROM: u64 = 8 * (BURST_LIMIT - 1);
/// The burst where none is given: so many milliseconds of the rate, and this many bytes at least.
const BURST_MS: u64 = 10;
const LEAST_BURST: u64 = 64 * 1024;

/// A `bandwidth` configuration.
#[derive(Debug)]
pub struct Bandwidth {
    /// Towards the container.
    ingress: Option<Rate>,
    /// From the container.
    egress: Option<Rate>,
}

impl Bandwidth {
    /// Reads the configuration; any of the four keys in it outdoes all of `runtimeConfig.bandwidth`.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        // Shaping more than was asked for would be worse than none.
        for key in ["shapedSubnets", "unshapedSubnets"] {
            if conf.json.list(key)?.is_some_and(|subnets| !subnets.is_empty()) {
                return Err(Error::config(format!("{key:?}: braid shapes all traffic of an interface or none")));
            }
        }
        let runtime = conf.json.object("runtimeConfig")?.map(|runtime| runtime.object("bandwidth")).transpose()?;
        let of = match runtime.flatten() {
            Some(runtime) if !KEYS.iter().any(|key| conf.json.has(key)) => runtime,
            _ => &conf.json,
        };
        Ok(Self { ingress: rate(of, "ingressRate", "ingressBurst")?, egress: rate(of, "egressRate", "egressBurst")? })
    }

    fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

/// Reads one direction; absent and zero mean no limit.
fn rate(json: &Json, rate_key: &str, burst_key: &str) -> Result<Option<Rate>, Error> {
    let (bps, burst) = (json.u64(rate_key)?.unwrap_or(0), json.u64(burst_key)?.unwrap_or(0));
    match (bps, burst) {
        (0, 0) => Ok(None),
        (_, 0) => Err(Error::config(format!("if rate is set, burst must also be set: {rate_key:?} is {bps}"))),
        (0, _) => Err(Error::config(format!("if burst is set, rate must also be set: {burst_key:?} is {burst}"))),
        (..LEAST_BPS, _) => {
            Err(Error::config(format!("{rate_key:?}: {bps} bit/s is less than a byte a second, {LEAST_BPS}")))
        }
        _ if burst / 8 >= BURST_LIMIT => {
            Err(Error::config(format!("burst cannot be more than 4GB: {burst_key:?} is {burst} bit")))
        }
        _ => Ok(Some(Rate { bps, burst: given_or_default(bps, burst) })),
    }
}

/// The runtimes' numbers for "none given" would let the first 256 MB or more pass unshaped.
fn given_or_default(bps: u64, burst: u64) -> u64 {
    if UNSET_BURSTS.contains(&burst) || burst >= UNSET_BURST_FROM {
        (Rate { bps, burst }.bytes_in(BURST_MS)).max(LEAST_BURST).saturating_mul(8)
    } else {
        burst
    }
}

/// The links on the host's side that the result so far names.
fn host_links(prev: &AddResult) -> impl Iterator<Item = LinkRef> {
    let of_host = prev.interfaces.iter().filter(|interface| interface.sandbox.is_empty());
    of_host.filter_map(|interface| IfName::parse(&interface.name).ok().map(LinkRef::host))
}

/// The host's end of the container's veth.
fn host_end(call: &Call<'_>, prev: &AddResult, facts: &Facts) -> Result<LinkRef, Error> {
    let name = call.ifname.as_str();
    let pod = facts.link(&call.pod());
    let pod = pod.ok_or_else(|| Error::internal(format!("interface {name:?} does not exist in the container")))?;
    if pod.kind != "veth" {
        let kind = &pod.kind;
        return Err(Error::internal(format!("container interface {name:?} has no veth peer: it is of kind {kind:?}")));
    }
    let is_end = |at: &LinkRef| {
        let is_peer = |index: u32| pod.parent.map_or(*at == LinkRef::host(call.host_veth()), |peer| peer == index);
        facts.link(at).is_some_and(|fact| fact.kind == "veth" && is_peer(fact.index))
    };
    let end = host_links(prev).find(is_end);
    end.ok_or_else(|| Error::internal(format!("no veth peer of container interface {name:?} found in host ns")))
}

impl Plugin for Bandwidth {
    fn addresses(&self) -> Addresses {
        Addresses::Never
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let Some(prev) = call.prev.filter(|_| !self.is_unlimited()) else { return Vec::new() };
        [Need::Queue, Need::Link(call.pod())].into_iter().chain(host_links(prev).map(Need::Link)).collect()
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, _lease: Option<Lease>) -> Result<Planned, Error> {
        let prev = match call.prev {
            Some(prev) => prev.clone(),
            None if self.is_unlimited() => AddResult::default(),
            None => return Err(Error::config("must be called as chained plugin")),
        };
        if self.is_unlimited() {
            return Ok(Planned { result: prev, ..Planned::default() });
        }
        let queue = facts.queue.ok_or_else(|| Error::internal("this kernel can't shape: see `braid doctor`"))?;
        let host = host_end(call, &prev, facts)?;
        let to_pod = self.ingress.map(|rate| Shaper { at: host.clone(), toward: Toward::Pod, rate });
        let from_pod = self.egress.map(|rate| Shaper { at: call.pod(), toward: Toward::Network, rate });
        let guard = from_pod.is_some().then_some(host);
        let shapers = to_pod.into_iter().chain(from_pod).collect();
        let steps = vec![Step::AddShaping(Shaping { queue, shapers, guard })];
        Ok(Planned { steps, result: prev, warnings: Vec::new() })
    }

    fn remnants(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::DelLink(LinkRef::host(call.reference_ifb()))]
    }

    fn kind(&self) -> Option<&'static str> {
        None
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Clsact, Feature::ClsBpf, Feature::Bpf]
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
        })
    }

    #[test]
    fn zero_and_absent_mean_no_limit() {
        assert!(parse("{}").expect("good").is_unlimited());
        assert!(parse(r#"{"ingressRate": 0, "ingressBurst": 0}"#).expect("good").is_unlimited());
    }

    #[test]
    fn a_rate_and_its_burst_come_together_and_within_bounds() {
        for (text, why) in [
            (r#"{"ingressRate": 1000}"#, "burst must also be set"),
            (r#"{"egressBurst": 1000}"#, "rate must also be set"),
            (r#"{"egressRate": 7, "egressBurst": 80}"#, "less than a byte"),
            (r#"{"egressRate": 8, "egressBurst": 34359738360}"#, "more than 4GB"),
            (r#"{"egressRate": 8, "egressBurst": 18446744073709551615}"#, "more than 4GB"),
        ] {
            let refused = parse(text).expect_err("refused");
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn what_runtimes_write_for_no_burst_becomes_a_sane_one() {
        assert_eq!(given_or_default(1_000_000_000, (1 << 32) - 1), 10_000_000);
        assert_eq!(given_or_default(1_000_000, (1 << 31) - 1), 8 * 65_536);
        assert_eq!(given_or_default(1_000_000, 8 * (BURST_LIMIT - 1) + 7), 8 * 65_536);
        assert_eq!(given_or_default(1_000_000, 80_000), 80_000);
    }
}
