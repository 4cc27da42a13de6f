//! Links: creation, deletion, and facts from the kernel.

mod deletion_queue;
pub(crate) mod make;
mod master;
mod tap;
pub(crate) mod unmake;

use super::{Effect, Transport};
use crate::kernel::Kernel;
pub(crate) use crate::kernel::link::{INFO_LEN, ifla, list, of_index, parse};
use crate::sys::rtnl;
use crate::sys::rtnl::link::by_index;
use crate::{Cause, Context, Error};
use braid_core::name::{IfName, LinkName, Ns};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::{Link, LinkRef, Verb};
use nix::errno::Errno;

impl Effect for Link {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Link(self)
    }
}

pub(crate) fn read(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    if facts.links.contains_key(at) {
        return Ok(());
    }
    let fact = kernel.link(at).doing(format_args!("look up link {at}"))?;
    if let Some(fact) = fact {
        facts.links.insert(at.clone(), fact);
    }
    Ok(())
}

/// Reads the link with this name or alternative name, and stores it in `facts` under its primary
/// name.
pub(crate) fn read_named(
    kernel: &mut Kernel,
    ns: Ns,
    name: &LinkName,
    facts: &mut Facts,
) -> Result<(), Error> {
    let found = kernel
        .named_link(ns, name)
        .doing(format_args!("look up link {:?} of {ns}", name.as_str()))?;
    if let Some((own, fact)) = found {
        if own.as_str() != name.as_str() {
            facts.named_links.insert((ns, name.clone()), own.clone());
        }
        facts.links.insert(LinkRef { ns, name: own }, fact);
    }
    Ok(())
}

pub(super) fn name_of(kernel: &mut Kernel, ns: Ns, index: u32) -> Result<IfName, Cause> {
    let message = kernel
        .route(ns)?
        .get(rtnl::GETLINK, |out| by_index(index, out))?;
    let Some((name, _)) = parse(&message.body) else {
        return Err(Errno::ENODEV.into());
    };
    IfName::parse(&name).map_err(|_invalid| Errno::ENODEV.into())
}
