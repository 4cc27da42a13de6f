//! Elements of nf_tables: looked up one by one, deleted in one transaction.

use super::*;
use crate::kernel::scripted::NFT;
use crate::sys::netlink::fake::send;
use crate::sys::netlink::{NESTED, attr, nest};
use braid_core::plan::thing::Masquerade;
use nix::errno::Errno;

/// `NFNL_SUBSYS_NFTABLES` and `NFT_MSG_NEWSETELEM`.
const NEWSETELEM: u16 = 0x0a0c;
const OWNER: &str = "net c1 eth0";

fn masquerade(last: u8) -> Step {
    Step::del(Masquerade {
        source: [10, 1, 0, last].into(),
        network: "10.1.0.0/24".parse().expect("a prefix"),
        owner: OWNER.to_owned(),
    })
}

/// Returns the body of `NFT_MSG_NEWSETELEM` in which the kernel reports an element.
fn element_shown(last: u8, owner: &str) -> Vec<u8> {
    const ELEMENTS: u16 = 3;
    const USERDATA: u16 = 6;
    // Type of a comment, then its length with the NUL.
    let len = u8::try_from(owner.len() + 1).expect("a short owner");
    let comment = [&[0, len], owner.as_bytes(), b"\0"].concat();
    let mut body = vec![1, 0, 0, 0];
    nest(NESTED | ELEMENTS, &mut body, |out| {
        nest(NESTED | 1, out, |out| {
            nest(NESTED | 1, out, |out| attr(1, &[10, 1, 0, last], out));
            attr(USERDATA, &comment, out);
        });
    });
    body
}

/// Returns the exchange that looks up an element. In the answer, the element belongs to `owner`.
fn look_up(last: u8, owner: &str) -> Exchange {
    let request = format!("getsetelem ack: masquerade4 10.1.0.{last}");
    send(NFT, &[&request]).shows(NEWSETELEM, element_shown(last, owner))
}

/// Returns the transaction that deletes the elements `10.1.0.2` and `10.1.0.4`.
fn both() -> Exchange {
    send(
        NFT,
        &[
            "batch begin",
            "delsetelem: masquerade4 10.1.0.2",
            "delsetelem ack: masquerade4 10.1.0.4",
            "batch end",
        ],
    )
}

/// Returns the transaction that deletes one element.
fn one(last: u8) -> Exchange {
    let request = format!("delsetelem ack: masquerade4 10.1.0.{last}");
    send(NFT, &["batch begin", &request, "batch end"])
}

#[test]
fn elements_are_deleted_in_one_transaction_without_those_of_other_owners() {
    let steps = [2, 3, 4].map(masquerade);
    let expected = vec![
        look_up(2, OWNER),
        look_up(3, "net c2 eth0"),
        look_up(4, OWNER),
        both(),
    ];
    assert_outcome(&clean_up(&steps, expected), &[0, 1, 2], &[]);
}

#[test]
fn elements_are_deleted_one_by_one_if_one_of_them_is_missing_by_then() {
    let steps = [2, 4].map(masquerade);
    let expected = vec![
        look_up(2, OWNER),
        look_up(4, OWNER),
        both().refused(2, Errno::ENOENT),
        one(2),
        one(4).refused(1, Errno::ENOENT),
    ];
    assert_outcome(&clean_up(&steps, expected), &[0, 1], &[]);
}

#[test]
fn a_refused_transaction_is_an_error_of_each_of_its_steps_even_if_an_answer_is_lost() {
    let steps = [2, 4].map(masquerade);
    let refused = || both().refused(1, Errno::EPERM);
    for transaction in [refused(), refused().receive_fails(Errno::ENOBUFS)] {
        let expected = vec![look_up(2, OWNER), look_up(4, OWNER), transaction];
        let report = clean_up(&steps, expected);
        assert_outcome(&report, &[], &[(0, EPERM), (1, EPERM)]);
    }
}
