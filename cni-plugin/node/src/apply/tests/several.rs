//! Steps that send several requests, and steps that wait.

use super::*;
use crate::sys::netlink::fake::send;
use braid_core::plan::step::Event;
use braid_core::plan::thing::VrfMember;
use nix::errno::Errno;

const NEWLINK: u16 = 16;
const NEWADDR: u16 = 20;
const ENOBUFS: &str = "ENOBUFS (kernel: \"No buffer space available\")";
const MASTER: u16 = 10;
const BLUE: u32 = 5;

fn member() -> VrfMember {
    VrfMember {
        at: eth0(),
        vrf: pod("blue").name,
        table: 100,
    }
}

#[test]
fn a_step_of_several_requests_counts_as_applied_if_a_later_one_is_refused() {
    let expected = vec![
        send(
            POD,
            &["newlink create excl echo ack: up name blue kind vrf"],
        )
        .shows(NEWLINK, link_shown(BLUE, "blue", "vrf")),
        send(POD, &["newlink ack: dev 2 master 5"]).refused(0, Errno::EPERM),
    ];
    let report = apply(&[Step::add(member())], expected);
    assert_outcome(&report, &[0], &[(0, EPERM)]);
}

/// Creates a kernel with the VRF `blue`.
fn with_vrf(expected: Vec<Exchange>) -> Sandbox {
    let sandbox = Sandbox::new(expected);
    sandbox.script.link(POD, "blue", BLUE);
    sandbox
}

fn in_vrf(index: u32, name: &str) -> Vec<u8> {
    let mut body = link_shown(index, name, "dummy");
    attr(MASTER, &BLUE.to_ne_bytes(), &mut body);
    body
}

#[test]
fn an_interrupted_dump_is_repeated() {
    let look_up =
        || send(POD, &["getlink: name blue"]).shows(NEWLINK, link_shown(BLUE, "blue", "vrf"));
    let list = || send(POD, &["getlink dump"]).shows(NEWLINK, in_vrf(ETH0, "eth0"));
    let mut sandbox = with_vrf(vec![
        look_up(),
        list().interrupted(),
        list().shows(NEWLINK, in_vrf(NET1, "net1")),
        send(POD, &["newlink ack: dev 2 master 0"]),
    ]);
    let report = sandbox.run(&[Step::del(member())], OnError::GoOn);
    assert_outcome(&report, &[0], &[]);
}

#[test]
fn a_link_counts_as_applied_if_its_acknowledgement_is_lost() {
    let expected = send(POD, &["newlink create excl echo ack: name d0 kind dummy"])
        .receive_fails(Errno::ENOBUFS);
    let report = apply(&[Step::add(dummy(pod("d0")))], vec![expected]);
    assert_outcome(&report, &[0], &[(0, ENOBUFS)]);
}

/// Returns the body of `RTM_NEWADDR` for the address `fd00::2/64` of `lan`.
fn addr_shown(flags: u8) -> Vec<u8> {
    const AF_INET6: u8 = 10;
    const ADDRESS: u16 = 1;
    let mut body = vec![AF_INET6, 64, flags, 0];
    body.extend(LAN.to_ne_bytes());
    let ip: std::net::Ipv6Addr = "fd00::2".parse().expect("an address");
    attr(ADDRESS, &ip.octets(), &mut body);
    body
}

fn until_no_address_is_tentative() -> [Step; 3] {
    [
        Step::add(addr(lan(), "fd00::2/64")),
        Step::Wait(Event::Dad(lan())),
        Step::add(route(lan(), "fd01::/64")),
    ]
}

#[test]
fn a_wait_is_between_the_sends_of_its_neighbours() {
    let expected = vec![
        send(HOST, &["newaddr create excl ack: dev 7 fd00::2/64"]),
        send(HOST, &["getaddr dump: dev 7"]).shows(NEWADDR, addr_shown(0)),
        send(HOST, &["newroute create ack: fd01::/64 dev 7"]),
    ];
    let report = apply(&until_no_address_is_tentative(), expected);
    assert_outcome(&report, &[0, 1, 2], &[]);
}

#[test]
fn a_failed_wait_ends_the_run() {
    const DADFAILED: u8 = 0x08;
    let expected = vec![
        send(HOST, &["newaddr create excl ack: dev 7 fd00::2/64"]),
        send(HOST, &["getaddr dump: dev 7"]).shows(NEWADDR, addr_shown(DADFAILED)),
    ];
    let report = apply(&until_no_address_is_tentative(), expected);
    let used = "address fd00::2/64 of lan in host is used by another host";
    assert_outcome(&report, &[0], &[(1, used)]);
}
