//! The filters that run the programs of host ports: behind braid's shaping, on both sides of a
//! link.

use super::{FILTER, HEAD_LEN, direct, filter_at, parse_kind, parse_program};
use crate::sys::rtnl::u32_of;
use braid_core::name::Hook;
use std::os::fd::RawFd;

/// Preference among several filters: before the redirect, after which no other is asked. One that
/// nobody else chooses, since filters of two kinds can't share it.
const PREFERENCE: u32 = 2842;

/// Body of `RTM_NEWTFILTER`; `class_id` is what the program reads in each packet.
pub fn attach(
    index: u32,
    hook: Hook,
    program: RawFd,
    name: &str,
    class_id: u32,
    out: &mut Vec<u8>,
) {
    detach(index, hook, out);
    direct(program, name, class_id, out);
}

/// Body of `RTM_DELTFILTER`.
pub fn detach(index: u32, hook: Hook, out: &mut Vec<u8>) {
    filter_at(PREFERENCE, index, hook, out);
}

/// Reads `RTM_NEWQDISC`: the link's index, if the queue is the place where filters hang.
pub fn parse_clsact(body: &[u8]) -> Option<u32> {
    u32_of(body.get(4..8)?).filter(|_| parse_kind(body) == "clsact")
}

/// Reads `RTM_NEWTFILTER`: whether it is one, and not what the kernel shows before those of a kind.
pub fn is_filter(body: &[u8]) -> bool {
    body.get(8..12)
        .and_then(u32_of)
        .is_some_and(|handle| handle != 0)
}

/// Reads `RTM_NEWTFILTER`: the number of the program, if it is one of these filters.
pub fn parse(body: &[u8]) -> Option<u32> {
    let number = |at: usize| body.get(at..at + 4).and_then(u32_of);
    let is_it =
        body.len() >= HEAD_LEN && number(8) == Some(FILTER) && number(16)? >> 16 == PREFERENCE;
    parse_program(body).filter(|_| is_it).map(|(id, _)| id)
}
