//! Rate limits of an attachment: one program, and a queue for each direction.

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

/// Horizon of `fq` in microseconds. `fq` drops packets beyond its horizon. This horizon is far
/// beyond the program's horizon, so no packet exceeds it.
const FQ_HORIZON_US: u64 = 10_000_000;
const CLASS_NUMBER: u32 = 0xffff;
/// Number of the class that is the parent of the two other classes.
const CLASS_ALL: u32 = 1;
/// Number of the class for packets that no filter assigns to a class.
const BULK: u32 = 0x12;
/// Rate in bytes per second, more than any link transmits.
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

/// Loads the program, and creates its filters and queues. `redirect` is in the same namespace and
/// is created in the same send.
///
/// The first filter of a clsact waits for an RCU grace period that began after the clsact was
/// created (v6.12 `net/sched/sch_generic.c`, `mini_qdisc_pair_swap()`). So all clsacts are created
/// before the first filter, and one wait serves all of them. A grace period that is already under
/// way does not count, so the wait can take two grace periods.
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
    let mut sides = Vec::with_capacity(2);
    for ns in [Ns::Pod, Ns::Host] {
        let side = Side::of(kernel, shaping, ns)?;
        if !side.queues.is_empty() || !side.filters.is_empty() {
            sides.push(side);
        }
    }
    let redirect = match redirect {
        Some(Redirect { from, to }) => Some((kernel.index(from)?, kernel.index(to)?)),
        None => None,
    };
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
    /// Queues by link index.
    queues: Vec<(u32, &'a Shaper)>,
    /// Filters that run the program: link index, hook and place.
    filters: Vec<(u32, Hook, u32)>,
}

impl<'a> Side<'a> {
    fn of(kernel: &mut Kernel, shaping: &'a Shaping, ns: Ns) -> Result<Self, Cause> {
        let mut side = Self {
            ns,
            queues: Vec::new(),
            filters: Vec::new(),
        };
        for shaper in &shaping.shapers {
            if shaper.at.ns != ns {
                continue;
            }
            let index = kernel.index(&shaper.at)?;
            side.queues.push((index, shaper));
            if shaper.queue.has_program() {
                let place = match shaper.toward {
                    Toward::Pod => TO_POD,
                    Toward::Network => FROM_POD,
                };
                side.filters.push((index, Hook::Egress, place));
            }
        }
        Ok(side)
    }
}

/// Deletes the queues and filters that [`add`] created. Missing ones are a success.
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
    Ok(())
}

/// Abandons the shaping of an attachment if its container's namespace can no longer be entered.
/// Another process may keep that namespace alive. If all of the shaping is in that namespace, the
/// shaping then continues, so the slot of the attachment must not be assigned again.
pub fn leave(shaping: &Shaping) -> Result<(), Error> {
    let forget = || slot::forget().doing("stop sharing the shaping program");
    if shaping.is_all_in(Ns::Pod) {
        forget()
    } else {
        Ok(())
    }
}

/// Deletes a filter from a link, and the clsact if it has no other filters.
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
    found(socket.call(tc::DELQDISC, 0, |out| tc::clsact(index, out)))?;
    Ok(())
}

/// Reads the rate limits of a link.
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
    let fact = observe(kernel, at).doing(format_args!("read the shaping of link {at}"))?;
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

/// Returns the host's end of a pair, given the end in the container. Returns `None` if the
/// container's link is not part of a pair.
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
        .doing(format_args!("look up the host link of {at}"))?
        .map(LinkRef::host))
}

/// Reads the root qdisc of a link, and its clsact or ingress qdisc. A missing or built-in qdisc is
/// `None`. Requests only the qdiscs of this link, since a node may have thousands. Without `ECHO`,
/// some kernels send the reply to listeners only and not to the requester.
fn queues(socket: &mut Socket, index: u32) -> Result<[Option<Message>; 2], Cause> {
    for place in [tc::get_root, tc::get_beside] {
        socket.push(tc::GETQDISC, ECHO, |out| place(index, out));
    }
    let mut shown = [None, None];
    for (shown, outcome) in shown.iter_mut().zip(socket.flush()?) {
        let answer = match outcome.error {
            Some(err) => Err(err),
            None => Ok(outcome.messages),
        };
        if let Some(messages) = found(answer)? {
            *shown = messages.into_iter().next();
        }
    }
    Ok(shown)
}

/// Builds three classes. The parent has the whole rate. The class for sparse flows is guaranteed
/// half of the rate. The class for bulk flows gets the rest, so it has a minimal rate and no limit.
/// With a higher rate or a limit, the kernel's timer would fire for that class and for its parent,
/// a moment apart.
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

/// Requests for one namespace, sent together.
pub(super) struct Batch<'a> {
    socket: &'a mut Socket,
    /// Positions of the requests that create a clsact, with their links. These requests also
    /// succeed if a clsact exists.
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

    /// Adds the clsacts for the filters.
    fn clsacts(&mut self, side: &Side<'_>) {
        for (index, ..) in &side.filters {
            self.clsact(*index);
        }
    }

    /// Adds the filters and the queues.
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
                let mut add = |class: Class| {
                    socket.push(tc::NEWTCLASS, CREATE | EXCL, |out| {
                        tc::class(index, class, out);
                    });
                };
                for class in classes(shaper, sparse, bulk) {
                    add(class);
                }
                if has_free {
                    add(free());
                }
                let waiting = shaper.rate.bytes_in(2 * shaper.longest_ns() / 1_000_000);
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                socket.push(tc::NEWQDISC, CREATE | EXCL, |out| {
                    tc::bfifo(index, bulk, waiting, out);
                });
            }
            Queue::TbfPfifoFast => {
                let (rate, bucket) = (shaper.rate.bps / 8, shaper.bucket_of_large());
                // The limit 0 applies to the default inner queue, which the next request replaces.
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

    /// Sends the requests. Returns the first error, except `EEXIST` for a clsact.
    pub(super) fn send(self) -> Result<(), KernelError> {
        let outcomes = self.socket.flush()?;
        for (position, outcome) in outcomes.into_iter().enumerate() {
            let Some(err) = outcome.error else {
                continue;
            };
            let is_clsact = self.clsacts.iter().any(|(clsact, _)| *clsact == position);
            if !is_clsact || err.errno != Errno::EEXIST {
                return Err(err);
            }
        }
        Ok(())
    }
}

/// Class of traffic that is not shaped.
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
