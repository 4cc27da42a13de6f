//! One program for each link below limited containers, with an element for each attachment. The first one brings it there,
//! the last one takes it away.

use super::super::kernel::Kernel;
use crate::plan::link::LinkRef;
use crate::plan::step::Ns;
use crate::plan::xsk::{Hold, XskGuard};
use crate::sys::bpf::xsk::below::Program;
use crate::sys::netlink::KernelError;
use crate::sys::rtnl::{self, link};
use nix::errno::Errno;

pub(super) fn add(kernel: &mut Kernel, at: &LinkRef, guard: &XskGuard) -> Result<(), KernelError> {
    let index = kernel.index(at)?;
    if let Some(program) = Program::of_link(index)? {
        return super::hold(&program.holds, guard);
    }
    let program = Program::load()?;
    super::hold(&program.holds, guard)?;
    Ok(program.attach(index)?)
}

/// Also where the link has another name by now.
pub(super) fn del(kernel: &mut Kernel, at: &LinkRef, guard: &XskGuard) -> Result<(), KernelError> {
    let XskGuard { netns, owner, .. } = guard;
    let is_there = |program: &Program| {
        Ok::<_, Errno>(program.holds.list()?.iter().any(|hold| hold.netns == *netns && hold.owner == *owner))
    };
    let named = match kernel.link(at)? {
        Some(link) => Program::of_link(link.index)?.map(|program| (link.index, program)),
        None => None,
    };
    let all = match named {
        Some((index, program)) if is_there(&program)? || program.holds.are_empty()? => vec![(index, program)],
        _ => programs(kernel)?,
    };
    all.into_iter().try_for_each(|(index, program)| {
        program.holds.release(*netns, owner)?;
        end_idle(index, &program)
    })
}

/// Whether there may be something to end.
pub(super) fn is_begun(kernel: &mut Kernel) -> Result<bool, KernelError> {
    Ok(!programs(kernel)?.is_empty())
}

pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), KernelError> {
    programs(kernel)?.into_iter().try_for_each(|(index, program)| {
        program.holds.release_all(owner)?;
        end_idle(index, &program)
    })
}

/// Those of all links.
pub(super) fn list(kernel: &mut Kernel) -> Result<Vec<Hold>, KernelError> {
    let all: Result<Vec<Vec<Hold>>, Errno> =
        programs(kernel)?.iter().map(|(_, program)| program.holds.list()).collect();
    Ok(all?.into_iter().flatten().collect())
}

/// Those of one link.
pub(super) fn list_at(kernel: &mut Kernel, at: &LinkRef) -> Result<Vec<Hold>, KernelError> {
    let Some(index) = kernel.link(at)?.map(|fact| fact.index) else { return Ok(Vec::new()) };
    let program = Program::of_link(index)?;
    Ok(program.map(|program| program.holds.list()).transpose()?.unwrap_or_default())
}

/// Takes a program that holds nobody from its link.
fn end_idle(index: u32, program: &Program) -> Result<(), KernelError> {
    if !program.holds.are_empty()? {
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
