//! Order in which the steps of several plugins are applied.

use super::step::Step;
use super::thing::{Attr, Link, LinkAttr, LinkKind, LinkRef, Phase, Redirect, Shaping, Thing};

/// Sorts the steps into the order in which they are applied.
pub fn ordered(steps: Vec<Step>) -> Vec<Step> {
    hold_first(shape_before_up(before_up(steps)))
}

/// Moves the guards against sockets of the container to the front. Otherwise a socket could send
/// through a new link before the guard exists.
fn hold_first(steps: Vec<Step>) -> Vec<Step> {
    let (mut first, others): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(
        |step| matches!(step, Step::Add(thing) if thing.state().phase() == Phase::Guard),
    );
    first.extend(others);
    first
}

/// Moves a step that needs a new link to be down (`State::before_up`) directly behind the step that
/// creates the link.
fn before_up(mut steps: Vec<Step>) -> Vec<Step> {
    for at in 0..steps.len() {
        let Step::Add(thing) = &steps[at] else {
            continue;
        };
        let Some(link) = thing.state().before_up() else {
            continue;
        };
        if let Some(made) = steps[..at]
            .iter()
            .position(|step| made_by(step).contains(&link))
        {
            steps[made + 1..=at].rotate_right(1);
        }
    }
    steps
}

/// Moves the shaping of new links to the front, before the links are set up. If a link is up, each
/// change of its qdisc waits for an RCU grace period (v6.12 `net/sched/sch_generic.c`,
/// `dev_deactivate_many()`). An ifb and the redirect to it move with the shaping, so no packet
/// bypasses the shaping.
fn shape_before_up(mut steps: Vec<Step>) -> Vec<Step> {
    // The bound ends the loop for two shapings that would each belong before the other's ifb. No
    // plan has such a pair.
    for _ in 0..steps.len() {
        let Some((from, to)) = (0..steps.len()).find_map(|at| Some((at, place_for(at, &steps)?)))
        else {
            break;
        };
        let Step::Add(Thing::Shaping(shaping)) = steps.remove(from) else {
            return steps;
        };
        let up = come_up_later(&mut steps[to - 1]);
        let ifb = ifb_of(&shaping, &steps);
        let mut behind: Vec<Step> = steps
            .extract_if(from.., |step| is_about(step, ifb.as_ref()))
            .collect();
        // No packet arrives yet, so the redirect does not wait for the ifb to be up and is added
        // with the shaping.
        behind.sort_by_key(|step| !matches!(step, Step::Add(Thing::Redirect(_))));
        let made: Vec<LinkRef> = steps[..to].iter().flat_map(made_by).cloned().collect();
        let sizes: Vec<Step> = steps
            .extract_if(from.., |step| is_size_of(step, &made))
            .collect();
        let mut moved: Vec<Step> = steps
            .extract_if(to..from, |step| is_about(step, ifb.as_ref()))
            .collect();
        moved.push(Step::add(shaping));
        moved.append(&mut behind);
        moved.extend(up.into_iter().chain(sizes));
        steps.splice(to..to, moved);
    }
    steps
}

/// Returns the index to which the shaping step at index `at` must move, directly behind the step
/// that creates the last of the shaped links. `None` if the step is not a shaping step, if `steps`
/// do not create all of its links, or if it is already in place.
fn place_for(at: usize, steps: &[Step]) -> Option<usize> {
    let Step::Add(Thing::Shaping(shaping)) = &steps[at] else {
        return None;
    };
    let ifb = ifb_of(shaping, steps);
    let (before, behind) = steps.split_at(at);
    let led_there = behind.iter().filter_map(|step| {
        let Step::Add(Thing::Redirect(Redirect { from, to })) = step else {
            return None;
        };
        (Some(to) == ifb.as_ref()).then_some(from)
    });
    let made_at = |at: &LinkRef| before.iter().position(|step| made_by(step).contains(&at));
    let links = shaping
        .links()
        .filter(|at| Some(*at) != ifb.as_ref())
        .chain(led_there);
    let place = links
        .map(made_at)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .max()?
        + 1;
    let belongs_there =
        |step: &Step| is_about(step, ifb.as_ref()) || matches!(step, Step::Add(Thing::Shaping(_)));
    before[place..]
        .iter()
        .any(|step| !belongs_there(step))
        .then_some(place)
}

/// Returns the links that a step creates; empty for a step that creates none.
fn made_by(step: &Step) -> Vec<&LinkRef> {
    if let Step::Add(thing) = step {
        thing.state().makes()
    } else {
        Vec::new()
    }
}

/// Returns the ifb that `steps` create and `shaping` shapes.
fn ifb_of(shaping: &Shaping, steps: &[Step]) -> Option<LinkRef> {
    let links = steps.iter().filter_map(|step| {
        if let Step::Add(Thing::Link(link)) = step {
            Some(link)
        } else {
            None
        }
    });
    let mut ifbs = links
        .filter(|link| matches!(link.kind, LinkKind::Ifb))
        .map(|link| &link.at);
    ifbs.find(|ifb| shaping.links().any(|at| at == *ifb))
        .cloned()
}

/// True if the step creates the ifb, changes it or redirects to it.
fn is_about(step: &Step, ifb: Option<&LinkRef>) -> bool {
    let is_led_there =
        matches!(step, Step::Add(Thing::Redirect(redirect)) if Some(&redirect.to) == ifb);
    let is_made = matches!(step, Step::Add(Thing::Link(link)) if Some(&link.at) == ifb);
    let is_changed =
        matches!(step, Step::Add(_) | Step::Set { .. }) && step.attr().map(|(at, _)| at) == ifb;
    ifb.is_some() && (is_led_there || is_made || is_changed)
}

/// True if the step sets the largest packet size (GSO) of a link in `made`. Such a step moves next
/// to the other steps for its link, so that it needs no separate send.
fn is_size_of(step: &Step, made: &[LinkRef]) -> bool {
    step.attr()
        .is_some_and(|(at, to)| matches!(to, LinkAttr::GsoMaxSize(_)) && made.contains(at))
}

/// Splits a step that creates a link and sets it up. Changes `step`, so that it creates the link
/// down, and returns a new step that sets the link up. Returns `None` for any other step.
fn come_up_later(step: &mut Step) -> Option<Step> {
    let Step::Add(Thing::Link(Link {
        up: up @ true, at, ..
    })) = step
    else {
        return None;
    };
    *up = false;
    Some(Step::add(Attr {
        at: at.clone(),
        to: LinkAttr::Up(true),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;
    use crate::plan::queue_fallback::Queue;
    use crate::plan::step::Event;
    use crate::plan::thing::XskGuard;
    use crate::plan::thing::shaping::{Rate, Shaper, Toward};

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a name")
    }

    fn link(at: LinkRef, up: bool, kind: LinkKind) -> Step {
        Step::add(Link {
            at,
            mac: None,
            mtu: None,
            up,
            master: None,
            kind,
        })
    }

    fn up(at: &LinkRef) -> Step {
        Step::add(Attr {
            at: at.clone(),
            to: LinkAttr::Up(true),
        })
    }

    fn shaping(at: [&LinkRef; 2]) -> Step {
        let toward = [Toward::Pod, Toward::Network];
        let shaper = |(at, toward): (&LinkRef, Toward)| {
            let rate = Rate {
                bps: 8_000,
                burst: 8_000,
            };
            Shaper {
                at: at.clone(),
                toward,
                queue: Queue::Fq,
                rate,
                mtu: 1500,
            }
        };
        let shapers = at.into_iter().zip(toward).map(shaper).collect();
        Step::add(Shaping {
            owner: String::new(),
            shapers,
            subnets: None,
        })
    }

    #[test]
    fn a_veth_is_shaped_before_either_end_comes_up() {
        let (host, pod) = (LinkRef::host(name("veth1")), LinkRef::pod(name("eth0")));
        let kind = || LinkKind::Veth {
            peer: pod.clone(),
            peer_mac: None,
        };
        let shaping = shaping([&host, &pod]);
        let steps = vec![link(host.clone(), true, kind()), up(&pod), shaping.clone()];
        let ordered = shape_before_up(steps);
        assert_eq!(
            ordered,
            [
                link(host.clone(), false, kind()),
                shaping,
                up(&host),
                up(&pod)
            ]
        );
        assert_eq!(shape_before_up(ordered.clone()), ordered);
    }

    #[test]
    fn sockets_are_guarded_before_a_link_exists() {
        let pod = LinkRef::pod(name("eth0"));
        let guard = XskGuard {
            netns: 7,
            owner: String::new(),
        };
        let new = link(pod, true, LinkKind::Other(String::new()));
        let steps = vec![new.clone(), Step::add(guard.clone())];
        assert_eq!(ordered(steps), [Step::Add(Thing::XskGuard(guard)), new]);
    }

    #[test]
    fn two_shapings_of_one_link_follow_each_other() {
        let (host, pod) = (LinkRef::host(name("veth1")), LinkRef::pod(name("eth0")));
        let new = link(
            host.clone(),
            false,
            LinkKind::Veth {
                peer: pod.clone(),
                peer_mac: None,
            },
        );
        let shaping = shaping([&host, &pod]);
        let steps = vec![new.clone(), up(&pod), shaping.clone(), shaping.clone()];
        assert_eq!(
            shape_before_up(steps),
            [new, shaping.clone(), shaping, up(&pod)]
        );
    }

    #[test]
    fn an_ifb_moves_with_its_shaping_and_a_foreign_link_stays() {
        let (pod, ifb) = (LinkRef::pod(name("eth0")), LinkRef::pod(name("ifb1")));
        let (new, queue) = (
            link(pod.clone(), true, LinkKind::Other(String::new())),
            link(ifb.clone(), false, LinkKind::Ifb),
        );
        let set = |at: &LinkRef, to| Step::add(Attr { at: at.clone(), to });
        let (len, size) = (
            set(&ifb, LinkAttr::TxQueueLen(100)),
            set(&pod, LinkAttr::GsoMaxSize(3000)),
        );
        let lead = Step::add(Redirect {
            from: pod.clone(),
            to: ifb.clone(),
        });
        let announced = set(&pod, LinkAttr::ArpNotify(true));
        for of in [[&ifb, &pod], [&ifb, &ifb]] {
            let shaping = shaping(of);
            let behind = [
                queue.clone(),
                len.clone(),
                shaping.clone(),
                up(&ifb),
                lead.clone(),
            ];
            let steps: Vec<Step> = [new.clone(), announced.clone()]
                .into_iter()
                .chain(behind)
                .collect();
            let ordered = shape_before_up(steps);
            let down = link(pod.clone(), false, LinkKind::Other(String::new()));
            let first = [
                down,
                queue.clone(),
                len.clone(),
                shaping,
                lead.clone(),
                up(&ifb),
                up(&pod),
            ];
            assert_eq!(
                ordered,
                first
                    .into_iter()
                    .chain([announced.clone()])
                    .collect::<Vec<_>>()
            );
            assert_eq!(shape_before_up(ordered.clone()), ordered);
        }
        let steps = vec![
            link(pod.clone(), false, LinkKind::Ifb),
            up(&pod),
            shaping([&pod, &pod]),
            size.clone(),
        ];
        assert_eq!(
            shape_before_up(steps.clone()),
            steps,
            "no link that an ifb stands for"
        );
        let others = vec![up(&pod), queue, shaping([&ifb, &pod]), up(&ifb), lead, size];
        assert_eq!(shape_before_up(others.clone()), others);
    }

    #[test]
    fn the_ifb_and_redirect_of_a_veth_precede_either_end_coming_up() {
        let (host, pod, ifb) = (
            LinkRef::host(name("veth1")),
            LinkRef::pod(name("eth0")),
            LinkRef::host(name("ifb1")),
        );
        let set = |at: &LinkRef, to| Step::add(Attr { at: at.clone(), to });
        let new = link(
            host.clone(),
            false,
            LinkKind::Veth {
                peer: pod.clone(),
                peer_mac: None,
            },
        );
        let shaping = shaping([&host, &ifb]);
        let made = [
            link(ifb.clone(), false, LinkKind::Ifb),
            set(&ifb, LinkAttr::TxQueueLen(100)),
            set(&ifb, LinkAttr::Alias("a pod's".to_owned())),
        ];
        let lead = Step::add(Redirect {
            from: host.clone(),
            to: ifb.clone(),
        });
        let size = set(&pod, LinkAttr::GsoMaxSize(3000));
        let limits = [shaping.clone(), up(&ifb), lead.clone(), size.clone()];
        let steps: Vec<Step> = [new.clone(), up(&pod), up(&host)]
            .into_iter()
            .chain(made.clone())
            .chain(limits)
            .collect();
        let expected = [new].into_iter().chain(made).chain([
            shaping,
            lead,
            up(&ifb),
            size,
            up(&pod),
            up(&host),
        ]);
        assert_eq!(shape_before_up(steps), expected.collect::<Vec<_>>());
    }

    #[test]
    fn two_ifbs_of_one_veth_are_ordered_in_bounded_time() {
        let (host, pod) = (LinkRef::host(name("veth1")), LinkRef::pod(name("eth0")));
        let kind = LinkKind::Veth {
            peer: pod.clone(),
            peer_mac: None,
        };
        let limits = |ifb: &str| {
            let ifb = LinkRef::host(name(ifb));
            let lead = Step::add(Redirect {
                from: host.clone(),
                to: ifb.clone(),
            });
            [
                link(ifb.clone(), false, LinkKind::Ifb),
                shaping([&host, &ifb]),
                up(&ifb),
                lead,
            ]
        };
        let steps: Vec<Step> = [link(host.clone(), false, kind), up(&pod)]
            .into_iter()
            .chain(limits("ifb1"))
            .chain(limits("ifb2"))
            .collect();
        assert_eq!(ordered(steps.clone()).len(), steps.len());
    }

    #[test]
    fn the_gso_size_is_set_next_to_a_links_other_attributes() {
        let pod = LinkRef::pod(name("eth0"));
        let size = Step::add(Attr {
            at: pod.clone(),
            to: LinkAttr::GsoMaxSize(3000),
        });
        let new = |up| link(pod.clone(), up, LinkKind::Other(String::new()));
        let (shaping, wait) = (shaping([&pod, &pod]), Step::Wait(Event::Up(pod.clone())));
        let steps = vec![new(true), wait.clone(), shaping.clone(), size.clone()];
        assert_eq!(
            shape_before_up(steps),
            [new(false), shaping, up(&pod), size, wait]
        );
    }
}
