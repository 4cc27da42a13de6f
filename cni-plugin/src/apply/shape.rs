//! Shaping an attachment: one program for all its places, and a queue for each direction.

use super::kernel::Kernel;
use crate::plan::Feature;
use crate::plan::shaping::{Hook, ProgramFact, Queue, ShapedFact, Shaper, Shaping, Toward};
use crate::plan::step::LinkRef;
use crate::sys::bpf::shape::{NAME, Program};
use crate::sys::netlink::{CREATE, EXCL, KernelError, Outcome, REPLACE};
use crate::sys::probe::{self, Finding};
use crate::sys::rtnl::tc::{self, Class};
use braid_ebpf_types::shape::{CLASS_BULK, CLASS_SPARSE, Conf, FROM_POD, GUARD, TO_POD};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::{fs, io};

/// `htb` does not sort a flow by time, so a flow's last packet must have left for so long before another may pass it.
const UNSORTED_GAP_NS: u64 = 20_000_000;
/// `fq`'s own horizon, in microseconds, is far beyond the program's: it drops nothing.
const FQ_HORIZON_US: u64 = 10_000_000;
const CLASS_NUMBER: u32 = 0xffff;
/// The class above both.
const CLASS_ALL: u32 = 1;

/// Loads the program and attaches it with its queues.
pub(super) fn add(kernel: &mut Kernel, shaping: &Shaping) -> Result<(), KernelError> {
    let conf = |toward| shaping.shaper(toward).map_or_else(Conf::default, |shaper| conf(shaper, shaping));
    let program = Program::load([conf(Toward::Pod), conf(Toward::Network)])?;
    for shaper in &shaping.shapers {
        let place = if shaper.toward == Toward::Pod { TO_POD } else { FROM_POD };
        attach(kernel, &shaper.at, Hook::Egress, &program, place)?;
        queue(kernel, shaper, shaping.queue)?;
    }
    match &shaping.guard {
        Some(at) => attach(kernel, at, Hook::Ingress, &program, GUARD),
        None => Ok(()),
    }
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

/// Takes the program off one side of a link, and the place where it hung when nothing else hangs there.
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
pub(super) fn observe(kernel: &mut Kernel, at: &LinkRef) -> Result<ShapedFact, KernelError> {
    let Some(index) = found(kernel.index(at))? else { return Ok(ShapedFact::default()) };
    let socket = kernel.route(at.ns)?;
    // All of them: asked for one, some kernels send nothing unless somebody listens to changes.
    let queues = socket.dump(tc::GETQDISC, tc::dump_queues)?;
    let queue = queues.iter().find_map(|message| tc::parse_root(&message.body, index)).unwrap_or_default();
    let mut programs = Vec::new();
    for hook in [Hook::Egress, Hook::Ingress] {
        let filters = found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, hook, out)))?.unwrap_or_default();
        for (id, place) in filters.iter().filter_map(|message| tc::parse_program(&message.body)) {
            let Some(program) = Program::by_id(id)? else { continue };
            let (conf, _) = program.direction(if place == GUARD { FROM_POD } else { place })?;
            programs.push(match hook {
                Hook::Egress => ProgramFact { hook, bps: conf.rate_bps, burst_ns: conf.burst_ns },
                Hook::Ingress => ProgramFact { hook, bps: conf.guard_bps, burst_ns: conf.guard_depth_ns },
            });
        }
    }
    Ok(ShapedFact { queue, programs })
}

/// Where the answer is kept until the next boot: to ask the kernel takes longer than an ADD.
const KNOWN_QUEUE: &str = "/run/braid/queue";

/// The best queue of this kernel; none where it lacks something that all need.
pub(super) fn best_queue() -> io::Result<Option<Queue>> {
    let known = fs::read_to_string(KNOWN_QUEUE).unwrap_or_default();
    if let Some(queue) = [Queue::Fq, Queue::Htb].into_iter().find(|queue| known == queue.to_string()) {
        return Ok(Some(queue));
    }
    let wanted = [Feature::Fq, Feature::Htb, Feature::Clsact, Feature::ClsBpf, Feature::Bpf];
    let findings = probe::find(&wanted).map_err(io::Error::other)?;
    let has = |feature| findings.iter().any(|(probe, found)| probe.feature == feature && *found == Finding::Present);
    if ![Feature::Clsact, Feature::ClsBpf, Feature::Bpf].into_iter().all(has) {
        return Ok(None);
    }
    let queue = if has(Feature::Fq) { Some(Queue::Fq) } else { Some(Queue::Htb).filter(|_| has(Feature::Htb)) };
    if let Some(queue) = queue {
        let path = Path::new(KNOWN_QUEUE);
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        // In place: who finds it half written asks the kernel again, and a call that is killed leaves no other file.
        fs::write(path, queue.to_string())?;
    }
    Ok(queue)
}

/// What the program is told of one direction.
fn conf(shaper: &Shaper, shaping: &Shaping) -> Conf {
    let sorts = shaping.queue == Queue::Fq;
    let is_guarded = shaper.toward == Toward::Network && shaping.guard.is_some();
    Conf {
        rate_bps: shaper.rate.bps,
        burst_ns: shaper.rate.burst_ns(),
        horizon_ns: shaper.horizon_ns(),
        ecn_ns: shaper.ecn_ns(),
        sorts: u64::from(sorts),
        gap_ns: if sorts { 0 } else { UNSORTED_GAP_NS },
        guard_bps: if is_guarded { shaper.guard_bps() } else { 0 },
        guard_depth_ns: if is_guarded { shaper.guard_depth_ns() } else { 0 },
    }
}

fn attach(kernel: &mut Kernel, at: &LinkRef, hook: Hook, program: &Program, place: u32) -> Result<(), KernelError> {
    let index = kernel.index(at)?;
    let socket = kernel.route(at.ns)?;
    socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(index, out));
    socket.push(tc::NEWTFILTER, CREATE | REPLACE, |out| {
        tc::program(index, hook, program.as_raw_fd(), NAME, place, out);
    });
    let mut outcomes = socket.flush()?;
    // Somebody else's clsact serves as well.
    if let Some(outcome) = outcomes.first_mut() {
        outcome.error = outcome.error.take().filter(|err| err.errno != Errno::EEXIST);
    }
    first_refusal(outcomes)
}

fn queue(kernel: &mut Kernel, shaper: &Shaper, queue: Queue) -> Result<(), KernelError> {
    let index = kernel.index(&shaper.at)?;
    let socket = kernel.route(shaper.at.ns)?;
    match queue {
        Queue::Fq => {
            let horizon = FQ_HORIZON_US.max(shaper.horizon_ns() / 1000 * 2);
            let horizon = u32::try_from(horizon).unwrap_or(u32::MAX);
            socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| tc::fq(index, horizon, out));
        }
        Queue::Htb => {
            let (sparse, bulk) = (CLASS_SPARSE & CLASS_NUMBER, CLASS_BULK & CLASS_NUMBER);
            socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| tc::htb(index, bulk, out));
            for class in classes(shaper, sparse, bulk) {
                socket.push(tc::NEWTCLASS, CREATE | EXCL, |out| tc::class(index, class, out));
            }
            let bytes = shaper.rate.bytes_in(2 * shaper.horizon_ns() / 1_000_000);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::bfifo(index, bulk, bytes, out));
        }
    }
    first_refusal(socket.flush()?)
}

/// All at the rate; a quarter of it is the sparse flows', which may borrow the rest first.
fn classes(shaper: &Shaper, sparse: u32, bulk: u32) -> [Class; 3] {
    let rate = shaper.rate.bps / 8;
    let all = Class { parent: 0, number: CLASS_ALL, rate, ceil: rate, burst_ns: shaper.rate.burst_ns(), prio: 0 };
    let part = |number, rate: u64, prio| Class { parent: CLASS_ALL, number, rate: rate.max(1), prio, ..all };
    [all, part(sparse, rate / 4, 0), part(bulk, rate - rate / 4, 1)]
}

fn first_refusal(outcomes: Vec<Outcome>) -> Result<(), KernelError> {
    outcomes.into_iter().find_map(|outcome| outcome.error).map_or(Ok(()), Err)
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
