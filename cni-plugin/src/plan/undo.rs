//! The inverse of each step, and of a whole list.

use super::link::{LinkKind, LinkRef};
use super::shaping::Shaping;
use super::step::{Ns, Step};

impl Step {
    /// The step that takes this one back; none where nothing of this attachment would be left.
    pub fn inverse(&self) -> Option<Step> {
        Some(match self {
            Self::AddLink(link) => Self::DelLink(link.at.clone()),
            Self::SetLink { at, to, from: Some(from) } => {
                Self::SetLink { at: at.clone(), to: from.clone(), from: Some(to.clone()) }
            }
            Self::AddAddr(addr) => Self::DelAddr(addr.clone()),
            Self::AddRoute(route) => Self::DelRoute(route.clone()),
            Self::AddMasquerade(masquerade) => Self::DelMasquerade(masquerade.clone()),
            Self::AddHostPorts(ports) => Self::DelHostPorts(ports.clone()),
            Self::AddFirewall(firewall) => Self::DelFirewall(firewall.clone()),
            Self::AddShaping(shaping) => Self::DelShaping(shaping.clone()),
            Self::AddPacketGuard(guard) => Self::DelPacketGuard(guard.at.clone()),
            Self::AddXskGuard(guard) => Self::DelXskGuard(guard.clone()),
            Self::AddRedirect { from, to } => Self::DelRedirect { from: from.clone(), to: to.clone() },
            Self::AddMacCheck(check) => Self::DelMacCheck(check.clone()),
            _ => return None,
        })
    }

    /// The step, less what goes with these links; none where that is all of it.
    fn without(mut self, gone: &[&LinkRef]) -> Option<Step> {
        let links = self.lives_on();
        if !links.is_empty() && links.iter().all(|link| gone.contains(link)) {
            return None;
        }
        if let Self::DelShaping(Shaping { shapers, .. }) = &mut self {
            shapers.retain(|shaper| !gone.contains(&&shaper.at));
        }
        Some(self)
    }

    /// The links without which the change does not exist either; none where it is no link's.
    fn lives_on(&self) -> Vec<&LinkRef> {
        match self {
            Self::SetLink { at, .. } => vec![at],
            Self::AddAddr(addr) | Self::DelAddr(addr) => vec![&addr.at],
            Self::AddRoute(route) | Self::DelRoute(route) => vec![&route.at],
            Self::AddShaping(shaping) | Self::DelShaping(shaping) => shaping.links().collect(),
            Self::AddRedirect { from, .. } | Self::DelRedirect { from, .. } => vec![from],
            _ => Vec::new(),
        }
    }
}

/// The steps that take `steps` back, newest first, without those that a deleted link takes along anyway.
pub fn undo(steps: &[Step]) -> Vec<Step> {
    let mut gone = Vec::new();
    for step in steps {
        if let Step::AddLink(link) = step {
            gone.push(&link.at);
            if let LinkKind::Veth { peer, .. } = &link.kind {
                gone.push(peer);
            }
        }
    }
    in_turn(steps.iter().rev().filter_map(Step::inverse).filter_map(|step| step.without(&gone)).collect())
}

/// The order in which things go away, otherwise the given one. Links go at once when the rest is gone, those of one namespace
/// together, since each request for them takes several RCU grace periods. The hold on the container's sockets goes when there is nothing left to send
/// through.
pub fn in_turn(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| match step {
        Step::DelLink(at) => (1, at.ns),
        Step::DelXskGuard(_) | Step::DelXskGuardsOf(_) => (2, Ns::Host),
        _ => (0, Ns::Host),
    });
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ladder::Queue;
    use crate::plan::link::{Link, LinkAttr};
    use crate::plan::name::IfName;
    use crate::plan::nft::Masquerade;
    use crate::plan::shaping::{Rate, Shaper, Toward};
    use crate::plan::step::Addr;
    use crate::plan::xsk::XskGuard;

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a good name")
    }

    fn veth() -> Step {
        let peer = LinkRef::pod(name("eth0"));
        Step::AddLink(Link {
            at: LinkRef::host(name("veth1")),
            mac: None,
            mtu: None,
            up: true,
            master: None,
            kind: LinkKind::Veth { peer, peer_mac: None },
        })
    }

    fn addr(link: LinkRef) -> Addr {
        Addr { at: link, net: "10.1.0.2/24".parse().expect("a net"), no_prefix_route: false, no_dad: false }
    }

    #[test]
    fn undo_is_newest_first_and_leaves_out_what_dies_with_a_deleted_link() {
        let masquerade = Masquerade {
            source: "10.1.0.2".parse().expect("an address"),
            network: "10.1.0.0/24".parse().expect("a net"),
            owner: String::new(),
        };
        let bridge_addr = addr(LinkRef::host(name("cni0")));
        let steps = [
            veth(),
            Step::AddAddr(addr(LinkRef::pod(name("eth0")))),
            Step::AddAddr(bridge_addr.clone()),
            Step::AddMasquerade(masquerade.clone()),
        ];
        assert_eq!(
            undo(&steps),
            [Step::DelMasquerade(masquerade), Step::DelAddr(bridge_addr), Step::DelLink(LinkRef::host(name("veth1")))]
        );
    }

    #[test]
    fn all_links_go_at_once_when_the_rest_is_gone() {
        let ifb = LinkRef::host(name("ifb1"));
        let kind = LinkKind::Ifb;
        let masquerade = Masquerade {
            source: "10.1.0.2".parse().expect("an address"),
            network: "10.1.0.0/24".parse().expect("a net"),
            owner: String::new(),
        };
        let new = Link { at: ifb.clone(), mac: None, mtu: None, up: false, master: None, kind };
        let steps = [veth(), Step::AddMasquerade(masquerade.clone()), Step::AddLink(new)];
        let veth = LinkRef::host(name("veth1"));
        assert_eq!(undo(&steps), [Step::DelMasquerade(masquerade), Step::DelLink(ifb), Step::DelLink(veth)]);
    }

    #[test]
    fn sockets_are_held_until_the_links_are_gone() {
        let guard = XskGuard { below: Some(LinkRef::host(name("lan"))), netns: 7, owner: String::new() };
        let steps = [veth(), Step::AddXskGuard(guard.clone())];
        assert_eq!(undo(&steps), [Step::DelLink(LinkRef::host(name("veth1"))), Step::DelXskGuard(guard)]);
    }

    #[test]
    fn a_queue_goes_with_its_link_and_others_by_themselves() {
        let (veth, ifb) = (LinkRef::host(name("veth1")), LinkRef::host(name("ifb1")));
        let shaper = |at: &LinkRef| Shaper {
            at: at.clone(),
            toward: Toward::Pod,
            queue: Queue::Fq,
            rate: Rate { bps: 8_000, burst: 8_000 },
            mtu: 1500,
        };
        let shaping =
            |of: &[&LinkRef]| Shaping { shapers: of.iter().map(|at| shaper(at)).collect(), guard: None, subnets: None };
        let kind = LinkKind::Ifb;
        let new = Link { at: ifb.clone(), mac: None, mtu: None, up: false, master: None, kind };
        let limits = [Step::AddLink(new), Step::AddShaping(shaping(&[&veth, &ifb]))];
        assert_eq!(undo(&limits), [Step::DelShaping(shaping(&[&veth])), Step::DelLink(ifb.clone())]);
        let all: Vec<Step> = [self::veth()].into_iter().chain(limits).collect();
        assert_eq!(undo(&all), [Step::DelLink(ifb), Step::DelLink(veth)]);
    }

    #[test]
    fn what_an_earlier_version_recorded_is_undone() {
        let of = |place: &str, toward: &str| {
            format!(
                r#"{{"at":{place},"toward":"{toward}","queue":"fq","rate":{{"bps":8000,"burst":8000}},"mtu":1500}}"#
            )
        };
        let (veth, eth) = (r#"{"ns":"host","name":"veth1"}"#, r#"{"ns":"pod","name":"eth0"}"#);
        let shapers = [of(veth, "pod"), of(eth, "network")].join(",");
        let text = format!(r#"{{"AddShaping":{{"shapers":[{shapers}],"guard":{veth},"subnets":null}}}}"#);
        let step: Step = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}"));
        let undone: Vec<String> = undo(&[step]).iter().map(ToString::to_string).collect();
        assert!(undone.concat().ends_with("host tc filter del dev veth1 ingress pref 1"), "{undone:?}");
    }

    #[test]
    fn what_the_node_shares_is_never_undone() {
        let step = Step::EnsureAddr(addr(LinkRef::host(name("cni0"))));
        assert_eq!(step.inverse(), None);
    }

    #[test]
    fn an_overwritten_attribute_goes_back_to_its_old_value() {
        let at = LinkRef::pod(name("eth1"));
        let set = |to, from| Step::SetLink { at: at.clone(), to: LinkAttr::Mtu(to), from: Some(LinkAttr::Mtu(from)) };
        assert_eq!(set(1400, 1500).inverse(), Some(set(1500, 1400)));
    }

    #[test]
    fn a_step_survives_its_record() {
        let step = veth();
        let text = serde_json::to_string(&step).expect("json");
        assert_eq!(serde_json::from_str::<Step>(&text).expect("the step again"), step);
    }
}
