//! Deletion of links of the container, in one request or one by one.

use super::*;
use crate::sys::netlink::attr;
use crate::sys::netlink::fake::send;
use nix::errno::Errno;

const NEWLINK: u16 = 16;
const NEWNSID: u16 = 88;
const GROUP: [&str; 3] = [
    "setlink: name eth0 group",
    "setlink: name net1 group",
    "dellink ack: group",
];

fn both() -> [Step; 2] {
    [eth0(), net1()].map(|at| Step::del(Link::any(at)))
}

#[test]
fn links_of_the_container_are_deleted_by_one_request() {
    let report = clean_up(&both(), vec![send(POD, &GROUP)]);
    assert_outcome(&report, &[0, 1], &[]);
}

#[test]
fn one_link_of_the_container_is_deleted_by_its_name() {
    let expected = send(POD, &["dellink ack: name eth0"]);
    assert_outcome(&clean_up(&both()[..1], vec![expected]), &[0], &[]);
}

#[test]
fn a_refused_group_is_deleted_link_by_link() {
    let expected = vec![
        send(POD, &GROUP).refused(2, Errno::EOPNOTSUPP),
        send(POD, &["dellink ack: name eth0"]),
        send(POD, &["dellink ack: name net1"]).refused(0, Errno::EPERM),
    ];
    assert_outcome(&clean_up(&both(), expected), &[0], &[(1, EPERM)]);
}

#[test]
fn a_lost_answer_to_a_group_leads_to_deletion_link_by_link() {
    let expected = vec![
        send(POD, &GROUP).receive_fails(Errno::ENOBUFS),
        send(POD, &["dellink ack: name eth0"]),
        send(POD, &["dellink ack: name net1"]),
    ];
    assert_outcome(&clean_up(&both(), expected), &[0, 1], &[]);
}

#[test]
fn a_link_that_is_not_in_the_group_is_tried_by_its_names_and_is_moot_if_missing() {
    let first_name = format!("dellink ack: name {}", net1().name.until_renamed());
    let expected = vec![
        send(POD, &GROUP).refused(1, Errno::ENODEV),
        send(POD, &["dellink ack: name net1"]).refused(0, Errno::ENODEV),
        send(POD, &[&first_name]).refused(0, Errno::ENODEV),
    ];
    assert_outcome(&clean_up(&both(), expected), &[0], &[]);
}

#[test]
fn things_of_a_deleted_link_are_moot_without_a_send() {
    let mut sandbox = Sandbox::new(vec![send(POD, &["dellink ack: name d0"])]);
    sandbox.kernel.learn(pod("d0"), 12);
    let steps = [
        Step::del(Link::any(pod("d0"))),
        Step::del(addr(pod("d0"), "10.1.0.2/24")),
        Step::del(route(pod("d0"), "10.2.0.0/16")),
    ];
    assert_outcome(&sandbox.run(&steps, OnError::GoOn), &[0], &[]);
}

#[test]
fn children_that_their_parents_deletion_took_along_are_moot() {
    let first_name = format!("dellink ack: name {}", net1().name.until_renamed());
    let expected = vec![
        send(POD, &GROUP).refused(2, Errno::EOPNOTSUPP),
        send(POD, &["dellink ack: name eth0"]),
        send(POD, &["dellink ack: name net1"]).refused(0, Errno::ENODEV),
        send(POD, &[&first_name]).refused(0, Errno::ENODEV),
    ];
    assert_outcome(&clean_up(&both(), expected), &[0], &[]);
}

#[test]
fn a_pair_is_deleted_by_the_index_of_its_end_in_the_container() {
    const LINK: u16 = 5;
    const LINK_NETNSID: u16 = 37;
    const NSID: u16 = 1;
    let pair = Link {
        kind: LinkKind::Veth {
            peer: host("veth1"),
            peer_mac: None,
        },
        ..Link::any(eth0())
    };
    let steps = [Step::del(pair), Step::del(Link::any(net1()))];
    let mut end = link_shown(9, "veth1", "veth");
    attr(LINK, &ETH0.to_ne_bytes(), &mut end);
    attr(LINK_NETNSID, &4_u32.to_ne_bytes(), &mut end);
    let mut number = vec![0; 4];
    attr(NSID, &4_u32.to_ne_bytes(), &mut number);
    let expected = vec![
        send(HOST, &["getlink: name veth1"]).shows(NEWLINK, end),
        send(HOST, &["getnsid"]).shows(NEWNSID, number),
        send(
            POD,
            &[
                "setlink: dev 2 group",
                "setlink: name net1 group",
                "dellink ack: group",
            ],
        ),
    ];
    assert_outcome(&clean_up(&steps, expected), &[0, 1], &[]);
}
