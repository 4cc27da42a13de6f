//! Requests that share a send or a message, and steps that need a separate send.

use super::*;
use crate::sys::netlink::fake::send;
use braid_core::plan::facts::LinkFact;
use nix::errno::Errno;

const NEWLINK: u16 = 16;

#[test]
fn neighbouring_requests_share_one_send_and_the_last_one_asks_for_the_acknowledgement() {
    let steps = [
        Step::add(addr(lan(), "10.1.0.2/24")),
        Step::add(route(lan(), "10.2.0.0/16")),
        Step::add(neigh(lan(), "10.1.0.1")),
    ];
    let expected = send(
        HOST,
        &[
            "newaddr create excl: dev 7 10.1.0.2/24",
            "newroute create: 10.2.0.0/16 dev 7",
            "newneigh create excl ack: dev 7 10.1.0.1",
        ],
    );
    assert_outcome(&apply(&steps, vec![expected]), &[0, 1, 2], &[]);
}

#[test]
fn known_links_of_one_namespace_share_a_send() {
    let steps = [lan(), cni0()].map(|at| Step::add(addr(at, "10.1.0.2/24")));
    let expected = send(
        HOST,
        &[
            "newaddr create excl: dev 7 10.1.0.2/24",
            "newaddr create excl ack: dev 8 10.1.0.2/24",
        ],
    );
    assert_outcome(&apply(&steps, vec![expected]), &[0, 1], &[]);
}

#[test]
fn a_link_of_unknown_index_waits_for_the_queue_and_starts_a_new_send() {
    let steps = [lan(), host("new0")].map(|at| Step::add(addr(at, "10.1.0.2/24")));
    let mut sandbox = Sandbox::new(vec![
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]),
        send(HOST, &["newaddr create excl ack: dev 9 10.1.0.2/24"]),
    ]);
    sandbox.script.link(HOST, "new0", 9);
    assert_outcome(&sandbox.run(&steps, OnError::Stop), &[0, 1], &[]);
}

#[test]
fn each_change_of_namespace_starts_a_new_send() {
    let steps = [lan(), eth0(), net1(), lan()].map(|at| Step::add(route(at, "10.2.0.0/16")));
    let expected = vec![
        send(HOST, &["newroute create ack: 10.2.0.0/16 dev 7"]),
        send(
            POD,
            &[
                "newroute create: 10.2.0.0/16 dev 2",
                "newroute create ack: 10.2.0.0/16 dev 3",
            ],
        ),
        send(HOST, &["newroute create ack: 10.2.0.0/16 dev 7"]),
    ];
    assert_outcome(&apply(&steps, expected), &[0, 1, 2, 3], &[]);
}

#[test]
fn attributes_of_one_link_share_one_message() {
    let up = || LinkAttr::Up(true);
    let steps = [
        Step::add(attribute(eth0(), LinkAttr::Mtu(1400))),
        Step::add(attribute(eth0(), up())),
        Step::add(attribute(eth0(), LinkAttr::TxQueueLen(100))),
        Step::add(attribute(net1(), up())),
    ];
    let expected = send(
        POD,
        &[
            "newlink: dev 2 up mtu 1400 txqueuelen 100",
            "newlink ack: dev 3 up",
        ],
    );
    assert_outcome(&apply(&steps, vec![expected]), &[0, 1, 2, 3], &[]);
}

#[test]
fn a_value_that_is_set_back_has_a_message_of_its_own() {
    let steps = [
        mtu(lan(), 1400, 1500),
        Step::add(attribute(lan(), LinkAttr::Up(true))),
    ];
    let expected = send(HOST, &["newlink: dev 7 mtu 1400", "newlink ack: dev 7 up"]);
    assert_outcome(&apply(&steps, vec![expected]), &[0, 1], &[]);
}

#[test]
fn a_new_link_has_the_queue_length_of_the_next_step_in_its_message() {
    let steps = [
        Step::add(dummy(pod("d0"))),
        Step::add(attribute(pod("d0"), LinkAttr::TxQueueLen(100))),
    ];
    let request = "newlink create excl echo ack: name d0 txqueuelen 100 kind dummy";
    assert_outcome(&apply(&steps, vec![send(POD, &[request])]), &[0, 1], &[]);
}

#[test]
fn the_queue_is_sent_before_a_link_is_made() {
    let steps = [
        Step::add(addr(lan(), "10.1.0.2/24")),
        Step::add(dummy(host("d0"))),
        Step::add(addr(lan(), "10.1.0.3/24")),
    ];
    let expected = vec![
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]),
        send(HOST, &["newlink create excl echo ack: name d0 kind dummy"]),
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.3/24"]),
    ];
    assert_outcome(&apply(&steps, expected), &[0, 1, 2], &[]);
}

#[test]
fn the_index_of_a_new_link_comes_from_the_kernels_echo() {
    let steps = [
        Step::add(dummy(pod("d0"))),
        Step::add(addr(eth0(), "10.1.0.2/24")),
        Step::add(addr(pod("d0"), "10.1.0.3/24")),
    ];
    let expected = vec![
        send(POD, &["newlink create excl echo ack: name d0 kind dummy"])
            .shows(NEWLINK, link_shown(12, "d0", "dummy")),
        send(
            POD,
            &[
                "newaddr create excl: dev 2 10.1.0.2/24",
                "newaddr create excl ack: dev 12 10.1.0.3/24",
            ],
        ),
    ];
    assert_outcome(&apply(&steps, expected), &[0, 1, 2], &[]);
}

#[test]
fn a_shared_thing_that_the_facts_show_is_not_sent() {
    let steps = [
        Step::ensure(attribute(cni0(), LinkAttr::Up(true))),
        Step::add(addr(cni0(), "10.1.0.1/24")),
    ];
    let mut facts = Facts::default();
    facts
        .links
        .insert(cni0(), LinkFact::planned("bridge", None, 1500, true));
    let request = "newaddr create excl ack: dev 8 10.1.0.1/24";
    let mut sandbox = Sandbox::new(vec![send(HOST, &[request])]);
    let report = execute(&mut sandbox.kernel, &steps, &facts, OnError::Stop);
    sandbox.script.end();
    assert_outcome(&report, &[1], &[]);
}

/// Returns `count` steps that need one message each, and the expected requests.
fn many(count: u8) -> (Vec<Step>, Vec<String>) {
    let net = |at: u8| format!("10.1.{at}.0/24");
    let steps = (0..count)
        .map(|at| Step::add(route(lan(), &net(at))))
        .collect();
    let request = |at: u8| {
        let ack = if at + 1 == count { " ack" } else { "" };
        format!("newroute create{ack}: {} dev 7", net(at))
    };
    (steps, (0..count).map(request).collect())
}

#[test]
fn a_batch_above_the_sockets_buffer_is_not_cut_the_buffer_grows_to_its_length() {
    let (steps, requests) = many(200);
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let expected = vec![
        send(HOST, &requests).too_long(Ok(())),
        send(HOST, &requests),
    ];
    let all: Vec<usize> = (0..200).collect();
    assert_outcome(&apply(&steps, expected), &all, &[]);
}

#[test]
fn a_batch_that_could_not_be_sent_fails_as_a_whole_and_nothing_of_it_is_applied() {
    let (steps, requests) = many(2);
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let expected = send(HOST, &requests).too_long(Err(Errno::EPERM));
    let report = apply(&steps, vec![expected]);
    assert_outcome(&report, &[], &[(0, EPERM), (1, EPERM)]);
}

#[test]
fn an_interrupted_receive_is_repeated() {
    let steps = [Step::add(addr(lan(), "10.1.0.2/24"))];
    let expected =
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).receive_fails(Errno::EINTR);
    assert_outcome(&apply(&steps, vec![expected]), &[0], &[]);
}

#[test]
fn each_send_has_a_timing_with_its_steps_if_requested() {
    let steps = [
        Step::add(attribute(lan(), LinkAttr::Mtu(1400))),
        Step::add(attribute(lan(), LinkAttr::Up(true))),
        Step::add(addr(lan(), "10.1.0.2/24")),
        Step::add(addr(eth0(), "10.1.0.3/24")),
    ];
    let expected = || {
        vec![
            send(
                HOST,
                &[
                    "newlink: dev 7 up mtu 1400",
                    "newaddr create excl ack: dev 7 10.1.0.2/24",
                ],
            ),
            send(POD, &["newaddr create excl ack: dev 2 10.1.0.3/24"]),
        ]
    };
    assert!(apply(&steps, expected()).timings.is_empty());
    let mut sandbox = Sandbox::new(expected());
    sandbox.kernel.time();
    let report = sandbox.run(&steps, OnError::Stop);
    let sends: Vec<(usize, usize)> = report.timings.iter().map(|t| (t.first, t.count)).collect();
    assert_eq!(sends, [(0, 3), (3, 1)]);
}
