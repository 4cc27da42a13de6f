//! `bandwidth`: rate limits for a container's ingress and egress, on any kind of interface.

mod adjust;
mod conf;

pub use conf::Bandwidth;

use crate::cni::{AddResult, Error, Interface};
use crate::ipam::Lease;
use crate::kernel_numbers::LOOPBACK_IFINDEX;
use crate::name::Ns;
use crate::plan::facts::LinkFact;
use crate::plan::queue_fallback::{ASKED, LADDER, Queue};
use crate::plan::step::{OwnedKind, Step};
use crate::plan::thing::link::IpvlanMode;
use crate::plan::thing::shaping::{Shaper, Toward};
use crate::plan::thing::{
    Attr, Link, LinkAttr, LinkKind, LinkRef, PacketGuard, Redirect, Shaping, Thing, XskGuard,
    XskLink,
};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::host_links;
use crate::plugins::{Adjustment, Call, Planned, Plugin};

/// MTU of an ifb in bytes: one less than IPv6 needs (RFC 8200 section 5). The kernel therefore
/// gives the ifb neither IPv6 nor a link-local address. A link-local address would only make the
/// ifb send packets. The kernel never compares a packet with the MTU of an ifb.
const IFB_MTU: u32 = 1279;
/// Transmit queue length of an ifb in packets: as for a veth, instead of the kernel's 32.
const PACKETS: u32 = 1000;

/// Link on which the container's packets are shaped.
enum ShapedSide {
    /// A pair of links, a veth or a netkit, is shaped on the host's end.
    Pair {
        /// The host's end.
        host: LinkRef,
    },
    /// Any other interface is shaped inside the container.
    Pod,
}

fn place(
    call: &Call<'_>,
    prev: &AddResult,
    facts: &Facts,
    pod: &LinkFact,
) -> Result<ShapedSide, Error> {
    let name = call.ifname.as_str();
    if pod.index == LOOPBACK_IFINDEX {
        return Err(Error::config(format!(
            "container interface {name:?} is the loopback, which can't be shaped"
        )));
    }
    if !pod.is_end() {
        return Ok(ShapedSide::Pod);
    }
    let own = [call.host_veth(), call.host_netkit()].map(LinkRef::host);
    let is_end = |at: &LinkRef| {
        let is_peer = |index: u32| pod.parent.map_or(own.contains(at), |peer| peer == index);
        facts
            .link(at)
            .is_some_and(|fact| fact.kind == pod.kind && is_peer(fact.index))
    };
    let host = host_links(prev)
        .find(is_end)
        .or_else(|| facts.peers.get(&call.pod()).cloned());
    let kind = &pod.kind;
    let host = host.ok_or_else(|| {
        Error::internal(format!(
            "no {kind} peer of container interface {name:?} found in host ns"
        ))
    })?;
    Ok(ShapedSide::Pair { host })
}

impl Bandwidth {
    /// Returns the best queue for this configuration on a kernel with these features. `tbf` shapes
    /// every packet, so it does not serve subnets.
    fn best(&self, has: impl Fn(Feature) -> bool) -> Option<Queue> {
        let best = Queue::best(&has)?;
        let serves = best.lets_pass() || !best.has_program() || self.subnets.is_none();
        Some(if serves || !has(Feature::Htb) {
            best
        } else {
            Queue::Htb
        })
    }

    /// Returns the steps that shape a link pair on its host end alone. The container keeps control
    /// of the root queue and the filters of its end. An ifb shapes the packets from the container.
    fn of_pair(
        &self,
        call: &Call<'_>,
        queue: Queue,
        facts: &Facts,
        host: LinkRef,
        mtu: u32,
    ) -> Vec<Step> {
        let mut shapers = Vec::new();
        if let Some(rate) = self.ingress {
            shapers.push(Shaper {
                at: host.clone(),
                toward: Toward::Pod,
                queue: with_room(queue, &host, facts),
                rate,
                mtu,
            });
        }
        let Some(rate) = self.egress else {
            return vec![Step::add(self.shaping(call, shapers))];
        };
        let ifb = call.ifb(Ns::Host);
        shapers.push(Shaper {
            at: ifb.clone(),
            toward: Toward::Network,
            queue: self.untimed(queue, facts),
            rate,
            mtu,
        });
        let shaping = self.shaping(call, shapers);
        through_ifb(ifb.clone(), host, shaping, Some(call.mark(ifb)))
    }

    /// Returns the steps that shape an interface without a host end. An ifb shapes the packets to
    /// the container.
    fn of_pod(&self, call: &Call<'_>, queue: Queue, facts: &Facts, mtu: u32) -> Vec<Step> {
        let ifb = call.ifb(Ns::Pod);
        let (mut shapers, mut guards) = (Vec::new(), Vec::new());
        if let Some(rate) = self.ingress {
            shapers.push(Shaper {
                at: ifb.clone(),
                toward: Toward::Pod,
                queue: self.untimed(queue, facts),
                rate,
                mtu,
            });
        }
        if let Some(rate) = self.egress {
            let shaper = Shaper {
                at: call.pod(),
                toward: Toward::Network,
                queue: with_room(queue, &call.pod(), facts),
                rate,
                mtu,
            };
            if facts.has(Feature::PacketGuard) {
                let guard = PacketGuard::of(&shaper, self.subnets.as_ref());
                guards.extend(guard.map(Step::add));
            }
            guards.extend(xsk_guard(call, facts));
            shapers.push(shaper);
        }
        let shaping = self.shaping(call, shapers);
        let mut steps = match self.ingress {
            Some(_) => through_ifb(ifb, call.pod(), shaping, None),
            None => vec![Step::add(shaping)],
        };
        steps.append(&mut guards);
        steps
    }

    fn shaping(&self, call: &Call<'_>, shapers: Vec<Shaper>) -> Shaping {
        Shaping {
            owner: call.owner.short(),
            shapers,
            subnets: self.subnets.clone(),
        }
    }

    /// Returns the queue for an ifb: the best queue other than `fq`, or `queue` if the kernel has
    /// no other. A packet from an ifb would still carry the departure time that `fq` set. A socket
    /// would report that time as the packet's receive time.
    fn untimed(&self, queue: Queue, facts: &Facts) -> Queue {
        self.best(|feature| feature != Feature::Fq && facts.has(feature))
            .unwrap_or(queue)
    }

    /// Refuses a queue that shapes every packet if the configuration selects packets by subnet.
    fn refuse_shaping_all(&self, steps: &[Step]) -> Result<(), Error> {
        match shapers(steps).find(|shaper| self.subnets.is_some() && !shaper.queue.lets_pass()) {
            Some(Shaper { at, queue, .. }) => {
                let sentence = "subnets need eBPF with fq or htb";
                Err(Error::internal(format!(
                    "{sentence}, but this kernel shapes {at} with {queue}"
                )))
            }
            None => Ok(()),
        }
    }

    /// Refuses ingress shaping for an ipvlan of mode l3s. The packets that such an interface
    /// receives pass none of its filters.
    fn refuse_l3s(&self, call: &Call<'_>, pod: &LinkFact) -> Result<(), Error> {
        if self.ingress.is_some()
            && pod.kind == "ipvlan"
            && pod.mode == Some(IpvlanMode::L3s.name())
        {
            let name = call.ifname.as_str();
            let sentence = "ingress of an ipvlan of mode l3s can't be shaped; use mode l2 or l3";
            return Err(Error::config(format!(
                "\"ingressRate\" for container interface {name:?}: {sentence}"
            )));
        }
        Ok(())
    }
}

/// Returns the steps that redirect packets received by `from` to a new ifb, which shapes them.
fn through_ifb(ifb: LinkRef, from: LinkRef, shaping: Shaping, mark: Option<Step>) -> Vec<Step> {
    let set = |to| {
        Step::add(Attr {
            at: ifb.clone(),
            to,
        })
    };
    let kind = LinkKind::Ifb;
    let link = Link {
        at: ifb.clone(),
        mac: None,
        mtu: Some(IFB_MTU),
        up: false,
        master: None,
        kind,
    };
    let mut steps = vec![Step::add(link), set(LinkAttr::TxQueueLen(PACKETS))];
    steps.extend(mark);
    steps.extend([
        Step::add(shaping),
        set(LinkAttr::Up(true)),
        Step::add(Redirect { from, to: ifb }),
    ]);
    steps
}

/// Returns the steps that keep the container's `AF_XDP` sockets from bypassing the egress limit;
/// empty if the kernel lacks the feature.
fn xsk_guard(call: &Call<'_>, facts: &Facts) -> Vec<Step> {
    let (Some(netns), true) = (facts.netns, facts.has(Feature::XskBind)) else {
        return Vec::new();
    };
    let guard = XskGuard {
        netns,
        owner: call.owner.short(),
    };
    let was_there = facts.link(&call.pod()).is_some_and(|link| link.index != 0);
    vec![
        Step::add(guard.clone()),
        Step::ensure(XskLink {
            guard,
            at: call.pod(),
            was_there,
        }),
    ]
}

fn shapers(steps: &[Step]) -> impl Iterator<Item = &Shaper> {
    fn shapers_in(step: &Step) -> &[Shaper] {
        if let Step::Add(Thing::Shaping(shaping)) = step {
            &shaping.shapers
        } else {
            &[]
        }
    }
    steps.iter().flat_map(shapers_in)
}

/// Refuses a link if its received packets are already redirected. Refuses a link with a root queue
/// that an administrator chose, because no later step would restore that queue. Refuses an egress
/// program on a link with the qdisc `ingress`, because `ingress` has no egress filters.
fn refuse_queued(steps: &[Step], facts: &Facts) -> Result<(), Error> {
    for step in steps {
        let Step::Add(Thing::Redirect(Redirect { from, .. })) = step else {
            continue;
        };
        let present = facts.shaped.get(from);
        if present.is_some_and(|fact| fact.redirected_to.is_some()) {
            return Err(Error::internal(format!(
                "packets received by link {from} are already redirected to another link"
            )));
        }
    }
    for Shaper { at, queue, .. } in shapers(steps) {
        let Some(fact) = facts.shaped.get(at) else {
            continue;
        };
        if fact.is_chosen {
            return Err(Error::internal(format!(
                "link {at} already has root qdisc {:?}",
                fact.queue
            )));
        }
        if fact.has_ingress && queue.has_program() {
            let sentence = "has qdisc \"ingress\", which has no egress filters";
            return Err(Error::internal(format!(
                "link {at} {sentence}; replace it with \"clsact\""
            )));
        }
    }
    Ok(())
}

/// Returns a warning for each kind of socket that bypasses the egress limit of an interface without
/// a host end.
fn unguarded(steps: &[Step], facts: &Facts) -> Vec<String> {
    let is_in_pod =
        |shaping: &Shaping| shaping.is_all_in(Ns::Pod) && shaping.shaper(Toward::Network).is_some();
    let is_sent_in_pod =
        |step: &Step| matches!(step, Step::Add(Thing::Shaping(shaping)) if is_in_pod(shaping));
    if !steps.iter().any(is_sent_in_pod) {
        return Vec::new();
    }
    let guards = [
        ("packet sockets that bypass the queue", Feature::PacketGuard),
        ("AF_XDP sockets", Feature::XskBind),
    ];
    let is_there =
        |guard| facts.has(guard) && (guard == Feature::PacketGuard || facts.netns.is_some());
    let mut warnings = Vec::new();
    for (sockets, guard) in guards {
        if !is_there(guard) {
            warnings.push(format!(
                "{sockets} (CAP_NET_RAW) are not limited by \"egressRate\": the kernel lacks {}",
                guard.name()
            ));
        }
    }
    warnings
}

/// Returns HTB if `queue` is TBF with `pfifo_fast`, the link's `txqueuelen` is 0 and the kernel has
/// HTB. Otherwise returns `queue`. Each band of `pfifo_fast` holds `txqueuelen` packets, so on such
/// a link the bands would hold none.
fn with_room(queue: Queue, at: &LinkRef, facts: &Facts) -> Queue {
    let has_none = facts.link(at).is_some_and(|link| link.tx_queue_len == 0);
    if has_none && queue == Queue::TbfPfifoFast && facts.has(Feature::Htb) {
        Queue::Htb
    } else {
        queue
    }
}

/// Returns `queue`. If it is `None`, the error lists the kernel features that shaping needs.
fn found(queue: Option<Queue>, facts: &Facts) -> Result<Queue, Error> {
    if let Some(queue) = queue {
        return Ok(queue);
    }
    let mut missing = Vec::new();
    for feature in LADDER {
        if !facts.has(*feature) {
            missing.push(feature.name());
        }
    }
    Err(Error::internal(format!(
        "this kernel can't shape: it lacks {}; see `braid doctor`",
        missing.join(", ")
    )))
}

/// Returns the entry in `interfaces` of the CNI result for the ifb that `steps` create; `None` if
/// the steps create no ifb.
fn ifb_interface(steps: &[Step], call: &Call<'_>) -> Option<Interface> {
    for step in steps {
        let Step::Add(Thing::Link(link)) = step else {
            continue;
        };
        let sandbox = match link.at.ns {
            Ns::Pod => call.sandbox,
            Ns::Host => "",
        };
        return Some(Interface {
            name: link.at.name.to_string(),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        });
    }
    None
}

/// Returns the step that lowers the maximum size of the interface's GSO packets to the size that
/// its egress shaper handles; `None` if no change is needed.
fn limit_gso(steps: &[Step], call: &Call<'_>, pod: &LinkFact) -> Option<Step> {
    let sent = shapers(steps).find(|shaper| shaper.toward == Toward::Network)?;
    let size = sent.gso_max_size()?;
    if size >= pod.gso_max_size {
        return None;
    }
    Some(Step::Set {
        at: call.pod(),
        to: LinkAttr::GsoMaxSize(size),
        from: LinkAttr::GsoMaxSize(pod.gso_max_size),
    })
}

impl Plugin for Bandwidth {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let (Some(prev), false) = (call.prev, self.is_unlimited()) else {
            return Vec::new();
        };
        let mut needs = vec![
            Need::Features(ASKED),
            Need::Link(call.pod()),
            Need::Shaped(call.pod()),
        ];
        if self.egress.is_some() {
            needs.push(Need::Netns);
        }
        // Results before CNI 0.3.0 name no interface, so the kernel is queried for the other end.
        if host_links(prev).next().is_none() {
            needs.push(Need::Peer(call.pod()));
        }
        for at in host_links(prev) {
            needs.extend([Need::Link(at.clone()), Need::Shaped(at)]);
        }
        needs
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let prev = match call.prev {
            Some(prev) => prev.clone(),
            None if self.is_unlimited() => AddResult::default(),
            None => return Err(Error::config("must be called as chained plugin")),
        };
        if self.is_unlimited() {
            return Ok(Planned {
                result: prev,
                ..Planned::default()
            });
        }
        let queue = found(self.best(|feature| facts.has(feature)), facts)?;
        let name = call.ifname.as_str();
        let pod = facts.link(&call.pod());
        let pod = pod.ok_or_else(|| {
            Error::internal(format!(
                "interface {name:?} does not exist in the container"
            ))
        })?;
        self.refuse_l3s(call, pod)?;
        let mut result = prev;
        let mut steps = match place(call, &result, facts, pod)? {
            ShapedSide::Pair { host } => self.of_pair(call, queue, facts, host, pod.mtu),
            ShapedSide::Pod => self.of_pod(call, queue, facts, pod.mtu),
        };
        self.refuse_shaping_all(&steps)?;
        refuse_queued(&steps, facts)?;
        result.interfaces.extend(ifb_interface(&steps, call));
        steps.extend(limit_gso(&steps, call, pod));
        Ok(Planned {
            warnings: unguarded(&steps, facts),
            steps,
            result,
        })
    }

    fn adjusts(&self, present: &[Step]) -> bool {
        self.has_subnets_of(present)
    }

    fn adjust(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        present: &[Step],
    ) -> Result<Adjustment, Error> {
        self.adjusted(call, facts, present)
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![
            Step::del(PacketGuard::any(call.pod())),
            Step::Forget(OwnedKind::XskGuards, call.owner.short()),
            Step::del(Link::any(LinkRef::host(call.reference_ifb()))),
            Step::del(Link::any(call.ifb(Ns::Host))),
            Step::del(Link::any(call.ifb(Ns::Pod))),
        ]
    }

    fn is_reconstructible(&self) -> bool {
        false
    }

    fn status_needs(&self) -> Vec<Need> {
        vec![Need::Features(LADDER)]
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        let queue =
            found(facts.best_queue(), facts).map_err(|err| Error::not_available(err.msg))?;
        Ok(shortcoming(queue, |feature| facts.has(feature))
            .map(|why| format!("bandwidth uses {queue}: {why}")))
    }
}

/// Returns the kernel features that a better queue than `queue` needs, as a text; `None` if `queue`
/// is the best.
pub fn shortcoming(queue: Queue, has: impl Fn(Feature) -> bool) -> Option<String> {
    let lacking: Vec<&str> = queue.lacking(has).into_iter().map(Feature::name).collect();
    (!lacking.is_empty()).then(|| format!("the kernel lacks {}", lacking.join(", ")))
}
