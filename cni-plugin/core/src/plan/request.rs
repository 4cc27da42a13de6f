//! Adjacent steps of a plan that fit into one netlink request or one send.

use super::step::Step;
use super::thing::{LinkAttr, LinkRef, Redirect, Thing};

/// Returns the number of leading steps that fit into one netlink request. They set attributes of
/// the same link, have no inverse, and are in the order in which the kernel sets attributes. Each
/// saved request saves a wait for the RTNL lock, which all network namespaces share.
pub fn in_one_request(steps: &[Step]) -> usize {
    let continues = |pair: &&[Step]| match (settable(&pair[0]), settable(&pair[1])) {
        (Some((link, place)), Some((next_link, next_place))) => {
            link == next_link && place < next_place
        }
        _ => false,
    };
    1 + steps.windows(2).take_while(continues).count()
}

/// Returns the transmit queue length if the first step creates a link and the second step sets this
/// length. The request that creates the link can include it.
pub fn queue_len_of_new(steps: &[Step]) -> Option<u32> {
    let [
        Step::Add(Thing::Link(link)),
        Step::Add(Thing::Attr(attr)),
        ..,
    ] = steps
    else {
        return None;
    };
    let LinkAttr::TxQueueLen(len) = attr.to else {
        return None;
    };
    (link.at == attr.at).then_some(len)
}

/// Returns the redirect in the second step if it fits into one send with the shaping in the first
/// step. Both steps attach filters. The kernel waits for an RCU grace period when the first filter
/// is added, so one send saves time.
pub fn redirect_with_shaping(steps: &[Step]) -> Option<&Redirect> {
    match steps {
        [
            Step::Add(Thing::Shaping(shaping)),
            Step::Add(Thing::Redirect(redirect)),
            ..,
        ] if shaping.is_all_in(redirect.from.ns) => Some(redirect),
        _ => None,
    }
}

fn settable(step: &Step) -> Option<(&LinkRef, u8)> {
    let Step::Add(Thing::Attr(attr)) = step else {
        return None;
    };
    Some((&attr.at, place(&attr.to)?))
}

/// Returns the position of an attribute in the order in which the kernel sets the attributes of a
/// request. The order in the request does not matter (v6.12 net/core/rtnetlink.c, `do_setlink()`).
/// `None` for an attribute that needs a separate request.
fn place(attr: &LinkAttr) -> Option<u8> {
    Some(match attr {
        LinkAttr::Mac(_) => 0,
        LinkAttr::Mtu(_) => 1,
        LinkAttr::Up(_) | LinkAttr::Promisc(_) | LinkAttr::AllMulti(_) => 2,
        LinkAttr::TxQueueLen(_) => 3,
        LinkAttr::GsoMaxSize(_) => 4,
        // `Alias` or `ArpNotify` together with `Up` would count as a change of a link that is up.
        // The kernel then notifies all listeners, including its own, which takes 27 us.
        LinkAttr::Alias(_)
        | LinkAttr::ArpNotify(_)
        | LinkAttr::Announce(_)
        | LinkAttr::Hairpin(_)
        | LinkAttr::Isolated(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;
    use crate::plan::thing::{Attr, Link, LinkKind};

    fn set(name: &str, to: LinkAttr, from: Option<LinkAttr>) -> Step {
        let at = LinkRef::host(IfName::parse(name).expect("a name"));
        match from {
            Some(from) => Step::Set { at, to, from },
            None => Step::add(Attr { at, to }),
        }
    }

    #[test]
    fn a_new_link_is_created_with_its_queue_length() {
        let name = |name| LinkRef::pod(IfName::parse(name).expect("a name"));
        let new = Step::add(Link {
            at: name("a"),
            mac: None,
            mtu: None,
            up: false,
            master: None,
            kind: LinkKind::Ifb,
        });
        let queue = |at| {
            Step::add(Attr {
                at: name(at),
                to: LinkAttr::TxQueueLen(100),
            })
        };
        assert_eq!(queue_len_of_new(&[new.clone(), queue("a")]), Some(100));
        assert_eq!(
            queue_len_of_new(&[new.clone(), queue("b")]),
            None,
            "another's"
        );
        assert_eq!(queue_len_of_new(&[new]), None);
    }

    #[test]
    fn attributes_of_one_link_share_a_request_in_the_kernels_order() {
        let mtu = |name| set(name, LinkAttr::Mtu(1400), None);
        let up = |name| set(name, LinkAttr::Up(true), None);
        let queue = |name| set(name, LinkAttr::TxQueueLen(100), None);
        assert_eq!(in_one_request(&[mtu("a"), up("a"), queue("a")]), 3);
        assert_eq!(in_one_request(&[mtu("a"), up("b")]), 1, "two links");
        assert_eq!(
            in_one_request(&[queue("a"), up("a")]),
            1,
            "the kernel would set it up first"
        );
        assert_eq!(in_one_request(&[up("a"), up("a")]), 1);
        let alias = set("a", LinkAttr::Alias("a pod's".to_owned()), None);
        assert_eq!(in_one_request(&[alias, up("a")]), 1);
        let back = Some(LinkAttr::Mtu(1500));
        assert_eq!(
            in_one_request(&[set("a", LinkAttr::Mtu(1400), back), up("a")]),
            1,
            "undone by itself"
        );
        assert_eq!(
            in_one_request(&[Step::Wait(crate::plan::step::Event::Up(LinkRef::host(
                IfName::parse("a").expect("a name")
            )))]),
            1
        );
    }
}
