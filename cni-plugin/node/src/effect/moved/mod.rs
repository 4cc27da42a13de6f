//! Links that a container has for a while: how they get there, and how they come back.
//!
//! Either way is one request: a call that is killed has moved the link or has not. The kernel does
//! the parts of the request one after the other, so one that it refuses may be done in part; the
//! way back takes the link from wherever it is.

mod alt_names;
pub(crate) mod device;
mod elsewhere;

use super::{Effect, link};
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::netlink::Socket;
use crate::sys::rtnl::link::moved;
use crate::sys::{netns, rtnl};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::moved::Was;
use braid_core::plan::thing::{LinkRef, Moved};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Longest time for the kernel to end a namespace, which brings hardware back.
const END_TIMEOUT: Duration = Duration::from_secs(3);

impl Effect for Moved {
    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let origin = self.origin().ok_or(Errno::ENODEV)?;
        let index = kernel.index(&origin)?;
        let netns = kernel.netns().ok_or(Errno::ENOENT)?.as_raw_fd();
        let (name, alias) = (&self.to.name, origin.name.as_str());
        if self.is_by_alt_name() {
            alt_names::take(kernel.host(), index, name.as_str())?;
        }
        let body = |out: &mut Vec<u8>| moved(index, Some(netns), (name, alias), false, out);
        if let Err(err) = kernel.host().call(rtnl::SETLINK, 0, body) {
            return Err(alt_names::refusal(kernel, self, err.into()));
        }
        kernel.forget(&origin);
        Ok(())
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        let there = if kernel.has_pod() {
            in_pod(kernel, self)?
        } else {
            None
        };
        kernel.forget(&self.to);
        match there {
            Some((fact, name)) => give_back(kernel, &fact, &name, self),
            None => name_again(kernel, self),
        }
    }

    fn is_several(&self) -> bool {
        true
    }

    /// False: what is gone is found out before anything is asked for.
    fn is_gone(&self, _errno: Errno) -> bool {
        false
    }
}

/// The link in the container, and the name that it gets on the host. None where there is none to
/// give back.
fn in_pod(kernel: &mut Kernel, of: &Moved) -> Result<Option<(LinkFact, IfName)>, Cause> {
    let (Some(from), Some(was)) = (&of.from, &of.was) else {
        return kernel
            .link(&of.to)?
            .map_or(Ok(None), |fact| untold(kernel, of, fact));
    };
    let socket = kernel.route(Ns::Pod)?;
    if let Some(index) = was.index {
        let there = link::of_index(socket, index)?.filter(|fact| was.may_be(fact));
        if there.is_some() || was.hardware.is_unknown() {
            return Ok(there.map(|fact| (fact, from.clone())));
        }
    }
    let links = link::list(socket)?;
    Ok(own(&links, of, from, was).map(|fact| (fact.clone(), from.clone())))
}

/// The moved link among those of the container. A container may change names and aliases, and let
/// two links exchange them: the index counts, which was read after the move. Where it leads to no
/// such link, the hardware counts. A call that was killed before the move was recorded had read
/// none: then the name counts as well, then alias and hardware address, where the kernel
/// moved the link and refused the name.
fn own<'l>(
    links: &'l [(String, LinkFact)],
    of: &Moved,
    from: &IfName,
    was: &Was,
) -> Option<&'l LinkFact> {
    let find = |is_it: &dyn Fn(&str, &LinkFact) -> bool| {
        links
            .iter()
            .find(|(name, fact)| was.may_be(fact) && is_it(name, fact))
            .map(|(_, fact)| fact)
    };
    let by_hardware = find(&|_, _| !was.hardware.is_unknown());
    if was.index.is_some() {
        return by_hardware;
    }
    let by_name = || find(&|name, _| name == of.to.name.as_str());
    by_hardware
        .or_else(by_name)
        .or_else(|| find(&|_, fact| was.is_it(from, fact)))
}

/// The same without a record: the alias tells the name, as the reference plugin writes it, or the
/// configuration does. Hardware keeps its name where neither does: nobody but the host can have
/// made it.
fn untold(
    kernel: &mut Kernel,
    of: &Moved,
    fact: LinkFact,
) -> Result<Option<(LinkFact, IfName)>, Cause> {
    if let Ok(name) = IfName::parse(&fact.alias) {
        return Ok(Some((fact, name)));
    }
    let Some(name) = of
        .from
        .as_ref()
        .or(Some(&of.to.name).filter(|_| fact.kind.is_empty()))
    else {
        let what = format!(
            "neither a record, nor an alias, nor \"device\" says what {} was called",
            of.to
        );
        return Err(Cause::Refused(format!(
            "failed to find original ifname: {what}"
        )));
    };
    if fact.alt_names.iter().any(|alt| alt == name.as_str()) {
        let what = format!(
            "{name} is an alternative name of {}, and no record or alias says its own",
            of.to
        );
        return Err(Cause::Refused(format!(
            "failed to find original ifname: {what}"
        )));
    }
    // The device of this name never left, so the link is another.
    let is_there = kernel.host().index_of(name.as_str())?.is_some();
    Ok(Some((fact, name.clone())).filter(|_| !is_there))
}

/// The state that it had on the host; as the reference plugin leaves it where no record tells more.
fn state(of: &Moved) -> (&str, bool) {
    of.was
        .as_ref()
        .map_or(("", false), |was| (was.alias.as_str(), was.up))
}

/// Gives the link its names and its state where it is on the host and has others: the kernel
/// brought it back when its namespace ended, or refused the name when it had moved it, or the call
/// that gave it back was killed.
fn name_again(kernel: &mut Kernel, of: &Moved) -> Result<(), Cause> {
    let (Some(from), Some(was)) = (&of.from, &of.was) else {
        return Ok(());
    };
    let link = match alt_names::holder(kernel, Ns::Host, from.as_str())? {
        None => returned(kernel, from, was)?,
        Some((own, fact)) if own == *from && was.is_given_back(&fact) => {
            return alt_names::give_missing(kernel, &fact, was);
        }
        Some((own, fact)) if own != *from && was.is_back(from, &fact) => Some(fact),
        Some((own, fact)) => {
            let is_other = |(name, fact): &(String, LinkFact)| {
                name != from.as_str() && fact.alias == from.as_str()
            };
            let is_elsewhere = link::list(kernel.host())?.iter().any(is_other);
            if is_elsewhere {
                return alt_names::refuse_taken(kernel, from.as_str());
            }
            if own == *from && was.may_be(&fact) {
                return Ok(());
            }
            None
        }
    };
    let Some(fact) = link else {
        return elsewhere::judge(kernel, from, was);
    };
    if fact.alt_names.iter().any(|alt| alt == from.as_str()) {
        alt_names::take(kernel.host(), fact.index, from.as_str())?;
    }
    let (alias, up) = state(of);
    kernel.host().call(rtnl::SETLINK, 0, |out| {
        moved(fact.index, None, (from, alias), up, out);
    })?;
    kernel.forget(&LinkRef::host(from.clone()));
    alt_names::give_missing(kernel, &fact, was)
}

/// Moves a link of the container back. Nothing is changed while the host has another link of one of
/// its names: the container's stays as it is, and up.
fn give_back(kernel: &mut Kernel, fact: &LinkFact, name: &IfName, of: &Moved) -> Result<(), Cause> {
    let in_the_way = alt_names::in_the_way(kernel, fact, name, of.was.as_ref())?;
    let home = netns::of_socket(kernel.host())?;
    let socket = kernel.route(Ns::Pod)?;
    for alt in in_the_way {
        alt_names::take(socket, fact.index, alt)?;
    }
    let (alias, up) = state(of);
    let body =
        |out: &mut Vec<u8>| moved(fact.index, Some(home.as_raw_fd()), (name, alias), up, out);
    socket.call(rtnl::SETLINK, 0, body)?;
    kernel.forget(&LinkRef::host(name.clone()));
    match &of.was {
        Some(was) if alt_names::is_any_missing(fact, was) => {
            // It may have another index there.
            let there = kernel.link(&LinkRef::host(name.clone()))?;
            there.map_or(Ok(()), |fact| alt_names::give_missing(kernel, &fact, was))
        }
        _ => Ok(()),
    }
}

/// The link on the host. The kernel may still be busy with the end of the namespace of hardware.
fn returned(kernel: &mut Kernel, from: &IfName, was: &Was) -> Result<Option<LinkFact>, Cause> {
    let find = |socket: &mut Socket| -> Result<Option<LinkFact>, Cause> {
        let links = link::list(socket)?;
        Ok(links
            .into_iter()
            .map(|(_, fact)| fact)
            .find(|fact| was.is_back(from, fact)))
    };
    if !was.kind.is_empty() || kernel.has_pod() {
        return find(kernel.host());
    }
    let mut events = kernel.listen(Ns::Host, rtnl::GROUP_LINK)?;
    if let Some(fact) = find(kernel.host())? {
        return Ok(Some(fact));
    }
    events.wait(END_TIMEOUT, |message| {
        link::parse(&message.body).is_some_and(|(_, fact)| was.is_back(from, &fact))
    })?;
    find(kernel.host())
}
