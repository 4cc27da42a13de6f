//! Holding the `AF_XDP` sockets of limited containers, at the link below their interfaces: one program for each such link,
//! with an element for each attachment. The first one brings it there, the last one takes it away.

use super::kernel::Kernel;
use super::lock::lock;
use crate::plan::link::LinkRef;
use crate::plan::step::Ns;
use crate::plan::xsk::{Hold, XskGuard};
use crate::sys::bpf::xsk::Program;
use crate::sys::netlink::KernelError;
use crate::sys::rtnl::{self, link};
use nix::errno::Errno;

/// Holds those of the container.
pub(super) fn add(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let _held = lock()?;
    let index = kernel.index(&guard.below)?;
    if let Some(program) = Program::of_link(index)? {
        return hold(&program, guard);
    }
    let program = Program::load()?;
    hold(&program, guard)?;
    Ok(program.attach(index)?)
}

fn hold(program: &Program, XskGuard { below, netns, owner }: &XskGuard) -> Result<(), KernelError> {
    program.hold(*netns, owner).map_err(|errno| match errno {
        Errno::ENOSPC => said(errno, format!("no more attachments of one network namespace are held at {below}")),
        Errno::E2BIG => said(errno, format!("no more attachments are held at {below}")),
        _ => errno.into(),
    })
}

fn said(errno: Errno, sentence: String) -> KernelError {
    KernelError { ext_ack: Some(sentence), ..errno.into() }
}

/// Ends what an attachment has, also where its link has another name by now.
pub(super) fn del(kernel: &mut Kernel, guard: &XskGuard) -> Result<(), KernelError> {
    let XskGuard { below, netns, owner } = guard;
    let _held = lock()?;
    let is_there = |program: &Program| {
        Ok::<_, Errno>(program.held()?.iter().any(|hold| hold.netns == *netns && hold.owner == *owner))
    };
    let named = match kernel.link(below)? {
        Some(link) => Program::of_link(link.index)?.map(|program| (link.index, program)),
        None => None,
    };
    let all = match named {
        Some((index, program)) if is_there(&program)? || program.is_idle()? => vec![(index, program)],
        _ => programs(kernel)?,
    };
    all.into_iter().try_for_each(|(index, program)| {
        program.release(*netns, owner)?;
        end_idle(index, &program)
    })
}

/// Ends all of an owner's.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    if programs(kernel)?.is_empty() {
        return Ok(());
    }
    let _held = lock()?;
    programs(kernel)?.into_iter().try_for_each(|(index, program)| {
        program.release_all(owner)?;
        end_idle(index, &program)
    })
}

/// All whose sockets are held somewhere.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, KernelError> {
    let mut owners = Vec::new();
    for (_, program) in programs(kernel)? {
        owners.extend(program.held()?.into_iter().map(|hold| hold.owner));
    }
    Ok(owners)
}

/// Whose sockets are held at a link.
pub fn observe(kernel: &mut Kernel, at: &LinkRef) -> Result<Vec<Hold>, KernelError> {
    let Some(index) = kernel.link(at)?.map(|fact| fact.index) else { return Ok(Vec::new()) };
    let program = Program::of_link(index)?;
    Ok(program.map(|program| program.held()).transpose()?.unwrap_or_default())
}

/// Takes a program that holds nobody from its link.
fn end_idle(index: u32, program: &Program) -> Result<(), KernelError> {
    if !program.is_idle()? {
        return Ok(());
    }
    match program.detach(index) {
        Err(errno) if errno != Errno::ENOENT && errno != Errno::ENODEV => Err(errno.into()),
        _ => Ok(()),
    }
}

/// The links of the host that run one. An end of a veth that is a port of a bridge is below nobody.
fn programs(kernel: &mut Kernel) -> Result<Vec<(u32, Program)>, KernelError> {
    let mut programs = Vec::new();
    for message in kernel.route(Ns::Host)?.dump(rtnl::GETLINK, link::link_dump)? {
        let Some((_, fact)) = link::parse(&message.body) else { continue };
        if fact.kind != "veth" || fact.master.is_none() {
            programs.extend(Program::of_link(fact.index)?.map(|program| (fact.index, program)));
        }
    }
    Ok(programs)
}
