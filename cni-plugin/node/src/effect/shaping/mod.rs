//! Shaping an attachment: one program for all its places, and a queue for each direction.

mod loaded;
pub(crate) mod program;
mod slot;

use super::{Effect, Transport, found, link, redirect};
use crate::kernel::Kernel;
use crate::sys::netlink::{CREATE, ECHO, EXCL, KernelError, Message, REPLACE, Socket};
use crate::sys::rtnl::tc::{self, Class};
use crate::{Cause, Context, Error};
use braid_core::name::{Hook, Ns};
use braid_core::plan::facts::{Facts, LinkFact};
use braid_core::plan::queue_fallback::Queue;
use braid_core::plan::thing::shaping::{ShapedFact, Shaper, Toward, Traffic};
use braid_core::plan::thing::{LinkRef, Redirect, Shaping, Verb};
use braid_ebpf_types::shape::{CLASS_FREE, CLASS_SPARSE, FROM_POD, TO_POD};
use loaded::{Loaded, fact_of};
use nix::errno::Errno;
use program::NAME;
use std::os::fd::AsRawFd;

/// `fq`'s own horizon, in microseconds, is far beyond the program's: it drops nothing.
const FQ_HORIZON_US: u64 = 10_000_000;
const CLASS_NUMBER: u32 = 0xffff;
/// The class above both.
const CLASS_ALL: u32 = 1;
/// Class of what names none.
const BULK: u32 = 0x12;
/// Bytes per second: more than any link carries.
const UNBOUNDED: u64 = 1 << 40;

impl Effect for Shaping {
    fn transport(&self, verb: Verb) -> Transport<'_> {
        verb.word(Transport::Shaping(self), Transport::Alone)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        del(kernel, self)
    }

    fn is_several(&self) -> bool {
        true
    }
}

/// Loads the program and attaches it with its queues; `redirect` is of the same namespace, and made
/// with them.
///
/// A clsact's first filter waits for an RCU grace period that began after the clsact was made
/// (v6.12 `net/sched/sch_generic.c`, `mini_qdisc_pair_swap()`). So all are made before the first
/// filter, and one wait serves all; two where a grace period was under way already, which no wait
/// counts.
pub(crate) fn add(
    kernel: &mut Kernel,
    shaping: &Shaping,
    redirect: Option<&Redirect>,
) -> Result<(), Cause> {
    make(kernel, shaping, redirect)?;
    redirect.map_or(Ok(()), |redirect| redirect::led(kernel, &redirect.from))
}

fn make(kernel: &mut Kernel, shaping: &Shaping, redirect: Option<&Redirect>) -> Result<(), Cause> {
    let program = Loaded::of(shaping)?;
    let mut sides = [Ns::Pod, Ns::Host]
        .map(|ns| Side::of(kernel, shaping, ns))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    sides.retain(|side| !side.queues.is_empty() || !side.filters.is_empty());
    let index = |redirect: &Redirect| {
        Ok::<_, Cause>((kernel.index(&redirect.from)?, kernel.index(&redirect.to)?))
    };
    let redirect = redirect.map(index).transpose()?;
    let Some((last, others)) = sides.split_last() else {
        return Ok(());
    };
    for side in others {
        let mut batch = Batch::on(kernel.route(side.ns)?);
        batch.clsacts(side);
        batch.send()?;
    }
    let mut batch = Batch::on(kernel.route(last.ns)?);
    batch.clsacts(last);
    if let Some((from, _)) = redirect {
        batch.clsact(from);
    }
    batch.fill(last, program.as_ref(), shaping);
    if let Some((from, to)) = redirect {
        batch.redirect(last.ns, from, to);
    }
    batch.send()?;
    for side in others {
        let mut batch = Batch::on(kernel.route(side.ns)?);
        batch.fill(side, program.as_ref(), shaping);
        batch.send()?;
    }
    Ok(())
}

/// Queues and filters on the links of one namespace.
struct Side<'a> {
    ns: Ns,
    /// By the link's index.
    queues: Vec<(u32, &'a Shaper)>,
    /// The program, on a side of a link, at one of its places.
    filters: Vec<(u32, Hook, u32)>,
}

impl<'a> Side<'a> {
    fn of(kernel: &mut Kernel, shaping: &'a Shaping, ns: Ns) -> Result<Self, Cause> {
        let mut side = Self {
            ns,
            queues: Vec::new(),
            filters: Vec::new(),
        };
        for shaper in shaping.shapers.iter().filter(|shaper| shaper.at.ns == ns) {
            let index = kernel.index(&shaper.at)?;
            side.queues.push((index, shaper));
            if shaper.queue.has_program() {
                side.filters.push((
                    index,
                    Hook::Egress,
                    if shaper.toward == Toward::Pod {
                        TO_POD
                    } else {
                        FROM_POD
                    },
                ));
            }
        }
        Ok(side)
    }
}

/// Takes away what [`add`] made; what is not there is success.
fn del(kernel: &mut Kernel, shaping: &Shaping) -> Result<(), Cause> {
    for shaper in &shaping.shapers {
        let Some(index) = found(kernel.index(&shaper.at))? else {
            continue;
        };
        let socket = kernel.route(shaper.at.ns)?;
        found(socket.call(tc::DELQDISC, 0, |out| tc::root(index, out)))?;
        detach(kernel, &shaper.at, |index, out| {
            tc::filter(index, Hook::Egress, out);
        })?;
    }
    shaping.guard.iter().try_for_each(|at| {
        detach(kernel, at, |index, out| {
            tc::filter(index, Hook::Ingress, out);
        })
    })
}

/// Goes by an attachment whose container's namespace can't be entered any more: where all of its
/// shaping is in there, that goes on as long as somebody else holds the namespace, so nobody is
/// given its place.
pub fn leave(shaping: &Shaping) -> Result<(), Error> {
    let forget = || slot::forget().doing("forget whom the program shapes");
    if shaping.is_all_in(Ns::Pod) {
        forget()
    } else {
        Ok(())
    }
}

/// Takes a filter off a link, and the place where it hung when nothing else hangs there.
pub(super) fn detach(
    kernel: &mut Kernel,
    at: &LinkRef,
    filter: impl FnOnce(u32, &mut Vec<u8>),
) -> Result<(), Cause> {
    let Some(index) = found(kernel.index(at))? else {
        return Ok(());
    };
    let socket = kernel.route(at.ns)?;
    found(socket.call(tc::DELTFILTER, 0, |out| filter(index, out)))?;
    for side in [Hook::Egress, Hook::Ingress] {
        let filters = found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, side, out)))?;
        if filters.is_some_and(|filters| !filters.is_empty()) {
            return Ok(());
        }
    }
    found(socket.call(tc::DELQDISC, 0, |out| tc::clsact(index, out))).map(drop)
}

/// Reads how a link is shaped.
pub fn observe(kernel: &mut Kernel, at: &LinkRef) -> Result<ShapedFact, Cause> {
    let Some(index) = found(kernel.index(at))? else {
        return Ok(ShapedFact::default());
    };
    let socket = kernel.route(at.ns)?;
    let [root, beside] = queues(socket, index)?;
    let root = root
        .as_ref()
        .map_or_else(tc::Root::default, |message| tc::parse_root(&message.body));
    let beside = beside.map(|message| tc::parse_kind(&message.body));
    let mut rate = root.rate;
    if root.kind == Queue::Htb.kind() {
        let classes = found(socket.dump(tc::GETTCLASS, |out| tc::dump_classes(index, out)))?
            .unwrap_or_default();
        rate = classes
            .iter()
            .find_map(|message| tc::parse_class_rate(&message.body, CLASS_ALL));
    }
    let tc::Passed {
        bytes,
        packets,
        dropped,
        delayed,
    } = root.passed;
    let mut fact = ShapedFact {
        queue: root.kind,
        is_chosen: root.is_chosen,
        has_ingress: beside.as_deref() == Some("ingress"),
        bps: rate.map(|rate| rate.saturating_mul(8)),
        passed: Traffic {
            bytes,
            packets,
            delayed,
            dropped,
            ..Traffic::default()
        },
        ..ShapedFact::default()
    };
    let hooks: &[Hook] = if beside.is_some() {
        &[Hook::Egress, Hook::Ingress]
    } else {
        &[]
    };
    for hook in hooks {
        let filters =
            found(socket.dump(tc::GETTFILTER, |out| tc::dump_filters(index, *hook, out)))?
                .unwrap_or_default();
        for message in &filters {
            if *hook == Hook::Ingress {
                fact.redirected_to = fact
                    .redirected_to
                    .or_else(|| redirect::parse(&message.body));
            }
            fact.programs.extend(fact_of(&message.body, *hook)?);
        }
    }
    Ok(fact)
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let fact = observe(kernel, at).doing(format_args!("look how link {at} is shaped"))?;
    facts.shaped.insert(at.clone(), fact);
    Ok(())
}

#[cold]
pub(crate) fn read_peer(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    let Some(peer) = peer_of(kernel, at, facts)? else {
        return Ok(());
    };
    link::read(kernel, &peer, facts)?;
    read(kernel, &peer, facts)?;
    facts.peers.insert(at.clone(), peer);
    Ok(())
}

/// The link of the host that a link of the container names as its peer, if both are a pair.
fn peer_of(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<Option<LinkRef>, Error> {
    link::read(kernel, at, facts)?;
    let Some(LinkFact {
        parent: Some(index),
        parent_netns: Some(netns),
        ..
    }) = facts.link(at).filter(|link| link.is_end())
    else {
        return Ok(None);
    };
    let (index, netns) = (*index, *netns);
    let name = kernel.host_seen_from_pod().and_then(|host| match host {
        Some(host) if host == netns => found(link::name_of(kernel, Ns::Host, index)),
        _ => Ok(None),
    });
    Ok(name
        .doing(format_args!("look which link of the host {at} belongs to"))?
        .map(LinkRef::host))
}

/// The root queue of a link and the place beside it where filters hang; none that the kernel has
/// built in. By their link, since there may be thousands: without `ECHO` a kernel shows one to
/// whoever listens to changes, and not to who asks.
fn queues(socket: &mut Socket, index: u32) -> Result<[Option<Message>; 2], Cause> {
    for place in [tc::get_root, tc::get_beside] {
        socket.push(tc::GETQDISC, ECHO, |out| place(index, out));
    }
    let mut shown = [None, None];
    for (shown, outcome) in shown.iter_mut().zip(socket.flush()?) {
        let answer = outcome.error.map_or(Ok(outcome.messages), Err);
        *shown = found(answer)?.and_then(|messages| messages.into_iter().next());
    }
    Ok(shown)
}

/// All at the rate, half of which is the sparse flows' in any case. Bulk has what they leave, and
/// next to nothing and no limit of its own: else the kernel's timer would fire for it and for the
/// class above it, a moment apart.
fn classes(shaper: &Shaper, sparse: u32, bulk: u32) -> [Class; 3] {
    let rate = shaper.rate.bps / 8;
    let all = Class {
        parent: 0,
        number: CLASS_ALL,
        rate,
        ceil: rate,
        burst_ns: shaper.rate.burst_ns(),
        prio: 0,
    };
    let sparse = Class {
        parent: CLASS_ALL,
        number: sparse,
        rate: (rate / 2).max(1),
        ..all
    };
    let bulk = Class {
        parent: CLASS_ALL,
        number: bulk,
        rate: 1,
        ceil: UNBOUNDED,
        prio: 1,
        ..all
    };
    [all, sparse, bulk]
}

/// Requests of one namespace, sent together.
pub(super) struct Batch<'a> {
    socket: &'a mut Socket,
    /// Numbers of the requests that make a clsact, each with its link: somebody else's serves as
    /// well.
    clsacts: Vec<(usize, u32)>,
}

impl<'a> Batch<'a> {
    pub(super) fn on(socket: &'a mut Socket) -> Self {
        Self {
            socket,
            clsacts: Vec::new(),
        }
    }

    pub(super) fn clsact(&mut self, index: u32) {
        if self.clsacts.iter().any(|(_, link)| *link == index) {
            return;
        }
        self.clsacts.push((self.socket.queued(), index));
        self.socket
            .push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(index, out));
    }

    pub(super) fn redirect(&mut self, ns: Ns, from: u32, to: u32) {
        self.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| {
            redirect::request(ns, from, to, out);
        });
    }

    /// The places where the filters are to hang.
    fn clsacts(&mut self, side: &Side<'_>) {
        side.filters
            .iter()
            .for_each(|(index, ..)| self.clsact(*index));
    }

    /// The filters, and the queues behind them.
    fn fill(&mut self, side: &Side<'_>, program: Option<&Loaded>, shaping: &Shaping) {
        for (index, hook, place) in &side.filters {
            let Some(program) = program else { break };
            self.socket.push(tc::NEWTFILTER, CREATE | EXCL, |out| {
                tc::program(
                    *index,
                    *hook,
                    program.as_raw_fd(),
                    NAME,
                    program.class(*place),
                    out,
                );
            });
        }
        for (index, shaper) in &side.queues {
            self.queue(*index, shaper, shaping.subnets.is_some());
        }
    }

    fn queue(&mut self, index: u32, shaper: &Shaper, has_free: bool) {
        let socket = &mut *self.socket;
        match shaper.queue {
            Queue::Fq => {
                let ahead = shaper.longest_ns().saturating_add(shaper.clock_burst_ns()) / 1000;
                let horizon =
                    u32::try_from(FQ_HORIZON_US.max(ahead.saturating_mul(2))).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::fq(index, horizon, shaper.most_packets(), out);
                });
            }
            Queue::Htb => {
                let (sparse, bulk) = (CLASS_SPARSE & CLASS_NUMBER, BULK);
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::htb(index, bulk, out);
                });
                for class in classes(shaper, sparse, bulk)
                    .into_iter()
                    .chain(has_free.then(free))
                {
                    socket.push(tc::NEWTCLASS, CREATE | EXCL, |out| {
                        tc::class(index, class, out);
                    });
                }
                let waiting = shaper.rate.bytes_in(2 * shaper.longest_ns() / 1_000_000);
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | EXCL, |out| {
                    tc::bfifo(index, bulk, waiting, out);
                });
            }
            Queue::TbfPfifoFast => {
                let (rate, bucket) = (shaper.rate.bps / 8, shaper.bucket_of_large());
                // The limit is of the queue that another takes the place of.
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::tbf(index, rate, bucket, 0, out);
                });
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::pfifo_fast(index, out);
                });
            }
            Queue::TbfFqCodel | Queue::Tbf => {
                let (rate, bucket, limit) =
                    (shaper.rate.bps / 8, shaper.bucket(), shaper.bucket_queue());
                socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                    tc::tbf(index, rate, bucket, limit, out);
                });
            }
        }
        if shaper.queue == Queue::TbfFqCodel {
            let target_us = u32::try_from(shaper.codel_target_ns() / 1000).unwrap_or(u32::MAX);
            socket.push(tc::NEWQDISC, CREATE | REPLACE, |out| {
                tc::fq_codel(index, target_us, out);
            });
        }
    }

    /// Sends them; the first refusal that matters.
    pub(super) fn send(self) -> Result<(), KernelError> {
        let outcomes = self.socket.flush()?.into_iter().enumerate();
        let matters = |at: usize, err: &KernelError| {
            err.errno != Errno::EEXIST || !self.clsacts.iter().any(|(place, _)| *place == at)
        };
        let mut refusals =
            outcomes.filter_map(|(at, outcome)| outcome.error.filter(|err| matters(at, err)));
        refusals.next().map_or(Ok(()), Err)
    }
}

/// For what is not shaped.
fn free() -> Class {
    const BURST_NS: u64 = 100_000_000;
    let number = CLASS_FREE & CLASS_NUMBER;
    Class {
        parent: 0,
        number,
        rate: UNBOUNDED,
        ceil: UNBOUNDED,
        burst_ns: BURST_NS,
        prio: 0,
    }
}
