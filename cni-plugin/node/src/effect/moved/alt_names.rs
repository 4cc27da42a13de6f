//! Alternative names of a moved link. They move with the link. So a move fails if another link in
//! the target namespace has one of these names. A move also fails if the new primary name of the
//! link is already one of its alternative names.

use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::netlink::Socket;
use crate::sys::rtnl;
use crate::sys::rtnl::link::alt_name;
use braid_core::name::{IfName, LinkName, Ns};
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::Moved;
use braid_core::plan::thing::moved::Was;
use nix::errno::Errno;

/// Finds the link with this name or alternative name; `None` if there is none.
pub(super) fn holder(
    kernel: &mut Kernel,
    ns: Ns,
    name: &str,
) -> Result<Option<(IfName, LinkFact)>, Cause> {
    // The name came from the kernel, so one that does not parse cannot be looked up.
    LinkName::parse(name).map_or(Ok(None), |name| kernel.named_link(ns, &name))
}

/// Deletes an alternative name of a link. Succeeds if the link does not have the name.
pub(super) fn take(socket: &mut Socket, index: u32, name: &str) -> Result<(), Cause> {
    match socket.call(rtnl::DELLINKPROP, 0, |out| alt_name(index, name, out)) {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        taken => {
            taken?;
            Ok(())
        }
    }
}

/// Fails if a link of the host has this name as its primary or an alternative name.
pub(super) fn refuse_taken(kernel: &mut Kernel, name: &str) -> Result<(), Cause> {
    holder(kernel, Ns::Host, name)?.map_or(Ok(()), |(own, _)| Err(taken("host", name, &own)))
}

fn taken(place: &str, name: &str, own: &IfName) -> Cause {
    let own = own.as_str();
    let more = if own == name {
        String::new()
    } else {
        format!(", an alternative name of {own:?}")
    };
    Cause::Refused(format!(
        "the {place} has another link called {name:?}{more}"
    ))
}

/// Converts `err`, the kernel's refusal of a move to the container. If a link of the container has
/// one of the moved link's names, returns an error with this name. Otherwise returns `err`.
#[cold]
pub(super) fn refusal(kernel: &mut Kernel, of: &Moved, err: Cause) -> Cause {
    let (Some(from), Some(was)) = (&of.from, &of.was) else {
        return err;
    };
    let is_on_host =
        |kernel: &mut Kernel| matches!(kernel.host().index_of(from.as_str()), Ok(Some(_)));
    if !err.is(&[Errno::EEXIST]) || !is_on_host(kernel) {
        return err;
    }
    let mut names: Vec<&str> = was.alt_names.iter().map(String::as_str).collect();
    names.push(of.to.name.as_str());
    for name in names {
        if let Ok(Some((own, _))) = holder(kernel, Ns::Pod, name) {
            return taken("container", name, &own);
        }
    }
    err
}

/// Lists the alternative names that a link of the container must lose before it moves to the host
/// as `name`. The first case is `name` itself. The second case is a name that was given in the
/// container and that another link of the host has. A container could otherwise use such a name to
/// keep the link.
///
/// Fails if another link of the host has `name`, or an alternative name that this link had on the
/// host.
pub(super) fn in_the_way<'f>(
    kernel: &mut Kernel,
    fact: &'f LinkFact,
    name: &IfName,
    was: Option<&Was>,
) -> Result<Vec<&'f str>, Cause> {
    refuse_taken(kernel, name.as_str())?;
    if let Some(was) = was {
        for alt in &was.alt_names {
            refuse_taken(kernel, alt)?;
        }
    }
    let mut all = Vec::new();
    // `refuse_taken` found that no other link of the host has the link's own names.
    let is_own = |alt: &String| was.is_some_and(|was| was.alt_names.contains(alt));
    for alt in &fact.alt_names {
        if is_own(alt) {
            continue;
        }
        if alt == name.as_str() {
            all.push(alt.as_str());
            continue;
        }
        match holder(kernel, Ns::Host, alt)? {
            Some((own, _)) if was.is_none() => return Err(taken("host", alt, &own)),
            Some(_) => all.push(alt.as_str()),
            None => {}
        }
    }
    Ok(all)
}

/// True if the link lost an alternative name that it had on the host.
pub(super) fn is_any_missing(fact: &LinkFact, was: &Was) -> bool {
    let mut names = was.alt_names.iter();
    names.any(|alt| !fact.alt_names.contains(alt))
}

/// Restores the alternative names that a link had on the host.
pub(super) fn give_missing(kernel: &mut Kernel, fact: &LinkFact, was: &Was) -> Result<(), Cause> {
    for alt in &was.alt_names {
        if fact.alt_names.contains(alt) {
            continue;
        }
        let given = kernel
            .host()
            .call(rtnl::NEWLINKPROP, 0, |out| alt_name(fact.index, alt, out));
        let Err(err) = given else { continue };
        match holder(kernel, Ns::Host, alt)? {
            // A program that names devices, such as udev, was faster.
            Some((_, there)) if there.index == fact.index => {}
            Some((own, _)) if err.errno == Errno::EEXIST => return Err(taken("host", alt, &own)),
            _ => return Err(err.into()),
        }
    }
    Ok(())
}
