//! Rate limits of an attachment: one program, and a queue for each direction.

pub(super) mod batch;
mod loaded;
pub(crate) mod program;
mod slot;

use super::{Effect, Transport, found, link, redirect};
use crate::kernel::Kernel;
use crate::sys::netlink::{ECHO, Message, Socket};
use crate::sys::rtnl::tc;
use crate::{Cause, Context, Error};
use batch::{Batch, CLASS_ALL, Side};
use braid_core::name::{Hook, Ns};
use braid_core::plan::facts::{Facts, LinkFact};
use braid_core::plan::queue_fallback::Queue;
use braid_core::plan::thing::shaping::{ShapedFact, Traffic};
use braid_core::plan::thing::{LinkRef, Redirect, Shaping, Verb};
use loaded::{Loaded, fact_of};

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

/// Gives shaping that runs the rates of `shaping`. The kernel changes a queue that it has, with the
/// packets in it.
pub(crate) fn retune(kernel: &mut Kernel, shaping: &Shaping) -> Result<(), Cause> {
    for shaper in &shaping.shapers {
        let index = kernel.index(&shaper.at)?;
        let socket = kernel.route(shaper.at.ns)?;
        if shaper.queue.has_program() {
            let egress = |out: &mut Vec<u8>| tc::dump_filters(index, Hook::Egress, out);
            let filters = socket.dump(tc::GETTFILTER, egress)?;
            let bodies = filters.iter().map(|message| message.body.as_slice());
            if !loaded::retune(bodies, shaper, shaping)? {
                return Err(Cause::Refused(format!(
                    "link {} does not run the program",
                    shaper.at
                )));
            }
        }
        let mut batch = Batch::on(kernel.route(shaper.at.ns)?);
        batch.retune(index, shaper);
        batch.send()?;
    }
    Ok(())
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
