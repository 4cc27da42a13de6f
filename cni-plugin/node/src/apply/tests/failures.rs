//! Refused requests and lost answers while steps are applied. The tests check the failed steps and
//! the steps that were not tried.

use super::*;
use crate::sys::netlink::fake::send;
use braid_core::plan::thing::{Masquerade, VrfMember};
use nix::errno::Errno;

const EEXIST: &str = "EEXIST (kernel: \"File exists\")";
const ENOBUFS: &str = "ENOBUFS (kernel: \"No buffer space available\")";
const NEWLINK: u16 = 16;

fn addrs(count: u8) -> Vec<Step> {
    (2..2 + count)
        .map(|last| Step::add(addr(lan(), &format!("10.1.0.{last}/24"))))
        .collect()
}

#[test]
fn a_lost_acknowledgement_is_an_error_of_its_step_which_counts_as_applied() {
    let expected =
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).receive_fails(Errno::ENOBUFS);
    let report = apply(&addrs(1), vec![expected]);
    assert_outcome(&report, &[0], &[(0, ENOBUFS)]);
}

#[test]
fn a_lost_acknowledgement_is_an_error_of_each_step_of_its_send() {
    let steps = [&addrs(2)[..], &[Step::add(addr(eth0(), "10.1.0.9/24"))]].concat();
    let expected = send(
        HOST,
        &[
            "newaddr create excl: dev 7 10.1.0.2/24",
            "newaddr create excl ack: dev 7 10.1.0.3/24",
        ],
    )
    .receive_fails(Errno::ENOBUFS);
    let report = apply(&steps, vec![expected]);
    assert_outcome(&report, &[0, 1], &[(0, ENOBUFS), (1, ENOBUFS)]);
}

#[test]
fn answers_behind_a_lost_one_are_dropped_before_the_next_send() {
    let steps = [
        Step::del(route(lan(), "10.2.0.0/16")),
        Step::del(route(eth0(), "10.2.0.0/16")),
        Step::del(route(lan(), "10.3.0.0/16")),
    ];
    let expected = vec![
        send(HOST, &["delroute ack: 10.2.0.0/16 dev 7"]).receive_fails(Errno::ENOBUFS),
        send(POD, &["delroute ack: 10.2.0.0/16 dev 2"]),
        send(HOST, &["delroute ack: 10.3.0.0/16 dev 7"]).refused(0, Errno::EPERM),
    ];
    let report = clean_up(&steps, expected);
    assert_outcome(&report, &[0, 1], &[(0, ENOBUFS), (2, EPERM)]);
}

#[test]
fn a_refused_request_is_the_only_failure_of_its_send() {
    let expected = send(
        HOST,
        &[
            "newaddr create excl: dev 7 10.1.0.2/24",
            "newaddr create excl: dev 7 10.1.0.3/24",
            "newaddr create excl ack: dev 7 10.1.0.4/24",
        ],
    )
    .refused(1, Errno::EEXIST);
    let report = apply(&addrs(3), vec![expected]);
    assert_outcome(&report, &[0, 2], &[(1, EEXIST)]);
}

#[test]
fn a_refused_message_fails_all_steps_that_share_it() {
    let steps = [
        Step::add(attribute(eth0(), LinkAttr::Mtu(1400))),
        Step::add(attribute(eth0(), LinkAttr::Up(true))),
        Step::add(attribute(net1(), LinkAttr::Up(true))),
    ];
    let expected = send(
        POD,
        &["newlink: dev 2 up mtu 1400", "newlink ack: dev 3 up"],
    )
    .refused(0, Errno::EPERM);
    let report = apply(&steps, vec![expected]);
    assert_outcome(&report, &[2], &[(0, EPERM), (1, EPERM)]);
}

#[test]
fn nothing_is_sent_after_a_failed_send() {
    let steps = [
        Step::add(addr(lan(), "10.1.0.2/24")),
        Step::add(addr(eth0(), "10.1.0.3/24")),
        Step::add(addr(lan(), "10.1.0.4/24")),
    ];
    let expected =
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EPERM);
    assert_outcome(&apply(&steps, vec![expected]), &[], &[(0, EPERM)]);
}

#[test]
fn no_step_of_another_kind_is_done_after_a_failed_send() {
    let masquerade = Masquerade {
        source: "10.1.0.2".parse().expect("an address"),
        network: "10.1.0.0/24".parse().expect("a prefix"),
        owner: "net c1 eth0".to_owned(),
    };
    let member = VrfMember {
        at: eth0(),
        vrf: pod("blue").name,
        table: 100,
    };
    let later = [
        Step::add(dummy(host("d0"))),
        Step::del(Link::any(net1())),
        Step::del(masquerade),
        Step::del(member),
    ];
    for step in later {
        let steps = [Step::add(addr(lan(), "10.1.0.2/24")), step];
        let expected =
            send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EPERM);
        assert_outcome(&apply(&steps, vec![expected]), &[], &[(0, EPERM)]);
    }
}

#[test]
fn a_failure_before_the_send_drops_the_queue() {
    // An attribute has no request that deletes it.
    let steps = [
        Step::add(addr(lan(), "10.1.0.2/24")),
        Step::del(attribute(lan(), LinkAttr::Up(true))),
    ];
    let request = "newaddr create excl ack: dev 7 10.1.0.9/24";
    let mut sandbox = Sandbox::new(vec![send(HOST, &[request])]);
    let report = execute(
        &mut sandbox.kernel,
        &steps,
        &Facts::default(),
        OnError::Stop,
    );
    let unsupported = "EOPNOTSUPP (kernel: \"Operation not supported on transport endpoint\")";
    assert_outcome(&report, &[], &[(1, unsupported)]);
    let next = [Step::add(addr(lan(), "10.1.0.9/24"))];
    assert_outcome(&sandbox.run(&next, OnError::Stop), &[0], &[]);
}

#[test]
fn ensure_of_an_existing_address_succeeds_and_is_not_undone() {
    let steps = [
        Step::ensure(addr(cni0(), "10.1.0.1/24")),
        Step::add(route(cni0(), "10.2.0.0/16")),
    ];
    let expected = send(
        HOST,
        &[
            "newaddr create excl: dev 8 10.1.0.1/24",
            "newroute create ack: 10.2.0.0/16 dev 8",
        ],
    )
    .refused(0, Errno::EEXIST);
    assert_outcome(&apply(&steps, vec![expected]), &[1], &[]);
}

#[test]
fn add_of_an_existing_address_fails() {
    let expected =
        send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).refused(0, Errno::EEXIST);
    assert_outcome(&apply(&addrs(1), vec![expected]), &[], &[(0, EEXIST)]);
}

fn bridge() -> Link {
    Link {
        up: true,
        kind: LinkKind::Bridge {
            vlan_filtering: false,
        },
        ..Link::any(host("br1"))
    }
}

const NEW_BRIDGE: &str = "newlink create excl echo ack: up name br1 kind bridge";

#[test]
fn ensure_of_a_link_that_another_call_made_sets_it_up() {
    let expected = vec![
        send(HOST, &[NEW_BRIDGE]).refused(0, Errno::EEXIST),
        send(HOST, &["getlink: name br1"]).shows(NEWLINK, link_shown(9, "br1", "bridge")),
        send(HOST, &["newlink ack: dev 9 up"]),
    ];
    assert_outcome(&apply(&[Step::ensure(bridge())], expected), &[0], &[]);
}

#[test]
fn ensure_of_a_link_of_another_kind_fails() {
    let expected = vec![
        send(HOST, &[NEW_BRIDGE]).refused(0, Errno::EEXIST),
        send(HOST, &["getlink: name br1"]).shows(NEWLINK, link_shown(9, "br1", "dummy")),
    ];
    let report = apply(&[Step::ensure(bridge())], expected);
    assert_outcome(&report, &[], &[(0, EEXIST)]);
}

#[test]
fn add_of_an_existing_link_fails() {
    let expected = send(HOST, &[NEW_BRIDGE]).refused(0, Errno::EEXIST);
    let report = apply(&[Step::add(bridge())], vec![expected]);
    assert_outcome(&report, &[], &[(0, EEXIST)]);
}

#[test]
fn an_attribute_of_a_missing_link_is_an_error_while_applying() {
    let steps = [mtu(host("gone0"), 1400, 1500)];
    assert_outcome(&apply(&steps, Vec::new()), &[], &[(0, ENODEV)]);
}

#[test]
fn an_error_names_the_command_and_carries_the_kernels_sentence() {
    let expected = send(HOST, &["newaddr create excl ack: dev 7 10.1.0.2/24"]).refused_saying(
        0,
        Errno::EINVAL,
        "ipv4: Invalid prefix length",
    );
    let report = apply(&addrs(1), vec![expected]);
    let errors: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "host ip addr add 10.1.0.2/24 dev lan brd +: EINVAL (kernel: \"ipv4: Invalid prefix length\")"
        ]
    );
}

#[test]
fn neighbours_that_failed_for_one_reason_are_one_error() {
    let requests = [
        "newaddr create excl: dev 7 10.1.0.2/24",
        "newaddr create excl: dev 7 10.1.0.3/24",
        "newaddr create excl ack: dev 7 10.1.0.4/24",
    ];
    let expected = send(HOST, &requests)
        .refused(0, Errno::EPERM)
        .refused(1, Errno::EPERM)
        .refused(2, Errno::EEXIST);
    let report = apply(&addrs(3), vec![expected]);
    assert_outcome(&report, &[], &[(0, EPERM), (1, EPERM), (2, EEXIST)]);
    assert_eq!(report.errors.len(), 2);
}
