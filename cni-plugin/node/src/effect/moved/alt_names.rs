//! Alternative names of a moved link. They move with it, so each is in the way if another link
//! there has it, or the link itself is to have it as its name.

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

/// The link that has this name or alternative name.
pub(super) fn holder(
    kernel: &mut Kernel,
    ns: Ns,
    name: &str,
) -> Result<Option<(IfName, LinkFact)>, Cause> {
    // The kernel gave it, so a name that does not parse is none that it can be asked for.
    LinkName::parse(name).map_or(Ok(None), |name| kernel.named_link(ns, &name))
}

/// Takes an alternative name from a link, unless it has lost it.
pub(super) fn take(socket: &mut Socket, index: u32, name: &str) -> Result<(), Cause> {
    match socket.call(rtnl::DELLINKPROP, 0, |out| alt_name(index, name, out)) {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        taken => Ok(taken.map(drop)?),
    }
}

/// Fails if a link of the host has this name.
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

/// The kernel's refusal to move a link to the container; if another link there has one of its
/// alternative names, that.
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
    let names = was
        .alt_names
        .iter()
        .map(String::as_str)
        .chain([of.to.name.as_str()]);
    let mut others = names.filter_map(|name| Some((name, holder(kernel, Ns::Pod, name).ok()??.0)));
    others
        .next()
        .map_or(err, |(name, own)| taken("container", name, &own))
}

/// The alternative names that a link of the container has to lose before it moves to the host as
/// `name`: that one, and those that the container gave it and that other links of the host have.
/// Without this choice, a container could keep the link. Fails if another link has a name that is
/// the link's on the host.
pub(super) fn in_the_way<'f>(
    kernel: &mut Kernel,
    fact: &'f LinkFact,
    name: &IfName,
    was: Option<&Was>,
) -> Result<Vec<&'f str>, Cause> {
    refuse_taken(kernel, name.as_str())?;
    for alt in was.iter().flat_map(|was| &was.alt_names) {
        refuse_taken(kernel, alt)?;
    }
    let mut all = Vec::new();
    // The host has no other link with one of the link's own names.
    let is_own = |alt: &String| was.is_some_and(|was| was.alt_names.contains(alt));
    for alt in fact.alt_names.iter().filter(|alt| !is_own(alt)) {
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

/// The alternative names that a link had on the host and lost meanwhile.
fn missing<'w>(fact: &LinkFact, was: &'w Was) -> impl Iterator<Item = &'w String> {
    was.alt_names
        .iter()
        .filter(|alt| !fact.alt_names.contains(alt))
}

pub(super) fn is_any_missing(fact: &LinkFact, was: &Was) -> bool {
    missing(fact, was).next().is_some()
}

/// Gives a link of the host the alternative names again that it had there.
pub(super) fn give_missing(kernel: &mut Kernel, fact: &LinkFact, was: &Was) -> Result<(), Cause> {
    for alt in missing(fact, was) {
        let given = kernel
            .host()
            .call(rtnl::NEWLINKPROP, 0, |out| alt_name(fact.index, alt, out));
        let Err(err) = given else { continue };
        match holder(kernel, Ns::Host, alt)? {
            // Who names devices, such as udev, was faster.
            Some((_, there)) if there.index == fact.index => {}
            Some((own, _)) if err.errno == Errno::EEXIST => return Err(taken("host", alt, &own)),
            _ => return Err(err.into()),
        }
    }
    Ok(())
}
