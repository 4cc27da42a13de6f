//! Cleaning up: absence is success, and an error does not end the run.

use super::*;
use crate::sys::netlink::fake::send;
use braid_core::plan::thing::Moved;
use nix::errno::Errno;

#[test]
fn deleting_a_missing_thing_is_moot_for_each_errno_that_says_so() {
    for errno in [
        Errno::ENOENT,
        Errno::ENODEV,
        Errno::EADDRNOTAVAIL,
        Errno::ESRCH,
        Errno::ENXIO,
    ] {
        let steps = [
            Step::del(route(lan(), "10.2.0.0/16")),
            Step::del(addr(lan(), "10.1.0.2/24")),
            Step::del(neigh(lan(), "10.1.0.1")),
        ];
        let requests = [
            "delroute: 10.2.0.0/16 dev 7",
            "deladdr: dev 7 10.1.0.2/24",
            "delneigh ack: dev 7 10.1.0.1",
        ];
        for apply in [apply, clean_up] {
            let expected = send(HOST, &requests).refused(0, errno).refused(2, errno);
            assert_outcome(&apply(&steps, vec![expected]), &[1], &[]);
        }
    }
}

#[test]
fn deleting_with_another_refusal_is_an_error() {
    let expected = send(HOST, &["deladdr ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EPERM);
    let report = clean_up(&[Step::del(addr(lan(), "10.1.0.2/24"))], vec![expected]);
    assert_outcome(&report, &[], &[(0, EPERM)]);
}

#[test]
fn the_address_of_a_missing_link_is_moot_without_a_send() {
    let steps = [
        Step::del(addr(host("gone0"), "10.1.0.2/24")),
        Step::del(addr(lan(), "10.1.0.2/24")),
    ];
    let expected = send(HOST, &["deladdr ack: dev 7 10.1.0.2/24"]);
    assert_outcome(&clean_up(&steps, vec![expected]), &[1], &[]);
}

#[test]
fn the_old_value_of_a_missing_link_is_moot() {
    let steps = [mtu(host("gone0"), 1500, 1400), mtu(lan(), 1500, 1400)];
    let expected = send(HOST, &["newlink ack: dev 7 mtu 1500"]).refused(0, Errno::ENODEV);
    assert_outcome(&clean_up(&steps, vec![expected]), &[], &[]);
}

#[test]
fn cleaning_up_goes_on_after_an_error_and_collects_all_of_them() {
    let steps = [
        Step::del(route(lan(), "10.2.0.0/16")),
        Step::del(route(eth0(), "10.2.0.0/16")),
        Step::del(Link::any(net1())),
        Step::del(addr(lan(), "10.1.0.2/24")),
    ];
    let expected = vec![
        send(HOST, &["delroute ack: 10.2.0.0/16 dev 7"]).refused(0, Errno::EPERM),
        send(POD, &["delroute ack: 10.2.0.0/16 dev 2"]),
        send(POD, &["dellink ack: name net1"]).refused(0, Errno::EBUSY),
        send(HOST, &["deladdr ack: dev 7 10.1.0.2/24"]),
    ];
    let busy = "EBUSY (kernel: \"Device or resource busy\")";
    assert_outcome(
        &clean_up(&steps, expected),
        &[1, 3],
        &[(0, EPERM), (2, busy)],
    );
}

#[test]
fn a_failure_before_the_send_keeps_the_queue() {
    let steps = [
        Step::del(addr(lan(), "10.1.0.2/24")),
        Step::del(attribute(lan(), LinkAttr::Up(true))),
        Step::del(addr(lan(), "10.1.0.3/24")),
    ];
    let expected = send(
        HOST,
        &[
            "deladdr: dev 7 10.1.0.2/24",
            "deladdr ack: dev 7 10.1.0.3/24",
        ],
    );
    let report = clean_up(&steps, vec![expected]);
    let unsupported = "EOPNOTSUPP (kernel: \"Operation not supported on transport endpoint\")";
    assert_outcome(&report, &[0, 2], &[(1, unsupported)]);
}

#[test]
fn no_link_is_made_after_a_failure() {
    let steps = [
        Step::del(addr(lan(), "10.1.0.2/24")),
        Step::add(dummy(host("d0"))),
    ];
    let expected = send(HOST, &["deladdr ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EPERM);
    assert_outcome(&clean_up(&steps, vec![expected]), &[], &[(0, EPERM)]);
}

#[test]
fn a_link_stays_in_the_container_if_its_old_value_could_not_be_restored() {
    let moved = Moved {
        to: eth0(),
        from: None,
        was: None,
    };
    let steps = [mtu(eth0(), 1500, 1400), Step::del(moved)];
    let expected = send(POD, &["newlink ack: dev 2 mtu 1500"]).refused(0, Errno::EPERM);
    let report = clean_up(&steps, vec![expected]);
    let waits = "skipped, because `pod  ip link set eth0 mtu 1500` failed";
    assert_outcome(&report, &[], &[(0, EPERM), (1, waits)]);
}
