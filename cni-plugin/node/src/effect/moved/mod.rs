//! Links that are moved to a container and back to the host.
//!
//! Each move is one request, so a killed call either has moved the link or has not. But the kernel
//! may apply a refused request in part, since it applies the parts of a request one after the
//! other. So the link may be in the container or on the host, and the move back looks in both.

mod alt_names;
pub(crate) mod device;
mod elsewhere;

use super::{Effect, link};
use crate::Cause;
use crate::kernel::Kernel;
use crate::sys::netlink::Socket;
use crate::sys::rtnl::link::{NewLink, moved};
use crate::sys::{netns, rtnl};
use braid_core::name::{IfName, Ns};
use braid_core::plan::facts::LinkFact;
use braid_core::plan::thing::moved::Was;
use braid_core::plan::thing::{LinkRef, Moved};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Longest wait for the end of a namespace. When a namespace ends, the kernel returns its hardware
/// to the host.
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
        let link = NewLink {
            name: Some(name),
            netns: Some(netns),
            ..NewLink::default()
        };
        let body = |out: &mut Vec<u8>| moved(index, &link, alias, out);
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

    /// Returns false: `del` itself finds out if the link is gone.
    fn is_gone(&self, _errno: Errno) -> bool {
        false
    }
}

/// Finds a moved link in the container. Returns it with the name that it gets on the host, or
/// `None` if there is no link to move back.
fn in_pod(kernel: &mut Kernel, of: &Moved) -> Result<Option<(LinkFact, IfName)>, Cause> {
    let (Some(from), Some(was)) = (&of.from, &of.was) else {
        return match kernel.link(&of.to)? {
            Some(fact) => untold(kernel, of, fact),
            None => Ok(None),
        };
    };
    let socket = kernel.route(Ns::Pod)?;
    if let Some(index) = was.index {
        match link::of_index(socket, index)? {
            Some(fact) if was.may_be(&fact) => return Ok(Some((fact, from.clone()))),
            _ if was.hardware.is_unknown() => return Ok(None),
            _ => {}
        }
    }
    let links = link::list(socket)?;
    Ok(own(&links, of, from, was).map(|fact| (fact.clone(), from.clone())))
}

/// Finds the moved link in the list of the container's links. The caller has already tried the
/// index from after the move. A container may rename links and swap the names of two links, so the
/// hardware decides. If the hardware is unknown, and a call was killed before it recorded the
/// index, the name decides. If no link has the name, the alias or the hardware address decides: the
/// kernel may have moved the link and refused the name.
fn own<'l>(
    links: &'l [(String, LinkFact)],
    of: &Moved,
    from: &IfName,
    was: &Was,
) -> Option<&'l LinkFact> {
    let mut candidates = Vec::new();
    for (name, fact) in links {
        if was.may_be(fact) {
            candidates.push((name.as_str(), fact));
        }
    }
    if !was.hardware.is_unknown()
        && let Some((_, fact)) = candidates.first()
    {
        return Some(fact);
    }
    if was.index.is_some() {
        return None;
    }
    let is_named = |name: &str| name == of.to.name.as_str();
    let by_name = candidates.iter().find(|(name, _)| is_named(name));
    let by_alias = || candidates.iter().find(|(_, fact)| was.is_it(from, fact));
    let (_, fact) = by_name.or_else(by_alias)?;
    Some(fact)
}

/// Finds the host name of a link without a record. The name is in the link's alias, where the
/// reference plugin writes it, or in the configuration. If neither has a name, hardware keeps its
/// name, since only the host can have created it. Returns `None` if the host has a link with the
/// name from the configuration.
fn untold(
    kernel: &mut Kernel,
    of: &Moved,
    fact: LinkFact,
) -> Result<Option<(LinkFact, IfName)>, Cause> {
    if let Ok(name) = IfName::parse(&fact.alias) {
        return Ok(Some((fact, name)));
    }
    let name = match &of.from {
        Some(name) => name,
        None if fact.kind.is_empty() => &of.to.name,
        None => {
            let what = format!(
                "neither a record, nor an alias, nor \"device\" has the original name of {}",
                of.to
            );
            return Err(Cause::Refused(format!(
                "failed to find original ifname: {what}"
            )));
        }
    };
    if fact.alt_names.iter().any(|alt| alt == name.as_str()) {
        let what = format!(
            "{name} is an alternative name of {}, and no record or alias has its main name",
            of.to
        );
        return Err(Cause::Refused(format!(
            "failed to find original ifname: {what}"
        )));
    }
    // The device with this name never left the host, so this link is another one.
    let is_there = kernel.host().index_of(name.as_str())?.is_some();
    Ok((!is_there).then(|| (fact, name.clone())))
}

/// Returns the alias and the `up` flag of the link on the host. Without a record, returns the
/// defaults of the reference plugin.
fn state(of: &Moved) -> (&str, bool) {
    of.was
        .as_ref()
        .map_or(("", false), |was| (was.alias.as_str(), was.up))
}

/// Restores names and state of a link that is on the host already. There are three cases: the
/// kernel returned the link when the container's namespace ended, the kernel moved the link and
/// refused the name, or the call that moved the link back was killed.
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
    let link = NewLink {
        name: Some(from),
        up,
        ..NewLink::default()
    };
    kernel.host().call(rtnl::SETLINK, 0, |out| {
        moved(fact.index, &link, alias, out);
    })?;
    kernel.forget(&LinkRef::host(from.clone()));
    alt_names::give_missing(kernel, &fact, was)
}

/// Moves a link of the container back to the host. If another link of the host has one of this
/// link's names, changes nothing: the link stays in the container and stays up.
fn give_back(kernel: &mut Kernel, fact: &LinkFact, name: &IfName, of: &Moved) -> Result<(), Cause> {
    let in_the_way = alt_names::in_the_way(kernel, fact, name, of.was.as_ref())?;
    let home = netns::of_socket(kernel.host())?;
    let socket = kernel.route(Ns::Pod)?;
    for alt in in_the_way {
        alt_names::take(socket, fact.index, alt)?;
    }
    let (alias, up) = state(of);
    let link = NewLink {
        name: Some(name),
        netns: Some(home.as_raw_fd()),
        up,
        ..NewLink::default()
    };
    let body = |out: &mut Vec<u8>| moved(fact.index, &link, alias, out);
    socket.call(rtnl::SETLINK, 0, body)?;
    kernel.forget(&LinkRef::host(name.clone()));
    match &of.was {
        Some(was) if alt_names::is_any_missing(fact, was) => {
            // The link may have another index on the host.
            let there = kernel.link(&LinkRef::host(name.clone()))?;
            there.map_or(Ok(()), |fact| alt_names::give_missing(kernel, &fact, was))
        }
        _ => Ok(()),
    }
}

/// Finds a link that the kernel returned to the host. Waits for a hardware link, up to
/// [`END_TIMEOUT`], since the kernel may still be ending the container's namespace.
fn returned(kernel: &mut Kernel, from: &IfName, was: &Was) -> Result<Option<LinkFact>, Cause> {
    let find = |socket: &mut Socket| -> Result<Option<LinkFact>, Cause> {
        for (_, fact) in link::list(socket)? {
            if was.is_back(from, &fact) {
                return Ok(Some(fact));
            }
        }
        Ok(None)
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
