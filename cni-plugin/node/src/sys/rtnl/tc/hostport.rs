//! Filters that run the host ports' programs at ingress and egress of a link, after braid's
//! shaping.

use super::{FILTER, HEAD_LEN, direct, filter_at, parse_kind, parse_program};
use crate::sys::rtnl::u32_at;
use braid_core::name::Hook;
use std::os::fd::RawFd;

/// Preference of these filters among a link's filters. These filters are called before braid's
/// redirect, because no filter is called after the redirect. Filters of two kinds cannot share a
/// preference, so this number is one that no other program uses.
const PREFERENCE: u32 = 2842;

/// Writes the body of `RTM_NEWTFILTER` for a host ports' program, which reads `class_id` in each
/// packet.
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

/// Writes the body of `RTM_DELTFILTER` for a host ports' program.
pub fn detach(index: u32, hook: Hook, out: &mut Vec<u8>) {
    filter_at(PREFERENCE, index, hook, out);
}

/// Parses `RTM_NEWQDISC` and returns the link's index if the qdisc is a clsact.
pub fn parse_clsact(body: &[u8]) -> Option<u32> {
    if parse_kind(body) != "clsact" {
        return None;
    }
    u32_at(body, 4)
}

/// Parses `RTM_NEWTFILTER`: true for a filter, false for the header that precedes the filters of a
/// kind.
pub fn is_filter(body: &[u8]) -> bool {
    u32_at(body, 8).is_some_and(|handle| handle != 0)
}

/// Parses `RTM_NEWTFILTER` and returns the program's id if it is a filter for host ports.
pub fn parse(body: &[u8]) -> Option<u32> {
    let is_it = body.len() >= HEAD_LEN
        && u32_at(body, 8) == Some(FILTER)
        && u32_at(body, 16)? >> 16 == PREFERENCE;
    if !is_it {
        return None;
    }
    let (id, _) = parse_program(body)?;
    Some(id)
}
