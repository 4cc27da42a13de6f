//! Inverse of a step, and rollback of a list of steps.

use super::step::Step;
use super::thing::{Link, LinkRef, Phase, Thing};
use crate::name::Ns;

impl Step {
    /// Returns the step that rolls this one back; `None` if the step leaves nothing that belongs to
    /// the attachment.
    pub fn inverse(&self) -> Option<Step> {
        match self {
            Self::Add(thing) if thing.state().is_setting() => None,
            Self::Add(thing) => Some(Self::Del(thing.clone())),
            Self::Set { at, to, from } => Some(Self::Set {
                at: at.clone(),
                to: from.clone(),
                from: to.clone(),
            }),
            Self::Retune { to, from } => Some(Self::Retune {
                to: from.clone(),
                from: to.clone(),
            }),
            Self::Ensure(_) | Self::Del(_) | Self::Wait(_) | Self::Forget(..) | Self::Legacy(_) => {
                None
            }
        }
    }

    /// True if both steps roll back the same thing: a link with the same namespace and name, the
    /// same pair by either end, or rate limits with a common link.
    pub fn is_same_undo(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Del(one), Self::Del(other)) => one.is_same(other),
            (one, other) => one == other,
        }
    }

    /// True if this step must be skipped because the step `failed` has failed. A link must not
    /// leave the container before its original attributes are restored. A later attempt would not
    /// find the link in the container.
    pub fn waits_for(&self, failed: &Self) -> bool {
        match (self, failed) {
            (Self::Del(thing), Self::Set { at, .. }) => thing.state().releases() == Some(at),
            _ => false,
        }
    }

    /// Returns the step without the parts that need no rollback. A part needs none if it is deleted
    /// with a link in `deleted`, or leaves the container with a link in `left`. `None` if no part
    /// remains. A step that restores an attribute of a link in `left` is kept, because the link
    /// keeps its attributes.
    fn without(mut self, deleted: &[&LinkRef], left: &[&LinkRef]) -> Option<Step> {
        let links = match &self {
            Self::Del(thing) => thing.state().goes_with(),
            Self::Set { at, .. } => vec![at],
            Self::Add(_)
            | Self::Ensure(_)
            | Self::Retune { .. }
            | Self::Wait(_)
            | Self::Forget(..)
            | Self::Legacy(_) => Vec::new(),
        };
        let is_set = matches!(self, Self::Set { .. });
        let gone: Vec<&LinkRef> = deleted
            .iter()
            .chain(left.iter().filter(|_| !is_set))
            .copied()
            .collect();
        if !links.is_empty() && links.iter().all(|link| gone.contains(link)) {
            return None;
        }
        if let Self::Del(thing) = &mut self {
            thing.state_mut().drop_parts(&gone);
        }
        Some(self)
    }
}

/// Returns the steps that roll `steps` back, newest first. A thing that is deleted with its link
/// gets no step.
pub fn undo(steps: &[Step]) -> Vec<Step> {
    let (mut deleted, mut left) = (Vec::new(), Vec::new());
    for step in steps {
        if let Step::Add(thing) = step {
            deleted.extend(thing.state().makes());
            left.extend(thing.state().releases());
        }
    }
    in_turn(
        steps
            .iter()
            .rev()
            .filter_map(Step::inverse)
            .filter_map(|step| step.without(&deleted, &left))
            .collect(),
    )
}

/// Sorts deletions by [`Phase`], and otherwise keeps the order. Links of one namespace become
/// neighbours and share a request, because each request to delete links takes several RCU grace
/// periods.
pub fn in_turn(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| {
        let phase = step.deletion_phase();
        let is_link = phase == Phase::Link;
        (phase, if is_link { step.ns() } else { Ns::Host })
    });
    by_ends_in_pod(&mut steps);
    steps
}

/// Deletes pairs by their ends in the container, if a single request can then delete all links. A
/// request covers one namespace, but also deletes the other end of each pair. So at least one other
/// link must be deleted in the container. Every link to delete on the host must be the end of such
/// a pair, because any other link there needs a second request anyway.
fn by_ends_in_pod(steps: &mut [Step]) {
    let links = || {
        steps.iter().filter_map(|step| {
            if let Step::Del(Thing::Link(link)) = step {
                Some(link)
            } else {
                None
            }
        })
    };
    let (host, pod) = links().partition::<Vec<&Link>, _>(|link| link.at.ns == Ns::Host);
    let is_one_request = !pod.is_empty() && host.iter().all(|link| link.from_pod().is_some());
    if !is_one_request {
        return;
    }
    for step in steps {
        if let Step::Del(Thing::Link(link)) = step
            && let Some(pair) = link.from_pod()
        {
            *link = pair;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;
    use crate::plan::facts::LinkFact;
    use crate::plan::queue_fallback::Queue;
    use crate::plan::thing::shaping::{Rate, Shaper, Toward};
    use crate::plan::thing::{Addr, LinkAttr, LinkKind, Masquerade, Moved, Shaping, XskGuard};

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a good name")
    }

    fn link(at: LinkRef, kind: LinkKind) -> Step {
        Step::add(Link {
            at,
            mac: None,
            mtu: None,
            up: false,
            master: None,
            kind,
        })
    }

    fn veth() -> Step {
        let peer = LinkRef::pod(name("eth0"));
        link(
            LinkRef::host(name("veth1")),
            LinkKind::Veth {
                peer,
                peer_mac: None,
            },
        )
    }

    fn addr(link: LinkRef) -> Addr {
        Addr {
            at: link,
            net: "10.1.0.2/24".parse().expect("a net"),
            no_prefix_route: false,
            no_dad: false,
        }
    }

    fn masquerade() -> Step {
        let source = "10.1.0.2".parse().expect("an address");
        Step::add(Masquerade {
            source,
            network: "10.1.0.0/24".parse().expect("a net"),
            owner: String::new(),
        })
    }

    #[track_caller]
    fn assert_undone(steps: &[Step], commands: &[&str]) {
        let undone: Vec<String> = undo(steps).iter().map(ToString::to_string).collect();
        assert_eq!(undone, commands);
    }

    #[test]
    fn undo_is_newest_first_and_omits_things_deleted_with_a_link() {
        let addrs =
            [LinkRef::pod(name("eth0")), LinkRef::host(name("cni0"))].map(|at| Step::add(addr(at)));
        let steps = [vec![veth()], addrs.to_vec(), vec![masquerade()]].concat();
        let masquerade = "host nft delete element inet braid masquerade4 { 10.1.0.2 }";
        assert_undone(
            &steps,
            &[
                masquerade,
                "host ip addr del 10.1.0.2/24 dev cni0",
                "host ip link del veth1",
            ],
        );
    }

    #[test]
    fn all_links_are_deleted_together_after_the_rest() {
        let steps = [
            veth(),
            masquerade(),
            link(LinkRef::host(name("ifb1")), LinkKind::Ifb),
        ];
        let masquerade = "host nft delete element inet braid masquerade4 { 10.1.0.2 }";
        assert_undone(
            &steps,
            &[
                masquerade,
                "host ip link del ifb1",
                "host ip link del veth1",
            ],
        );
    }

    fn pod_link(text: &str) -> Step {
        link(LinkRef::pod(name(text)), LinkKind::Dummy)
    }

    #[test]
    fn pairs_are_deleted_by_the_container_end_with_its_other_links() {
        let [pair, dummy] = [
            "pod  ip link del eth0 # and veth1 of host",
            "pod  ip link del net1",
        ];
        assert_undone(
            &[veth(), masquerade(), pod_link("net1")],
            &[
                "host nft delete element inet braid masquerade4 { 10.1.0.2 }",
                pair,
                dummy,
            ],
        );
        assert_undone(&[pod_link("net1"), veth()], &[pair, dummy]);
    }

    #[test]
    fn pairs_are_deleted_by_the_host_end_with_another_host_link() {
        let ifb = link(LinkRef::host(name("ifb1")), LinkKind::Ifb);
        let commands = [
            "host ip link del ifb1",
            "host ip link del veth1",
            "pod  ip link del net1",
        ];
        assert_undone(&[veth(), ifb, pod_link("net1")], &commands);
        assert_undone(&[veth()], &["host ip link del veth1"]);
    }

    #[test]
    fn a_pair_is_rolled_back_by_either_end() {
        let recorded = veth().inverse().expect("an inverse");
        let steps = undo(&[veth(), pod_link("net1")]);
        assert!(
            steps[0] != recorded
                && steps[0].is_same_undo(&recorded)
                && recorded.is_same_undo(&steps[0])
        );
        assert!(
            !steps[1].is_same_undo(&recorded)
                && !steps[0].is_same_undo(&Step::del(Link::any(LinkRef::pod(name("eth0")))))
        );
    }

    #[test]
    fn sockets_are_guarded_until_the_links_are_deleted() {
        let guard = XskGuard {
            netns: 7,
            owner: "net c eth0".to_owned(),
        };
        let steps = [veth(), Step::add(guard)];
        let free = "host # remove the AF_XDP guard of \"net c eth0\"";
        assert_undone(&steps, &["host ip link del veth1", free]);
    }

    #[test]
    fn a_queue_is_deleted_with_a_new_link_and_separately_from_others() {
        let (host, ifb) = (LinkRef::host(name("veth1")), LinkRef::host(name("ifb1")));
        let shaper = |at: &LinkRef| Shaper {
            at: at.clone(),
            toward: Toward::Pod,
            queue: Queue::Htb,
            rate: Rate {
                bps: 8_000,
                burst: 8_000,
            },
            mtu: 1500,
        };
        let shapers = [&host, &ifb].map(shaper).to_vec();
        let limits = [
            link(ifb, LinkKind::Ifb),
            Step::add(Shaping {
                owner: String::new(),
                shapers,
                subnets: None,
            }),
        ];
        let unshape = "host tc qdisc del dev veth1 root; tc filter del dev veth1 egress pref 1";
        assert_undone(&limits, &[unshape, "host ip link del ifb1"]);
        let all: Vec<Step> = [veth()].into_iter().chain(limits).collect();
        assert_undone(&all, &["host ip link del ifb1", "host ip link del veth1"]);
    }

    #[test]
    fn a_link_is_rolled_back_by_namespace_and_name_alone() {
        let at = LinkRef::host(name("veth1"));
        assert!(Step::del(Link::any(at)).is_same_undo(&veth().inverse().expect("an inverse")));
        assert!(
            !Step::del(Link::any(LinkRef::host(name("veth2"))))
                .is_same_undo(&veth().inverse().expect("an inverse"))
        );
    }

    #[test]
    fn a_shared_thing_is_never_undone() {
        assert_eq!(
            Step::ensure(addr(LinkRef::host(name("cni0")))).inverse(),
            None
        );
    }

    #[test]
    fn an_overwritten_attribute_gets_its_old_value_back() {
        let at = LinkRef::pod(name("eth1"));
        let set = |to, from| Step::Set {
            at: at.clone(),
            to: LinkAttr::Mtu(to),
            from: LinkAttr::Mtu(from),
        };
        assert_eq!(set(1400, 1500).inverse(), Some(set(1500, 1400)));
    }

    #[test]
    fn attributes_are_restored_before_a_moved_link_leaves_with_its_addresses() {
        let at = LinkRef::pod(name("eth0"));
        let fact = LinkFact::planned("", None, 1500, true);
        let moved = Step::add(Moved::new(at.clone(), name("ens5"), &fact));
        let mtu = Step::Set {
            at: at.clone(),
            to: LinkAttr::Mtu(1400),
            from: LinkAttr::Mtu(1500),
        };
        let ifb = link(LinkRef::pod(name("ifb1")), LinkKind::Ifb);
        let back = r#"pod  ip link set eth0 netns host name ens5 alias "" up"#;
        let commands = [
            "pod  ip link set eth0 mtu 1500",
            back,
            "pod  ip link del ifb1",
        ];
        assert_undone(
            &[moved.clone(), Step::add(addr(at.clone())), mtu.clone(), ifb],
            &commands,
        );
        let other = Step::Set {
            at: LinkRef::pod(name("eth1")),
            to: LinkAttr::Mtu(1400),
            from: LinkAttr::Mtu(1500),
        };
        let leaves = moved.inverse().expect("it goes back");
        assert!(leaves.waits_for(&mtu) && !leaves.waits_for(&other) && !mtu.waits_for(&leaves));
    }

    #[test]
    fn a_step_survives_its_record() {
        let step = veth();
        let text = serde_json::to_string(&step).expect("json");
        assert_eq!(
            serde_json::from_str::<Step>(&text).expect("the step again"),
            step
        );
    }
}
