//! The filters that run the programs of host ports: behind braid's shaping, on both sides of a link.

use super::{FILTER, HEAD_LEN, direct, filter_at, parse_program};
use crate::plan::shaping::Hook;
use crate::sys::rtnl::u32_of;
use std::os::fd::RawFd;

/// Which of several filters is asked first: after the guard, which drops.
const PREFERENCE: u32 = 2;

/// Body of `RTM_NEWTFILTER`; `class_id` is what the program reads in each packet.
pub fn attach(index: u32, hook: Hook, program: RawFd, name: &str, class_id: u32, out: &mut Vec<u8>) {
    detach(index, hook, out);
    direct(program, name, class_id, out);
}

/// Body of `RTM_DELTFILTER`.
pub fn detach(index: u32, hook: Hook, out: &mut Vec<u8>) {
    filter_at(PREFERENCE, index, hook, out);
}

/// Reads `RTM_NEWTFILTER`: the number of the program, if it is one of these filters.
pub fn parse(body: &[u8]) -> Option<u32> {
    let number = |at: usize| body.get(at..at + 4).and_then(u32_of);
    let is_it = body.len() >= HEAD_LEN && number(8) == Some(FILTER) && number(16)? >> 16 == PREFERENCE;
    parse_program(body).filter(|_| is_it).map(|(id, _)| id)
}
