//! Shaping an attachment: one program for all its places, and a queue for each direction.

use super::kernel::Kernel;
use crate::plan::ladder::Queue;
use crate::plan::shaping::{Hook, Limit, ProgramFact, ShapedFact, Shaper, Shaping, Toward, Traffic};
use crate::plan::step::{LinkRef, Ns};
use crate::sys::bpf::shape::{NAME, Program};
use crate::sys::netlink::{CREATE, EXCL, KernelError, REPLACE, Socket};
use crate::sys::rtnl::tc::{self, Class};
use braid_ebpf_types::shape::{
    BYTE_TIME_SHIFT, CLASS_BULK, CLASS_FREE, CLASS_SPARSE, CLOCK_BASE_NS, Conf, Count, EXCEPT, FROM_POD, GUARD, ONLY,
    TO_POD,
};
use nix::errno::Errno;
use std::os::fd::AsRawFd;

/// `htb` does not sort a flow by time, so a flow's last packet must have left for so long before another may pass it.
const UNSORTED_GAP_NS: u64 = 20_000_000;
/// `fq`'s own horizon, in microseconds, is far beyond the program's: it drops nothing.
const FQ_HORIZON_US: u64 = 10_000_000;
const CLASS_NUMBER: u32 = 0xffff;
/// The class above both.
const CLASS_ALL: u32 = 1;

/// Loads the program and attaches it with its queues, all of one namespace in one send.
pub(super) fn add(kernel: &mut Kernel, shaping: &Shaping) -> Result<(), KernelError> {
    let conf = |toward| shaping.shaper(toward).map_or_else(Conf::default, |shaper| conf(shaper, shaping));
    let subnets = shaping.subnets.as_ref().map_or(&[][..], |subnets| &subnets.nets);
    let has_program = shaping.shapers.iter().any(|shaper| shaper.queue.has_program());
    let program =
        has_program.then(|| Program::load([conf(Toward::Pod), conf(Toward::Network)], subnets)).transpose()?;
    for ns in [Ns::Host, Ns::Pod] {
        let shapers = shaping.shapers.iter().filter(|shaper| shaper.at.ns == ns);
        let shapers = shapers.map(|shaper| kernel.index(&shaper.at).map(|index| (shaper, index)));
        let shapers = shapers.collect::<Result<Vec<_>, _>>()?;
        let guard = shaping.guard.as_ref().filter(|at| at.ns == ns).map(|at| kernel.index(at)).transpose()?;
        if shapers.is_empty() && guard.is_none() {
            continue;
        }
        let mut batch = Batch::on(kernel.route(ns)?);
        for (shaper, index) in shapers {
            if let Some(program) = program.as_ref().filter(|_| shaper.queue.has_program()) {
                let place = if shaper.toward == Toward::Pod { TO_POD } else { FROM_POD };
                batch.attach(index, Hook::Egress, program, place);
            }
            batch.queue(index, shaper, shaping.subnets.is_some());
        }
        if let (Some(index), Some(program)) = (guard, &program) {
            batch.attach(index, Hook::Ingress, program, GUARD);
        }
        batch.send()?;
    }
    Ok(())
}

/// Takes away what [`add`] made; what is not there is success.
pub(super) fn del(kernel: &mut Kernel, shaping: &Shaping) -> Result<(), KernelError> {
    for shaper in &shaping.shapers {
        let Some(index) = found(kernel.index(&shaper.at))? else { continue };
        let socket = kernel.route(shaper.at.ns)?;
        found(socket.call(tc::DELQDISC, 0, |out| tc::root(index, out)))?;
        detach(kernel, &shaper.at, Hook::Egress)?;
    }
    shaping.guard.iter().try_for_each(|at| detach(kernel, at, Hook::Ingress))
}

/// Sends all that comes in from one link out through another.
pub(super) fn redirect(kernel: &mut Kernel, from: &LinkRef, to: &LinkRef) -> Result<(), KernelError> {
    let (index, to) = (kernel.index(from)?, kernel.index(to)?);
    let mut batch = Batch::on(kernel.route(from.ns)?);
    batch.clsact(index);
    batch.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| tc::redirect(index, to, out));
    batch.send()
}

/// Ends it; what is not there is success.
pub(super) fn end_redirect(kernel: &mut Kernel, from: &LinkRef) -> Result<(), KernelError> {
    detach(kernel, from, Hook::Ingress)
}

/// Takes braid's filter off one side of a link, and the place where it hung when nothing else hangs there.
fn detach(kernel: &mut Kernel, at: &LinkRef, hook: Hook) -> Result<(), KernelError> {
    let Some(index) = found(kernel.index(at))? else { return Ok(()) };
    let socket = kernel.route(at.ns)?;
    found(socket.call(tc::DELTFILTER, 0, |out| tc::filter(index, hook, out)))?;
    for side in [Hook::Egress, Hook::Ingress] {
        let filters = found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, side, out)))?;
        if filters.is_some_and(|filters| !filters.is_empty()) {
            return Ok(());
        }
    }
    found(socket.call(tc::DELQDISC, 0, |out| tc::clsact(index, out))).map(drop)
}

/// How a link is shaped.
pub fn observe(kernel: &mut Kernel, at: &LinkRef) -> Result<ShapedFact, KernelError> {
    let Some(index) = found(kernel.index(at))? else { return Ok(ShapedFact::default()) };
    let socket = kernel.route(at.ns)?;
    // All of them: asked for one, some kernels send nothing unless somebody listens to changes.
    let queues = socket.dump(tc::GETQDISC, tc::dump_queues)?;
    let root = queues.iter().find_map(|message| tc::parse_root(&message.body, index)).unwrap_or_default();
    let mut rate = root.rate;
    if root.kind == Queue::Htb.kind() {
        let classes = found(socket.dump(tc::GETTCLASS, |out| tc::dump_classes(index, out)))?.unwrap_or_default();
        rate = classes.iter().find_map(|message| tc::parse_class_rate(&message.body, CLASS_ALL));
    }
    let mut fact = ShapedFact {
        queue: root.kind,
        is_chosen: root.is_chosen,
        has_ingress: queues.iter().any(|message| tc::is_ingress(&message.body, index)),
        bps: rate.map(|rate| rate.saturating_mul(8)),
        passed: root.passed,
        ..ShapedFact::default()
    };
    for hook in [Hook::Egress, Hook::Ingress] {
        let filters = found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, hook, out)))?.unwrap_or_default();
        for message in &filters {
            if hook == Hook::Ingress {
                fact.redirected_to = fact.redirected_to.or_else(|| tc::parse_redirect(&message.body));
            }
            fact.programs.extend(program(&message.body, hook)?);
        }
    }
    Ok(fact)
}

/// What braid's program in a filter does; none for any other filter.
fn program(filter: &[u8], hook: Hook) -> Result<Option<ProgramFact>, KernelError> {
    let Some((id, place)) = tc::parse_program(filter) else { return Ok(None) };
    let Some(program) = Program::by_id(id)? else { return Ok(None) };
    let (conf, count) = program.direction(if place == GUARD { FROM_POD } else { place })?;
    let limit = match hook {
        Hook::Egress => Limit { bps: conf.rate_bps, burst_ns: conf.burst_ns },
        Hook::Ingress => Limit { bps: conf.guard_bps, burst_ns: conf.guard_depth_ns },
    };
    let Count { packets, bytes, delayed, dropped, marked, bypassed, guarded } = count;
    let passed = Traffic { bytes, packets, delayed, dropped, marked, bypassed, guarded };
    Ok(Some(ProgramFact { hook, limit, passed }))
}

/// What the program is told of one direction.
fn conf(shaper: &Shaper, shaping: &Shaping) -> Conf {
    let sorts = shaper.queue == Queue::Fq;
    let is_guarded = shaper.toward == Toward::Network && shaping.guard.is_some();
    Conf {
        rate_bps: shaper.rate.bps,
        byte_time: byte_time(shaper.rate.bps),
        burst_ns: shaper.rate.burst_ns().min(CLOCK_BASE_NS),
        horizon_ns: shaper.horizon_ns(),
        ecn_ns: shaper.ecn_ns(),
        sorts: if sorts { u64::MAX } else { 0 },
        gap_ns: if sorts { 0 } else { UNSORTED_GAP_NS },
        lag_ns: if sorts { 0 } else { CLOCK_BASE_NS },
        guard_bps: if is_guarded { shaper.guard_bps() } else { 0 },
        guard_byte_time: if is_guarded { byte_time(shaper.guard_bps()) } else { 0 },
        guard_depth_ns: if is_guarded { shaper.guard_depth_ns().min(CLOCK_BASE_NS) } else { 0 },
        subnets: shaping.subnets.as_ref().map_or(0, |subnets| if subnets.only { ONLY } else { EXCEPT }),
    }
}

/// How long a byte takes, as the program counts; rounded up, so that the rate is never exceeded.
fn byte_time(bps: u64) -> u64 {
    const BYTE_NS: u128 = 8 * 1_000_000_000;
    u64::try_from((BYTE_NS << BYTE_TIME_SHIFT).div_ceil(u128::from(bps.max(1)))).unwrap_or(u64::MAX)
}

/// All at the rate; a quarter of it is the sparse flows', which may borrow the rest first.
fn classes(shaper: &Shaper, sparse: u32, bulk: u32) -> [Class; 3] {
    let rate = shaper.rate.bps / 8;
    let all = Class { parent: 0, number: CLASS_ALL, rate, ceil: rate, burst_ns: shaper.rate.burst_ns(), prio: 0 };
    let part = |number, rate: u64, prio| Class { parent: CLASS_ALL, number, rate: rate.max(1), prio, ..all };
    [all, part(sparse, rate / 4, 0), part(bulk, rate - rate / 4, 1)]
}

/// Requests of one namespace, sent together.
struct Batch<'a> {
    socket: &'a mut Socket,
    /// Which of them make a place where filters hang, and on which link: somebody else's serves as well.
    clsacts: Vec<(usize, u32)>,
}

impl<'a> Batch<'a> {
    fn on(socket: &'a mut Socket) -> Self {
        Self { socket, clsacts: Vec::new() }
    }

    fn clsact(&mut self, index: u32) {
        if self.clsacts.iter().any(|(_, link)| *link == index) {
            return;
        }
        self.clsacts.push((self.socket.queued(), index));
        self.socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(index, out));
    }

    fn attach(&mut self, index: u32, hook: Hook, program: &Program, place: u32) {
        self.clsact(index);
        self.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| {
            tc::program(index, hook, program.as_raw_fd(), NAME, place, out);
        });
    }

    fn queue(&mut self, index: u32, shaper: &Shaper, has_free: bool) {
        let socket = &mut *self.socket;
        match shaper.queue {
            Queue::Fq => {
                let horizon = FQ_HORIZON_US.max(shaper.horizon_ns() / 1000 * 2);
                let horizon = u32::try_from(horizon).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::fq(index, horizon, shaper.most_packets(), out);
                });
            }
            Queue::Htb => {
                let (sparse, bulk) = (CLASS_SPARSE & CLASS_NUMBER, CLASS_BULK & CLASS_NUMBER);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| tc::htb(index, bulk, out));
                for class in classes(shaper, sparse, bulk).into_iter().chain(has_free.then(free)) {
                    socket.push(tc::NEWTCLASS, CREATE | EXCL, |out| tc::class(index, class, out));
                }
                let waiting = shaper.rate.bytes_in(2 * shaper.horizon_ns() / 1_000_000);
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::bfifo(index, bulk, waiting, out));
            }
            Queue::TbfFqCodel | Queue::Tbf => {
                let (rate, bucket, limit) = (shaper.rate.bps / 8, shaper.bucket(), shaper.bucket_queue());
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| tc::tbf(index, rate, bucket, limit, out));
            }
        }
        if shaper.queue == Queue::TbfFqCodel {
            let target_us = u32::try_from(shaper.codel_target_ns() / 1000).unwrap_or(u32::MAX);
            socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| tc::fq_codel(index, target_us, out));
        }
    }

    /// Sends them; the first refusal that matters.
    fn send(self) -> Result<(), KernelError> {
        let outcomes = self.socket.flush()?.into_iter().enumerate();
        let matters = |at: usize, err: &KernelError| {
            err.errno != Errno::EEXIST || !self.clsacts.iter().any(|(place, _)| *place == at)
        };
        let mut refusals = outcomes.filter_map(|(at, outcome)| outcome.error.filter(|err| matters(at, err)));
        refusals.next().map_or(Ok(()), Err)
    }
}

/// For what is not shaped.
fn free() -> Class {
    /// Bytes per second: more than any link carries.
    const UNBOUNDED: u64 = 1 << 40;
    const BURST_NS: u64 = 100_000_000;
    let number = CLASS_FREE & CLASS_NUMBER;
    Class { parent: 0, number, rate: UNBOUNDED, ceil: UNBOUNDED, burst_ns: BURST_NS, prio: 0 }
}

/// `None` for what is not there.
fn found<T>(result: Result<T, KernelError>) -> Result<Option<T>, KernelError> {
    match result {
        Ok(found) => Ok(Some(found)),
        // EINVAL: the root is the kernel's own, or there is no clsact.
        Err(err) if [Errno::ENOENT, Errno::ENODEV, Errno::EINVAL].contains(&err.errno) => Ok(None),
        Err(err) => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_byte_is_rounded_up_and_the_largest_packet_fits_at_the_lowest_rate() {
        // 524,280 bytes (`GSO_MAX_SIZE`) with the headers of each 1448 of them.
        let largest = 524_280 / 1448 * 1514 + 1514;
        let took = |bps: u64, bytes: u64| byte_time(bps).checked_mul(bytes).map(|time| time >> BYTE_TIME_SHIFT);
        assert_eq!(took(8, largest), Some(largest * 1_000_000_000));
        assert_eq!(took(1_000_000_000, 1514), Some(12_112));
        let exact = 8 * 1514 * 1_000_000_000 / 100_000_000_000;
        let counted = took(100_000_000_000, 1514).expect("it fits");
        assert!((exact..=exact + 1).contains(&counted), "{counted} ns for {exact}");
        assert_eq!(byte_time(u64::MAX), 1);
    }
}
