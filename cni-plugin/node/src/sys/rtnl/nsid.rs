//! Ids of other network namespaces in a network namespace (`include/uapi/linux/net_namespace.h`).

use super::u32_of;
use crate::sys::netlink::{attr, attributes_of};
use std::os::fd::AsRawFd;

/// Length of `struct rtgenmsg`, padded.
const HEAD_LEN: usize = 4;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// Writes the body of `RTM_GETNSID` for the namespace that the file `of` refers to.
pub fn get(of: &impl AsRawFd, out: &mut Vec<u8>) {
    out.extend([0; HEAD_LEN]);
    attr(NETNSA_FD, &of.as_raw_fd().to_ne_bytes(), out);
}

/// Writes the body of `RTM_GETNSID` for a dump of all ids.
pub fn dump(out: &mut Vec<u8>) {
    out.extend([0; HEAD_LEN]);
}

/// Parses `RTM_NEWNSID` and returns the id; `None` if the namespace has no id yet.
pub fn parse(body: &[u8]) -> Option<i32> {
    let (_, number) =
        attributes_of(body.get(HEAD_LEN..)?).find(|(kind, _)| *kind == NETNSA_NSID)?;
    let number = u32_of(number)?.cast_signed();
    (number >= 0).then_some(number)
}
