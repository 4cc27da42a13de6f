//! Qdiscs, classes and filters (`include/uapi/linux/pkt_sched.h`, `pkt_cls.h`).

pub mod hostport;

use super::{text_of, u32_at, u32_in, u64_of};
use crate::sys::netlink::{attr, attributes_of, find, nest};
use braid_core::name::Hook;
use std::os::fd::RawFd;

/// Message type: creates or reports a qdisc.
pub const NEWQDISC: u16 = libc::RTM_NEWQDISC;
/// Message type: deletes a qdisc with everything below it.
pub const DELQDISC: u16 = libc::RTM_DELQDISC;
/// Message type: requests qdiscs.
pub const GETQDISC: u16 = libc::RTM_GETQDISC;
/// Message type: creates or reports a class.
pub const NEWTCLASS: u16 = libc::RTM_NEWTCLASS;
/// Message type: requests classes.
pub const GETTCLASS: u16 = libc::RTM_GETTCLASS;
/// Message type: creates or reports a filter.
pub const NEWTFILTER: u16 = libc::RTM_NEWTFILTER;
/// Message type: deletes a filter.
pub const DELTFILTER: u16 = libc::RTM_DELTFILTER;
/// Message type: requests filters.
pub const GETTFILTER: u16 = libc::RTM_GETTFILTER;

const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
/// `TCA_BPF_CLASSID`: class id of a `bpf` filter.
const CLASSID: u16 = 3;
/// `TCA_BPF_ID`: id of the program of a `bpf` filter.
const ID: u16 = 11;
/// Length of `struct tcmsg`.
const HEAD_LEN: usize = 20;
/// `TC_H_ROOT`.
pub const ROOT: u32 = 0xffff_ffff;
/// `TC_H_CLSACT`: parent of clsact and ingress.
pub const CLSACT: u32 = 0xffff_fff1;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`, the ingress side of clsact.
pub const INGRESS: u32 = 0xffff_fff2;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)`, the egress side of clsact.
const EGRESS: u32 = 0xffff_fff3;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Handle of braid's root qdisc, `1:`.
const HANDLE: u32 = 0x1_0000;
/// Preference of braid's shaping filter among a link's filters. The filter with the lowest
/// preference is called first. Other programs use this number as well.
const PREFERENCE: u32 = 1;
/// Handle of braid's filter among filters with the same preference. No other program uses it.
const FILTER: u32 = 0xb1a1d;
/// `ETH_P_ALL` in network byte order.
pub const ALL_PROTOCOLS: u32 = 0x0300;

/// Returns the parent of a filter that runs a program at this hook of clsact.
fn side(hook: Hook) -> u32 {
    match hook {
        Hook::Ingress => INGRESS,
        Hook::Egress => EGRESS,
    }
}

/// A class of `htb`.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// Number of the parent class; 0 for the root.
    pub parent: u32,
    /// Minor number of the class; the major number is 1.
    pub number: u32,
    /// Guaranteed rate in bytes per second.
    pub rate: u64,
    /// Rate up to which the class may borrow, in bytes per second.
    pub ceil: u64,
    /// Burst, in nanoseconds at the ceiling.
    pub burst_ns: u64,
    /// Priority for borrowing, from 0 (first) to 7 (last).
    pub prio: u32,
}

/// Writes the body of `RTM_NEWQDISC` for a clsact.
pub fn clsact(index: u32, out: &mut Vec<u8>) {
    head(index, CLSACT_HANDLE, CLSACT, 0, out);
    attr(TCA_KIND, b"clsact\0", out);
}

/// Writes the body of `RTM_NEWTFILTER` for a program in direct action mode. The program reads
/// `class_id` in each packet.
pub fn program(
    index: u32,
    hook: Hook,
    program: RawFd,
    name: &str,
    class_id: u32,
    out: &mut Vec<u8>,
) {
    filter(index, hook, out);
    direct(program, name, class_id, out);
}

/// Writes the options of a filter in direct action mode.
fn direct(program: RawFd, name: &str, class_id: u32, out: &mut Vec<u8>) {
    const FD: u16 = 6;
    const NAME: u16 = 7;
    const FLAGS: u16 = 8;
    const DIRECT: u32 = 1;
    nest(TCA_OPTIONS, out, |out| {
        attr(CLASSID, &class_id.to_ne_bytes(), out);
        attr(FD, &program.to_ne_bytes(), out);
        attr(NAME, &[name.as_bytes(), b"\0"].concat(), out);
        attr(FLAGS, &DIRECT.to_ne_bytes(), out);
    });
}

/// Writes the body of `RTM_DELTFILTER` for the filter that runs a shaping program.
pub fn filter(index: u32, hook: Hook, out: &mut Vec<u8>) {
    filter_at(PREFERENCE, index, hook, out);
}

pub(crate) fn filter_at(preference: u32, index: u32, hook: Hook, out: &mut Vec<u8>) {
    head(
        index,
        FILTER,
        side(hook),
        preference << 16 | ALL_PROTOCOLS,
        out,
    );
    attr(TCA_KIND, b"bpf\0", out);
}

/// Writes the body of `RTM_NEWQDISC` for a root qdisc that sends each packet at its departure time,
/// up to `horizon_us` microseconds ahead. The qdisc holds up to `packets` packets.
pub fn fq(index: u32, horizon_us: u32, packets: u32, out: &mut Vec<u8>) {
    const LIMIT: u16 = 1;
    const FLOW_LIMIT: u16 = 2;
    const ORPHAN_MASK: u16 = 10;
    const HORIZON: u16 = 14;
    head(index, HANDLE, ROOT, 0, out);
    attr(TCA_KIND, b"fq\0", out);
    nest(TCA_OPTIONS, out, |out| {
        // One flow may use half of the queue. The default of 100 packets would be reached before
        // the program's horizon.
        attr(LIMIT, &packets.to_ne_bytes(), out);
        attr(FLOW_LIMIT, &(packets / 2).to_ne_bytes(), out);
        attr(ORPHAN_MASK, &16_383u32.to_ne_bytes(), out);
        attr(HORIZON, &horizon_us.to_ne_bytes(), out);
    });
}

/// Writes the body of `RTM_NEWQDISC` for a root qdisc that sends `rate` bytes per second, with
/// bursts of `bucket` bytes. Up to `limit` bytes are queued.
pub fn tbf(index: u32, rate: u64, bucket: u64, limit: u64, out: &mut Vec<u8>) {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    head(index, HANDLE, ROOT, 0, out);
    attr(TCA_KIND, b"tbf\0", out);
    nest(TCA_OPTIONS, out, |out| {
        nest(PARMS, out, |out| {
            out.extend_from_slice(&rate_spec(rate));
            // No peak rate.
            numbers([0, 0, 0, narrow(limit), 0, 0], out);
        });
        attr(RATE64, &rate.to_ne_bytes(), out);
        attr(BURST, &narrow(bucket).to_ne_bytes(), out);
    });
}

/// Writes the body of `RTM_NEWQDISC` for a qdisc below `tbf` with three bands. The first band has
/// priority.
pub fn pfifo_fast(index: u32, out: &mut Vec<u8>) {
    head(index, 2 << 16, HANDLE | 1, 0, out);
    attr(TCA_KIND, b"pfifo_fast\0", out);
}

/// Writes the body of `RTM_NEWQDISC` for a qdisc below `tbf` that separates flows and keeps their
/// delay below `target_us` microseconds.
pub fn fq_codel(index: u32, target_us: u32, out: &mut Vec<u8>) {
    const TARGET: u16 = 1;
    const INTERVAL: u16 = 3;
    const ECN: u16 = 4;
    /// Length of the interval in targets. The interval is a round trip, and the target should be a
    /// twentieth of it (RFC 8289, section 4.4).
    const TARGETS: u32 = 20;
    head(index, 2 << 16, HANDLE | 1, 0, out);
    attr(TCA_KIND, b"fq_codel\0", out);
    nest(TCA_OPTIONS, out, |out| {
        attr(TARGET, &target_us.to_ne_bytes(), out);
        attr(
            INTERVAL,
            &target_us.saturating_mul(TARGETS).to_ne_bytes(),
            out,
        );
        attr(ECN, &1u32.to_ne_bytes(), out);
    });
}

/// Writes the body of `RTM_NEWQDISC` for a root qdisc with classes. Packets without a class go to
/// `default`.
pub fn htb(index: u32, default: u32, out: &mut Vec<u8>) {
    const INIT: u16 = 2;
    const VERSION: u32 = 3;
    const RATE_TO_QUANTUM: u32 = 10;
    head(index, HANDLE, ROOT, 0, out);
    attr(TCA_KIND, b"htb\0", out);
    nest(TCA_OPTIONS, out, |out| {
        nest(INIT, out, |out| {
            numbers([VERSION, RATE_TO_QUANTUM, default, 0, 0], out);
        });
    });
}

/// Writes the body of `RTM_NEWTCLASS` for an `htb` class.
pub fn class(index: u32, class: Class, out: &mut Vec<u8>) {
    const PARMS: u16 = 1;
    const RATE64: u16 = 6;
    const CEIL64: u16 = 7;
    // Bytes that a class sends in one turn: at least two packets, or the kernel logs a warning.
    const QUANTA: std::ops::RangeInclusive<u64> = 3_028..=60_000;
    let parent = if class.parent == 0 {
        HANDLE
    } else {
        HANDLE | class.parent
    };
    head(index, HANDLE | class.number, parent, 0, out);
    attr(TCA_KIND, b"htb\0", out);
    nest(TCA_OPTIONS, out, |out| {
        let quantum = (class.ceil / 10).clamp(*QUANTA.start(), *QUANTA.end());
        nest(PARMS, out, |out| {
            out.extend_from_slice(&rate_spec(class.rate));
            out.extend_from_slice(&rate_spec(class.ceil));
            numbers(
                [
                    ticks(class.burst_ns),
                    ticks(class.burst_ns),
                    narrow(quantum),
                    0,
                    class.prio,
                ],
                out,
            );
        });
        attr(RATE64, &class.rate.to_ne_bytes(), out);
        attr(CEIL64, &class.ceil.to_ne_bytes(), out);
    });
}

/// Writes the body of `RTM_NEWQDISC` for a queue of `bytes` bytes below the class with this number.
pub fn bfifo(index: u32, class: u32, bytes: u32, out: &mut Vec<u8>) {
    // Handle `20:` below class `1:20`.
    head(index, class << 16, HANDLE | class, 0, out);
    attr(TCA_KIND, b"bfifo\0", out);
    attr(TCA_OPTIONS, &bytes.to_ne_bytes(), out);
}

/// Writes the body of `RTM_DELQDISC` for braid's root qdisc.
pub fn root(index: u32, out: &mut Vec<u8>) {
    head(index, HANDLE, ROOT, 0, out);
}

/// Writes the body of `RTM_GETQDISC` for the root qdisc of a link.
pub fn get_root(index: u32, out: &mut Vec<u8>) {
    head(index, 0, ROOT, 0, out);
}

/// Writes the body of `RTM_GETQDISC` for the `clsact` or `ingress` qdisc of a link.
pub fn get_beside(index: u32, out: &mut Vec<u8>) {
    head(index, 0, CLSACT, 0, out);
}

/// Writes the body of `RTM_GETQDISC` for a dump of all qdiscs.
pub fn dump_queues(out: &mut Vec<u8>) {
    head(0, 0, 0, 0, out);
}

/// Counters of a qdisc.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Number of times that a packet was delayed.
    pub delayed: u64,
}

/// Root qdisc of a link.
#[derive(Debug, Default)]
pub struct Root {
    /// Kind of the qdisc.
    pub kind: String,
    /// True if the qdisc was configured. The kernel's default qdisc has no handle.
    pub is_chosen: bool,
    /// Rate in bytes per second, only of `tbf`.
    pub rate: Option<u64>,
    /// Counters of the qdisc.
    pub passed: Passed,
}

/// Parses `RTM_NEWQDISC` of a root qdisc.
pub fn parse_root(body: &[u8]) -> Root {
    const STATS2: u16 = 7;
    let handle = u32_at(body, 8);
    let mut root = Root {
        is_chosen: handle.is_some_and(|handle| handle != 0),
        ..Root::default()
    };
    for (kind, value) in attributes_of(body.get(HEAD_LEN..).unwrap_or_default()) {
        match kind {
            TCA_KIND => root.kind = text_of(value),
            TCA_OPTIONS if root.kind == "tbf" => root.rate = rate_in(value, 4),
            STATS2 => root.passed = passed(value),
            _ => {}
        }
    }
    root
}

/// Parses `RTM_NEWQDISC` and returns the kind.
pub fn parse_kind(body: &[u8]) -> String {
    match find(TCA_KIND, body.get(HEAD_LEN..).unwrap_or_default()) {
        Some(kind) => text_of(kind),
        None => String::new(),
    }
}

/// True if `RTM_NEWQDISC` is about an `ingress` qdisc of link `index`.
pub fn is_ingress(body: &[u8], index: u32) -> bool {
    u32_at(body, 4) == Some(index)
        && u32_at(body, 12) == Some(CLSACT)
        && parse_kind(body) == "ingress"
}

/// Parses `TCA_STATS_BASIC` and `TCA_STATS_QUEUE` (`include/uapi/linux/gen_stats.h`).
fn passed(stats: &[u8]) -> Passed {
    const BASIC: u16 = 1;
    const QUEUE: u16 = 3;
    let mut passed = Passed::default();
    for (kind, value) in attributes_of(stats) {
        let number = |at: usize| u32_at(value, at).map_or(0, u64::from);
        match kind {
            BASIC => {
                passed.bytes = u64_of(value).unwrap_or_default();
                passed.packets = number(8);
            }
            QUEUE => {
                passed.dropped = number(8);
                passed.delayed = number(16);
            }
            _ => {}
        }
    }
    passed
}

/// Returns the rate in the options of `tbf` or of an `htb` class, in bytes per second. A rate that
/// needs 64 bits is in the attribute `wide`. Any other rate is in the first attribute.
fn rate_in(options: &[u8], wide: u16) -> Option<u64> {
    if let Some(rate) = find(wide, options).and_then(u64_of) {
        return Some(rate);
    }
    let narrow = u32_at(find(1, options)?, 8)?;
    Some(narrow.into())
}

/// Writes the body of `RTM_GETTCLASS` for a dump of a link's classes.
pub fn dump_classes(index: u32, out: &mut Vec<u8>) {
    head(index, 0, 0, 0, out);
}

/// Parses `RTM_NEWTCLASS` and returns the rate of the class with this number, in bytes per second.
pub fn parse_class_rate(body: &[u8], class: u32) -> Option<u64> {
    const RATE64: u16 = 6;
    if u32_at(body, 8) != Some(HANDLE | class) {
        return None;
    }
    rate_in(find(TCA_OPTIONS, body.get(HEAD_LEN..)?)?, RATE64)
}

/// Writes the body of `RTM_GETTFILTER` for a dump of one side of clsact.
pub fn dump_filters(index: u32, hook: Hook, out: &mut Vec<u8>) {
    head(index, 0, side(hook), 0, out);
}

/// Returns the options of a `bpf` filter. Other kinds use the same attribute types differently.
pub(crate) fn bpf_options(body: &[u8]) -> Option<&[u8]> {
    if parse_kind(body) != "bpf" {
        return None;
    }
    find(TCA_OPTIONS, body.get(HEAD_LEN..)?)
}

/// Parses `RTM_NEWTFILTER` and returns the program's id and the class id. `None` if the filter runs
/// no program.
pub fn parse_program(body: &[u8]) -> Option<(u32, u32)> {
    let options = bpf_options(body)?;
    Some((
        u32_in(ID, options)?,
        u32_in(CLASSID, options).unwrap_or_default(),
    ))
}

/// Builds `struct tc_ratespec`. With link layer Ethernet, the kernel needs no rate table. A rate
/// beyond 32 bits has a separate attribute.
fn rate_spec(rate: u64) -> [u8; 12] {
    const ETHERNET: u8 = 1;
    let mut spec = [0; 12];
    spec[1] = ETHERNET;
    spec[8..].copy_from_slice(&narrow(rate).to_ne_bytes());
    spec
}

/// Converts a time to the packet schedulers' unit of 64 ns.
fn ticks(ns: u64) -> u32 {
    narrow(ns >> 6)
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Writes `struct tcmsg`.
fn head(index: u32, handle: u32, parent: u32, info: u32, out: &mut Vec<u8>) {
    numbers([0, index, handle, parent, info], out);
}

pub(crate) fn numbers<const COUNT: usize>(numbers: [u32; COUNT], out: &mut Vec<u8>) {
    out.extend_from_slice(numbers.map(u32::to_ne_bytes).as_flattened());
}
