//! Configuration of the eBPF program `shape`, and the state that it reports.

use super::program::Program;
use crate::effect::shaping::slot;
use crate::sys::netlink::KernelError;
use crate::sys::rtnl::tc;
use braid_core::name::Hook;
use braid_core::plan::queue_fallback::Queue;
use braid_core::plan::thing::Shaping;
use braid_core::plan::thing::shaping::{
    FIRST_NS, HORIZON_NS, Limit, ProgramFact, Shaper, Toward, Traffic,
};
use braid_ebpf_types::shape::{
    BYTE_TIME_SHIFT, CLOCK_BASE_NS, Conf, Count, EXCEPT, FROM_POD, GUARD, ONLY, PLACE_BITS, PLACES,
    TO_POD, index,
};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, RawFd};

/// Minimal time in nanoseconds after the departure of a flow's last packet. After this time, the
/// flow's next packet may bypass the waiting packets of other flows. An earlier bypass could
/// reorder the flow in queues other than `fq`, as only `fq` sorts a flow by time.
const UNSORTED_GAP_NS: u64 = 20_000_000;

/// The loaded program, with the slot of one attachment.
pub(super) struct Loaded {
    program: Program,
    slot: u32,
}

impl AsRawFd for Loaded {
    fn as_raw_fd(&self) -> RawFd {
        self.program.as_raw_fd()
    }
}

impl Loaded {
    /// Loads and configures the program; `None` if no queue of the attachment uses a program.
    pub(super) fn of(shaping: &Shaping) -> Result<Option<Self>, Errno> {
        if !shaping
            .shapers
            .iter()
            .any(|shaper| shaper.queue.has_program())
        {
            return Ok(None);
        }
        let (program, slot) = match &shaping.subnets {
            None => slot::take(&shaping.owner)?,
            // A program with subnets is not shared, since they belong to one attachment.
            Some(subnets) => (Program::load(&subnets.nets)?, 0),
        };
        program.tell(slot, &told(shaping))?;
        Ok(Some(Self { program, slot }))
    }

    /// Returns the class id of the filter at `place`, which also contains the slot.
    pub(super) fn class(&self, place: u32) -> u32 {
        self.slot << PLACE_BITS | place
    }
}

/// Changes the configuration of braid's program for one direction. `filters` are those of the link.
/// Returns false if none of them runs the program.
pub(super) fn retune<'f>(
    filters: impl Iterator<Item = &'f [u8]>,
    shaper: &Shaper,
    shaping: &Shaping,
) -> Result<bool, Errno> {
    for filter in filters {
        let Some((id, class)) = tc::parse_program(filter) else {
            continue;
        };
        if let Some(program) = Program::by_id(id)? {
            let place = index(class & ((1 << PLACE_BITS) - 1));
            program.retune(class >> PLACE_BITS, place, conf(shaper, shaping))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the state of braid's program in a filter; `None` for any other filter.
pub(super) fn fact_of(filter: &[u8], hook: Hook) -> Result<Option<ProgramFact>, KernelError> {
    let Some((id, class)) = tc::parse_program(filter) else {
        return Ok(None);
    };
    let Some(program) = Program::by_id(id)? else {
        return Ok(None);
    };
    let places = match program.places(class >> PLACE_BITS) {
        // This is another program with the same name, since it has no such slot.
        Err(Errno::ENOENT) => return Ok(None),
        places => places?,
    };
    let place = class & ((1 << PLACE_BITS) - 1);
    let (conf, count) = places[index(place)];
    let limit = Limit {
        bps: conf.rate_bps,
        burst_ns: conf.burst_ns,
    };
    let Count {
        packets,
        bytes,
        delayed,
        dropped,
        marked,
        bypassed,
    } = count;
    let guarded = if place == FROM_POD {
        places[index(GUARD)].1.dropped
    } else {
        0
    };
    let passed = Traffic {
        bytes,
        packets,
        delayed,
        dropped,
        marked,
        bypassed,
        guarded,
    };
    Ok(Some(ProgramFact {
        hook,
        limit,
        passed,
    }))
}

fn told(shaping: &Shaping) -> [Conf; PLACES] {
    let mut places = [Conf::default(); PLACES];
    if let Some(shaper) = shaping.shaper(Toward::Pod) {
        places[index(TO_POD)] = conf(shaper, shaping);
    }
    if let Some(shaper) = shaping.shaper(Toward::Network) {
        places[index(FROM_POD)] = conf(shaper, shaping);
    }
    places
}

/// Builds the program's configuration for one direction.
fn conf(shaper: &Shaper, shaping: &Shaping) -> Conf {
    let sorts = shaper.queue == Queue::Fq;
    Conf {
        rate_bps: shaper.rate.bps,
        byte_time: byte_time(shaper.rate.bps),
        burst_ns: shaper.clock_burst_ns().min(CLOCK_BASE_NS),
        horizon_ns: HORIZON_NS,
        socket_horizon_ns: shaper.socket_horizon_ns(),
        first_ns: FIRST_NS,
        ecn_ns: shaper.ecn_ns(),
        keeps_priority: if sorts { u64::MAX } else { 0 },
        keeps_stamp: if sorts { 0 } else { u64::MAX },
        gap_ns: if sorts { 0 } else { UNSORTED_GAP_NS },
        lag_ns: if sorts { 0 } else { CLOCK_BASE_NS },
        subnets: shaping
            .subnets
            .as_ref()
            .map_or(0, |subnets| if subnets.only { ONLY } else { EXCEPT }),
    }
}

/// Returns the time per byte in the program's units, rounded up so that the rate is never exceeded.
fn byte_time(bps: u64) -> u64 {
    const BYTE_NS: u128 = 8 * 1_000_000_000;
    u64::try_from((BYTE_NS << BYTE_TIME_SHIFT).div_ceil(u128::from(bps.max(1)))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_time_is_rounded_up_and_fits_the_largest_packet_at_the_lowest_rate() {
        // GSO packet of 524,280 bytes (`GSO_MAX_SIZE`), with headers for every 1448 bytes.
        let largest = 524_280 / 1448 * 1514 + 1514;
        let took = |bps: u64, bytes: u64| {
            byte_time(bps)
                .checked_mul(bytes)
                .map(|time| time >> BYTE_TIME_SHIFT)
        };
        assert_eq!(took(8, largest), Some(largest * 1_000_000_000));
        assert_eq!(took(1_000_000_000, 1514), Some(12_112));
        let exact = 8 * 1514 * 1_000_000_000 / 100_000_000_000;
        let counted = took(100_000_000_000, 1514).expect("it fits");
        assert!(
            (exact..=exact + 1).contains(&counted),
            "{counted} ns for {exact}"
        );
        assert_eq!(byte_time(u64::MAX), 1);
    }
}
