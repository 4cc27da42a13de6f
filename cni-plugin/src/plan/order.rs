//! In which order the steps of several plugins are carried out.

use super::link::{Link, LinkAttr, LinkKind, LinkRef};
use super::shaping::Shaping;
use super::step::Step;

/// In the order in which they are carried out.
pub fn ordered(steps: Vec<Step>) -> Vec<Step> {
    hold_first(shape_before_up(steps))
}

/// Has the container's sockets held before there is anything to send through.
fn hold_first(steps: Vec<Step>) -> Vec<Step> {
    let (mut first, others): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| matches!(step, Step::AddXskGuard(_)));
    first.extend(others);
    first
}

/// Moves the shaping of links that `steps` make to the front, before they come up. To change the queue of a link that is
/// up, the kernel waits for an RCU grace period each time (v6.12
/// `net/sched/sch_generic.c`, `dev_deactivate_many()`).
fn shape_before_up(mut steps: Vec<Step>) -> Vec<Step> {
    while let Some((from, to)) =
        steps.iter().enumerate().find_map(|(at, step)| Some((at, place_for(step, &steps[..at])?)))
    {
        let Step::AddShaping(shaping) = steps.remove(from) else { return steps };
        let up = come_up_later(&mut steps[to - 1]);
        let ifbs: Vec<Step> = steps.extract_if(to..from, |step| is_queue_of(step, &shaping)).collect();
        let moved = ifbs.into_iter().chain([Step::AddShaping(shaping)]).chain(up);
        steps.splice(to..to, moved);
    }
    steps
}

/// Where a step that shapes belongs: behind the last of its links, which are all made here; none for all others, and
/// where it stands there already.
fn place_for(step: &Step, before: &[Step]) -> Option<usize> {
    let Step::AddShaping(shaping) = step else { return None };
    let made_at = |at: &LinkRef| before.iter().position(|step| makes(step, at));
    let places: Vec<usize> = shaping.links().map(made_at).collect::<Option<_>>()?;
    let is_ifb = |at: &usize| matches!(&before[*at], Step::AddLink(link) if matches!(link.kind, LinkKind::Ifb));
    let place = places.into_iter().filter(|at| !is_ifb(at)).max()? + 1;
    let belongs_there = |step: &Step| is_queue_of(step, shaping) || matches!(step, Step::AddShaping(_));
    before[place..].iter().any(|step| !belongs_there(step)).then_some(place)
}

fn makes(step: &Step, at: &LinkRef) -> bool {
    let Step::AddLink(link) = step else { return false };
    link.at == *at || matches!(&link.kind, LinkKind::Veth { peer, .. } if peer == at)
}

/// Whether the step makes an ifb that is shaped.
fn is_queue_of(step: &Step, shaping: &Shaping) -> bool {
    matches!(step, Step::AddLink(link) if matches!(link.kind, LinkKind::Ifb) && shaping.links().any(|at| *at == link.at))
}

/// Makes the link that a step makes come up in a step of its own, if it would come up at once.
fn come_up_later(step: &mut Step) -> Option<Step> {
    match step {
        Step::AddLink(Link { up: up @ true, at, .. }) => {
            *up = false;
            Some(Step::SetLink { at: at.clone(), to: LinkAttr::Up(true), from: None })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::IfName;
    use crate::plan::ladder::Queue;
    use crate::plan::shaping::{Rate, Shaper, Toward};
    use crate::plan::xsk::XskGuard;

    fn name(text: &str) -> IfName {
        IfName::parse(text).expect("a name")
    }

    fn link(at: LinkRef, up: bool, kind: LinkKind) -> Step {
        Step::AddLink(Link { at, mac: None, mtu: None, up, master: None, kind })
    }

    fn up(at: &LinkRef) -> Step {
        Step::SetLink { at: at.clone(), to: LinkAttr::Up(true), from: None }
    }

    fn shaping(at: [&LinkRef; 2]) -> Step {
        let toward = [Toward::Pod, Toward::Network];
        let of = |(at, toward): (&LinkRef, Toward)| {
            let rate = Rate { bps: 8_000, burst: 8_000 };
            Shaper { at: at.clone(), toward, queue: Queue::Fq, rate, mtu: 1500 }
        };
        Step::AddShaping(Shaping { shapers: at.into_iter().zip(toward).map(of).collect(), guard: None, subnets: None })
    }

    #[test]
    fn a_veth_is_shaped_before_either_end_comes_up() {
        let (host, pod) = (LinkRef::host(name("veth1")), LinkRef::pod(name("eth0")));
        let kind = || LinkKind::Veth { peer: pod.clone(), peer_mac: None };
        let shaping = shaping([&host, &pod]);
        let steps = vec![link(host.clone(), true, kind()), up(&pod), shaping.clone()];
        let ordered = shape_before_up(steps);
        assert_eq!(ordered, [link(host.clone(), false, kind()), shaping, up(&host), up(&pod)]);
        assert_eq!(shape_before_up(ordered.clone()), ordered);
    }

    #[test]
    fn sockets_are_held_before_there_is_a_link() {
        let pod = LinkRef::pod(name("eth0"));
        let guard = XskGuard { below: LinkRef::host(name("lan")), netns: 7, owner: String::new() };
        let new = link(pod, true, LinkKind::Other(String::new()));
        let steps = vec![new.clone(), Step::AddXskGuard(guard.clone())];
        assert_eq!(ordered(steps), [Step::AddXskGuard(guard), new]);
    }

    #[test]
    fn two_shapings_of_one_link_stand_behind_each_other() {
        let (host, pod) = (LinkRef::host(name("veth1")), LinkRef::pod(name("eth0")));
        let new = link(host.clone(), false, LinkKind::Veth { peer: pod.clone(), peer_mac: None });
        let shaping = shaping([&host, &pod]);
        let steps = vec![new.clone(), up(&pod), shaping.clone(), shaping.clone()];
        assert_eq!(shape_before_up(steps), [new, shaping.clone(), shaping, up(&pod)]);
    }

    #[test]
    fn an_ifb_comes_along_and_a_link_of_another_plugin_stays() {
        let (pod, ifb) = (LinkRef::pod(name("eth0")), LinkRef::pod(name("ifb1")));
        let (new, queue) =
            (link(pod.clone(), false, LinkKind::Other(String::new())), link(ifb.clone(), false, LinkKind::Ifb));
        let shaping = shaping([&ifb, &pod]);
        let steps = vec![new.clone(), up(&pod), queue.clone(), shaping.clone(), up(&ifb)];
        assert_eq!(shape_before_up(steps), [new, queue.clone(), shaping.clone(), up(&pod), up(&ifb)]);
        let others = vec![up(&pod), queue, shaping];
        assert_eq!(shape_before_up(others.clone()), others);
    }
}
