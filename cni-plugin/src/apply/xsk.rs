//! Holding the `AF_XDP` sockets of limited containers, at the link below their interfaces: one program for each such link,
//! with an element for each attachment. The first one brings it there, the last one takes it away.

use super::kernel::Kernel;
use super::shared_links::{HOOKS, all, detach, lock, missing, runs};
use crate::plan::link::LinkRef;
use crate::plan::step::Ns;
use crate::plan::xsk::XskGuard;
use crate::sys::bpf::xsk::{NAME, Program};
use crate::sys::netlink::{CREATE, EXCL, KernelError, Socket};
use crate::sys::rtnl::tc;
use crate::sys::rtnl::tc::shared::{self, Preference};
use nix::errno::Errno;
use std::os::fd::AsRawFd;

const PREFERENCE: Preference = Preference::XskGuard;

/// Holds those of the container.
pub(super) fn add(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let netns = kernel.pod_cookie().ok_or(Errno::ENOENT)?;
    let _held = lock()?;
    let index = kernel.index(&guard.below)?;
    let socket = kernel.route(Ns::Host)?;
    if let Some(program) = running(socket, index)? {
        return Ok(program.hold(netns, &guard.owner)?);
    }
    refuse_ingress(socket, index)?;
    let program = Program::load()?;
    program.hold(netns, &guard.owner)?;
    attach(socket, index, &program)
}

/// Ends what an owner has at a link.
pub(super) fn del(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = lock()?;
    let index = kernel.index(&guard.below)?;
    release(kernel.route(Ns::Host)?, index, &guard.owner)
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    let _held = lock()?;
    let socket = kernel.route(Ns::Host)?;
    all(socket)?.into_iter().try_for_each(|index| release(socket, index, owner))
}

/// All whose sockets are held somewhere.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
    let socket = kernel.route(Ns::Host)?;
    let mut owners = Vec::new();
    for index in all(socket)? {
        if let Some(program) = any(socket, index)? {
            owners.extend(program.held()?.into_iter().map(|(owner, _)| owner));
        }
    }
    Ok(owners)
}

/// Whose sockets are held at a link, and how many packets of each did not pass.
pub fn observe(kernel: &mut Kernel, at: &LinkRef) -> Result<Vec<(String, u64)>, KernelError> {
    let Some(index) = kernel.link(at)?.map(|fact| fact.index) else { return Ok(Vec::new()) };
    let program = running(kernel.route(at.ns)?, index)?;
    Ok(program.map(|program| program.held()).transpose()?.unwrap_or_default())
}

/// The program that sees both what leaves a link and what comes in; none where it does not see one of them.
fn running(socket: &mut Socket, index: u32) -> Result<Option<Program>, KernelError> {
    let [Some(inward), Some(outward)] = ids(socket, index)? else { return Ok(None) };
    if inward == outward { Ok(Program::by_id(inward)?) } else { Ok(None) }
}

/// A program that sees one of them at least.
fn any(socket: &mut Socket, index: u32) -> Result<Option<Program>, KernelError> {
    let [inward, outward] = ids(socket, index)?;
    Ok(inward.or(outward).map(Program::by_id).transpose()?.flatten())
}

fn ids(socket: &mut Socket, index: u32) -> Result<[Option<u32>; 2], KernelError> {
    let [inward, outward] = HOOKS.map(|hook| runs(socket, index, (PREFERENCE, hook)));
    Ok([inward?, outward?])
}

fn release(socket: &mut Socket, index: u32, owner: &str) -> Result<(), KernelError> {
    let Some(program) = any(socket, index)? else { return Ok(()) };
    program.release(owner)?;
    if program.is_idle()? { detach(socket, index, PREFERENCE) } else { Ok(()) }
}

/// Beside an `ingress` queue no program can see what leaves.
fn refuse_ingress(socket: &mut Socket, index: u32) -> Result<(), KernelError> {
    let queues = missing(socket.dump(tc::GETQDISC, tc::dump_queues))?.unwrap_or_default();
    if queues.iter().any(|queue| tc::is_ingress(&queue.body, index)) {
        let sentence =
            "it has a queue of kind \"ingress\", beside which nothing can see what leaves; \"clsact\" would do both";
        return Err(KernelError { ext_ack: Some(sentence.to_owned()), ..Errno::EBUSY.into() });
    }
    Ok(())
}

fn attach(socket: &mut Socket, index: u32, program: &Program) -> Result<(), KernelError> {
    let fd = program.as_raw_fd();
    socket.push(tc::NEWQDISC, CREATE | EXCL, |out| tc::clsact(index, out));
    for hook in HOOKS {
        socket.push(tc::NEWTFILTER, CREATE, |out| shared::attach((PREFERENCE, hook), index, fd, NAME, 0, out));
    }
    // Somebody else's clsact serves as well.
    let mut refusals = socket.flush()?.into_iter().filter_map(|outcome| outcome.error);
    refusals.find(|err| err.errno != Errno::EEXIST).map_or(Ok(()), Err)
}
