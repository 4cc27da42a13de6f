//! `bandwidth`: how much a container may receive and send, on whatever interface it has.

use crate::cni::{AddResult, Error, Interface, Json, NetConf};
use crate::ipam::Lease;
use crate::plan::facts::LinkFact;
use crate::plan::ladder::{ASKED, LADDER, Queue};
use crate::plan::link::{IpvlanMode, Link, LinkAttr, LinkKind, LinkRef};
use crate::plan::nft::PacketGuard;
use crate::plan::shaping::{Rate, Shaper, Shaping, Subnets, Toward};
use crate::plan::step::{Step, Sysctl};
use crate::plan::xsk::XskGuard;
use crate::plan::{Facts, Feature, Need, Ns};
use crate::plugins::interface::host_links;
use crate::plugins::{Addresses, Call, Planned, Plugin};
use ipnet::IpNet;

/// Least rate, in bits per second: one byte.
const LEAST_BPS: u64 = 8;
/// A burst of this many bytes and more is refused, as by the reference plugin.
const BURST_LIMIT: u64 = u32::MAX as u64;
/// What the kubelet and containerd write for "no burst given", in bits; CRI-O writes a little less than the limit.
const UNSET_BURSTS: [u64; 2] = [(1 << 31) - 1, (1 << 32) - 1];
const UNSET_BURST_FROM: u64 = 8 * (BURST_LIMIT - 1);
/// Most subnets that a configuration may name.
const MOST_SUBNETS: usize = 64;
/// Index of `lo` in every network namespace.
const LOOPBACK: u32 = 1;
/// The burst where none is given: so many milliseconds of the rate, and this many bytes at least.
const BURST_MS: u64 = 10;
const LEAST_BURST: u64 = 64 * 1024;
/// What may wait before an ifb, in packets: as before a veth, instead of the kernel's 32.
const PACKETS: u32 = 1000;

/// A `bandwidth` configuration.
#[derive(Debug)]
pub struct Bandwidth {
    /// Towards the container.
    ingress: Option<Rate>,
    /// From the container.
    egress: Option<Rate>,
    /// Which packets; none for all.
    subnets: Option<Subnets>,
}

impl Bandwidth {
    /// Reads the configuration; any of the four keys in it outdoes all of `runtimeConfig.bandwidth`.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        const KEYS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];
        let runtime = conf.json.object("runtimeConfig")?.map(|runtime| runtime.object("bandwidth")).transpose()?;
        let of = match runtime.flatten() {
            Some(runtime) if !KEYS.iter().any(|key| conf.json.has(key)) => runtime,
            _ => &conf.json,
        };
        // A runtime that names no subnets means those of the configuration.
        let subnets = subnets(of)?.map_or_else(|| subnets(&conf.json), |subnets| Ok(Some(subnets)))?;
        let (ingress, egress) = (rate(of, "ingressRate", "ingressBurst")?, rate(of, "egressRate", "egressBurst")?);
        Ok(Self { ingress, egress, subnets })
    }

    fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

/// Reads `shapedSubnets` or `unshapedSubnets`.
fn subnets(json: &Json) -> Result<Option<Subnets>, Error> {
    let of = |key: &str| {
        let parse = |text: &String| {
            let net =
                text.parse::<IpNet>().map_err(|err| Error::config(format!("{key:?}: bad subnet {text:?}: {err}")));
            net.map(|net| net.trunc())
        };
        json.strings(key)?.iter().map(parse).collect::<Result<Vec<_>, Error>>()
    };
    let (shaped, unshaped) = (of("shapedSubnets")?, of("unshapedSubnets")?);
    let (only, nets) = match (shaped.len(), unshaped.len()) {
        (0, 0) => return Ok(None),
        (_, 0) => (true, shaped),
        (0, _) => (false, unshaped),
        _ => return Err(Error::config("\"shapedSubnets\" and \"unshapedSubnets\" exclude each other")),
    };
    if nets.len() > MOST_SUBNETS {
        return Err(Error::config(format!("{} subnets are more than {MOST_SUBNETS}", nets.len())));
    }
    Ok(Some(Subnets { only, nets }))
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

/// Where the container's packets can be held up.
enum Place {
    /// A veth: on either end.
    Veth {
        /// The end on the host's side.
        host: LinkRef,
    },
    /// Any other interface: all in the container.
    Pod,
}

fn place(call: &Call<'_>, prev: &AddResult, facts: &Facts, pod: &LinkFact) -> Result<Place, Error> {
    let name = call.ifname.as_str();
    match pod.kind.as_str() {
        "veth" => {}
        _ if pod.index == LOOPBACK => {
            return Err(Error::config(format!("container interface {name:?} is the loopback: nothing shapes it")));
        }
        _ => return Ok(Place::Pod),
    }
    let is_end = |at: &LinkRef| {
        let is_peer = |index: u32| pod.parent.map_or(*at == LinkRef::host(call.host_veth()), |peer| peer == index);
        facts.link(at).is_some_and(|fact| fact.kind == "veth" && is_peer(fact.index))
    };
    let host = host_links(prev).find(is_end);
    let host =
        host.ok_or_else(|| Error::internal(format!("no veth peer of container interface {name:?} found in host ns")))?;
    Ok(Place::Veth { host })
}

impl Bandwidth {
    /// The best queue of a kernel that has these features, for what is asked: behind `tbf` every packet is shaped.
    fn best(&self, has: impl Fn(Feature) -> bool) -> Option<Queue> {
        let best = Queue::best(&has)?;
        let serves = best.lets_pass() || !best.has_program() || self.subnets.is_none();
        Some(if serves || !has(Feature::Htb) { best } else { Queue::Htb })
    }

    /// The shaping of a veth.
    fn of_veth(&self, call: &Call<'_>, queue: Queue, facts: &Facts, host: LinkRef, mtu: u32) -> Vec<Step> {
        let to_pod = |rate| {
            let queue = with_room(queue, &host, facts);
            Shaper { at: host.clone(), toward: Toward::Pod, queue, rate, mtu }
        };
        let to_pod = self.ingress.map(to_pod);
        let from_pod = self.sent(call, queue, facts, mtu);
        let guard = from_pod.is_some().then_some(host).filter(|_| queue.has_program());
        let shapers = to_pod.into_iter().chain(from_pod).collect();
        vec![Step::AddShaping(Shaping { shapers, guard, subnets: self.subnets.clone() })]
    }

    /// The shaping of an interface that has no end on the host's side: what comes in is sent through an ifb.
    fn of_pod(&self, call: &Call<'_>, queue: Queue, facts: &Facts, mtu: u32) -> Vec<Step> {
        let ifb = call.ifb();
        // What an ifb gives back still bears the departure time that `fq` went by, and a socket that asks when a packet
        // came in would be told that.
        let untimed = self.best(|feature| feature != Feature::Fq && facts.has(feature)).unwrap_or(queue);
        let to_pod = |rate| Shaper { at: ifb.clone(), toward: Toward::Pod, queue: untimed, rate, mtu };
        let shapers: Vec<Shaper> =
            self.ingress.map(to_pod).into_iter().chain(self.sent(call, queue, facts, mtu)).collect();
        let sent = shapers.iter().find(|shaper| shaper.toward == Toward::Network);
        let guard = sent.filter(|_| facts.has(Feature::PacketGuard));
        let guard = guard.and_then(|shaper| PacketGuard::of(shaper, self.subnets.as_ref())).map(Step::AddPacketGuard);
        let guards = guard.into_iter().chain(sent.and_then(|_| xsk_guard(call, facts)));
        let guards: Vec<Step> = guards.collect();
        let shaping = Step::AddShaping(Shaping { shapers, guard: None, subnets: self.subnets.clone() });
        if self.ingress.is_none() {
            return [shaping].into_iter().chain(guards).collect();
        }
        let link = Link { at: ifb.clone(), mac: None, mtu: Some(mtu), up: false, master: None, kind: LinkKind::Ifb };
        // An address of its own would only make it send.
        let key = format!("net/ipv6/conf/{}/disable_ipv6", ifb.name);
        let steps = [
            Step::AddLink(link),
            Step::SetLink { at: ifb.clone(), to: LinkAttr::TxQueueLen(PACKETS), from: None },
            shaping,
            Step::SetSysctl(Sysctl { ns: Ns::Pod, key, value: "1".to_owned(), optional: true }),
            Step::SetLink { at: ifb.clone(), to: LinkAttr::Up(true), from: None },
            Step::AddRedirect { from: call.pod(), to: ifb },
        ];
        steps.into_iter().chain(guards).collect()
    }

    /// The shaper of what the container sends.
    fn sent(&self, call: &Call<'_>, queue: Queue, facts: &Facts, mtu: u32) -> Option<Shaper> {
        let queue = with_room(queue, &call.pod(), facts);
        self.egress.map(|rate| Shaper { at: call.pod(), toward: Toward::Network, queue, rate, mtu })
    }

    /// Refuses to shape what the subnets leave out.
    fn refuse_shaping_all(&self, steps: &[Step]) -> Result<(), Error> {
        match shapers(steps).find(|shaper| self.subnets.is_some() && !shaper.queue.lets_pass()) {
            Some(Shaper { at, queue, .. }) => {
                let sentence = "subnets need eBPF, and fq or htb";
                Err(Error::internal(format!("{sentence}, and this kernel shapes {at} by {queue}")))
            }
            None => Ok(()),
        }
    }

    /// What comes in to this interface passes no filter of its own.
    fn refuse_l3s(&self, call: &Call<'_>, pod: &LinkFact) -> Result<(), Error> {
        if self.ingress.is_some() && pod.kind == "ipvlan" && pod.mode == Some(IpvlanMode::L3s.name()) {
            let name = call.ifname.as_str();
            let sentence = "what an ipvlan of mode l3s receives can't be shaped; modes l2 and l3 can";
            return Err(Error::config(format!("\"ingressRate\" for container interface {name:?}: {sentence}")));
        }
        Ok(())
    }
}

/// What holds the container's `AF_XDP` sockets; none where the link below is the container's own, or the kernel can't tell
/// whose they are.
fn xsk_guard(call: &Call<'_>, facts: &Facts) -> Option<Step> {
    let below = facts.below.get(&call.pod()).filter(|_| facts.has(Feature::XskGuard))?;
    Some(Step::AddXskGuard(XskGuard { below: below.clone(), netns: facts.netns?, owner: call.owner() }))
}

fn shapers(steps: &[Step]) -> impl Iterator<Item = &Shaper> {
    fn of(step: &Step) -> &[Shaper] {
        match step {
            Step::AddShaping(shaping) => &shaping.shapers,
            _ => &[],
        }
    }
    steps.iter().flat_map(of)
}

/// Refuses to replace a queue that somebody chose, who would not get it back, and to hang a program beside one where it
/// would see the wrong packets.
fn refuse_queued(steps: &[Step], facts: &Facts) -> Result<(), Error> {
    for Shaper { at, queue, .. } in shapers(steps) {
        let Some(fact) = facts.shaped.get(at) else { continue };
        if fact.is_chosen {
            return Err(Error::internal(format!("link {at} is queued by {:?} already", fact.queue)));
        }
        if fact.has_ingress && queue.has_program() {
            let sentence = "has a queue of kind \"ingress\", beside which nothing can see what leaves";
            return Err(Error::internal(format!("link {at} {sentence}; \"clsact\" would do both")));
        }
    }
    Ok(())
}

/// What to say where a container without an end on the host's side is limited and nothing holds some of its sockets.
fn unguarded(steps: &[Step], facts: &Facts) -> Vec<String> {
    let is_sent_in_pod = |step: &Step| match step {
        Step::AddShaping(shaping) => shaping.is_in_pod() && shaping.shaper(Toward::Network).is_some(),
        _ => false,
    };
    if !steps.iter().any(is_sent_in_pod) {
        return Vec::new();
    }
    let guards =
        [("packet sockets that pass its queue by", Feature::PacketGuard), ("sockets of AF_XDP", Feature::XskGuard)];
    let lacking = guards.into_iter().filter(|(_, guard)| !facts.has(*guard));
    let sentence = |(sockets, guard): (&str, Feature)| {
        format!("{sockets} (CAP_NET_RAW) are not held to \"egressRate\": the kernel lacks {}", guard.name())
    };
    lacking.map(sentence).collect()
}

/// `queue`, or another where the link's transmit queue, of which `pfifo_fast` has three, holds no packet.
fn with_room(queue: Queue, at: &LinkRef, facts: &Facts) -> Queue {
    let has_none = facts.link(at).is_some_and(|link| link.tx_queue_len == 0);
    if has_none && queue == Queue::TbfPfifoFast && facts.has(Feature::Htb) { Queue::Htb } else { queue }
}

/// What shapes on this kernel, or what it lacks.
fn found(queue: Option<Queue>, facts: &Facts) -> Result<Queue, Error> {
    queue.ok_or_else(|| {
        let missing = LADDER.iter().filter(|feature| !facts.has(**feature)).map(|feature| feature.name());
        let missing = missing.collect::<Vec<_>>().join(", ");
        Error::internal(format!("this kernel can't shape: it lacks {missing}; see `braid doctor`"))
    })
}

impl Plugin for Bandwidth {
    fn addresses(&self) -> Addresses {
        Addresses::Never
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let Some(prev) = call.prev.filter(|_| !self.is_unlimited()) else { return Vec::new() };
        let mut needs = vec![Need::Features(ASKED), Need::Link(call.pod()), Need::Shaped(call.pod())];
        if self.egress.is_some() {
            needs.extend([Need::Below(call.pod()), Need::Netns]);
        }
        for at in host_links(prev) {
            needs.extend([Need::Link(at.clone()), Need::Shaped(at)]);
        }
        needs
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
        let queue = found(self.best(|feature| facts.has(feature)), facts)?;
        let name = call.ifname.as_str();
        let pod = facts.link(&call.pod());
        let pod = pod.ok_or_else(|| Error::internal(format!("interface {name:?} does not exist in the container")))?;
        self.refuse_l3s(call, pod)?;
        let mut result = prev;
        let steps = match place(call, &result, facts, pod)? {
            Place::Veth { host } => self.of_veth(call, queue, facts, host, pod.mtu),
            Place::Pod => self.of_pod(call, queue, facts, pod.mtu),
        };
        self.refuse_shaping_all(&steps)?;
        refuse_queued(&steps, facts)?;
        let mut steps = steps;
        if steps.iter().any(|step| matches!(step, Step::AddLink(_))) {
            let (name, sandbox) = (call.ifb().name.to_string(), call.sandbox.to_owned());
            result.interfaces.push(Interface { name, sandbox, ..Interface::default() });
        }
        let gso = self.sent(call, queue, facts, pod.mtu).and_then(|shaper| shaper.gso_max_size());
        steps.extend(gso.filter(|size| *size < pod.gso_max_size).map(|size| Step::SetLink {
            at: call.pod(),
            to: LinkAttr::GsoMaxSize(size),
            from: Some(LinkAttr::GsoMaxSize(pod.gso_max_size)),
        }));
        Ok(Planned { warnings: unguarded(&steps, facts), steps, result })
    }

    fn remnants(&self, call: &Call<'_>) -> Vec<Step> {
        vec![
            Step::DelPacketGuard(call.pod()),
            Step::DelXskGuardsOf(call.owner()),
            Step::DelLink(LinkRef::host(call.reference_ifb())),
            // Last, so that it goes together with the link of the plugin before this one.
            Step::DelLink(call.ifb()),
        ]
    }

    fn kind(&self) -> Option<&'static str> {
        None
    }

    fn status_needs(&self) -> Vec<Need> {
        vec![Need::Features(LADDER)]
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        let queue = found(facts.best_queue(), facts).map_err(|err| Error::not_available(err.msg))?;
        Ok(shortcoming(queue, |feature| facts.has(feature)).map(|why| format!("bandwidth by {queue}: {why}")))
    }
}

/// Why this kernel does no better than `queue`; none where nothing is better.
pub fn shortcoming(queue: Queue, has: impl Fn(Feature) -> bool) -> Option<String> {
    let lacking: Vec<&str> = queue.lacking(has).into_iter().map(Feature::name).collect();
    (!lacking.is_empty()).then(|| format!("the kernel lacks {}", lacking.join(", ")))
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
    fn subnets_of_the_runtime_go_before_those_of_the_configuration() {
        let nets = |runtime: &str| {
            let text = format!(
                r#"{{"cniVersion": "1.1.0", "name": "net", "type": "bandwidth", "shapedSubnets": ["10.0.0.0/8"],
                    "runtimeConfig": {{"bandwidth": {{"ingressRate": 8000, "ingressBurst": 8000{runtime}}}}}}}"#
            );
            let conf = NetConf::parse(text.as_bytes()).expect("a configuration");
            Bandwidth::parse(&conf).expect("good").subnets.expect("some").nets
        };
        let net = |text: &str| vec![text.parse::<IpNet>().expect("a subnet")];
        assert_eq!(nets(""), net("10.0.0.0/8"));
        assert_eq!(nets(r#", "unshapedSubnets": ["10.9.0.0/16"]"#), net("10.9.0.0/16"));
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
            (r#"{"shapedSubnets": ["10.0.0.0/8"], "unshapedSubnets": ["10.0.0.0/9"]}"#, "exclude each other"),
            (r#"{"shapedSubnets": ["10.0.0.0"]}"#, "bad subnet \"10.0.0.0\""),
            (r#"{"unshapedSubnets": ["10.0.0.0/33"]}"#, "bad subnet"),
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
