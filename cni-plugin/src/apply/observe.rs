//! Reading what a plan depends on: needs become facts, each asked for once.

use super::Error;
use super::effect;
use super::kernel::Kernel;
use crate::plan::IfName;
use crate::plan::facts::{Facts, Need, RouteFact};
use crate::plan::step::Ns;
use crate::plan::thing::LinkRef;
use crate::sys::netlink::KernelError;
use crate::sys::rtnl::{self, addr, link, route};
use crate::sys::sysctl;
use nix::errno::Errno;
use std::collections::BTreeSet;

const RT_TABLE_MAIN: u32 = 254;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads everything that is needed.
pub fn observe(kernel: &mut Kernel, needs: &[Need]) -> Result<Facts, Error> {
    let mut facts = Facts::default();
    for need in needs.iter().collect::<BTreeSet<_>>() {
        effect::read(kernel, need, &mut facts)?;
    }
    Ok(facts)
}

pub(super) fn read_sysctl(kernel: &mut Kernel, ns: Ns, key: &str, facts: &mut Facts) -> Result<(), Error> {
    let value = kernel.run_in(ns, || sysctl::read(key))?;
    let value = value.map_err(|err| Error::io(format!("read sysctl {key}"), &err))?;
    facts.sysctls.extend(value.map(|value| ((ns, key.to_owned()), value)));
    Ok(())
}

pub(super) fn read_boot_id_without(kernel: &mut Kernel, link: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    read_link(kernel, link, facts)?;
    if facts.link(link).is_none_or(|fact| fact.mac.is_none()) { read_boot_id(facts) } else { Ok(()) }
}

#[cold]
pub(super) fn read_routes(kernel: &mut Kernel, ns: Ns, facts: &mut Facts) -> Result<(), Error> {
    let routes = routes(kernel, ns, true).and_then(|mut all| {
        all.extend(routes(kernel, ns, false)?);
        Ok(all)
    });
    facts.routes.insert(ns, routes.map_err(|cause| Error::new(format!("list routes of {ns}"), cause))?);
    Ok(())
}

/// Reads a text file; one that does not exist has no entry.
#[cold]
pub(super) fn read_file(path: &str, facts: &mut Facts) -> Result<(), Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            facts.files.insert(path.to_owned(), text);
            Ok(())
        }
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(err) => Err(Error::io(format!("read {path}"), &err)),
    }
}

pub(super) fn read_boot_id(facts: &mut Facts) -> Result<(), Error> {
    let found = std::fs::read_to_string(BOOT_ID).map_err(|err| Error::io(format!("read {BOOT_ID}"), &err))?;
    found.trim().clone_into(&mut facts.boot_id);
    Ok(())
}

pub(super) fn read_link(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    if facts.links.contains_key(at) {
        return Ok(());
    }
    let fact = kernel.link(at).map_err(|cause| Error::new(format!("look up link {at}"), cause))?;
    facts.links.extend(fact.map(|fact| (at.clone(), fact)));
    Ok(())
}

/// The link of the first default route, IPv4 before IPv6, main table.
#[cold]
pub(super) fn read_default_link(kernel: &mut Kernel, ns: Ns, facts: &mut Facts) -> Result<(), Error> {
    let fail = |cause| Error::new(format!("look for the default route of {ns}"), cause);
    for v4 in [true, false] {
        let is_default = |r: &RouteFact| r.dst.prefix_len() == 0 && r.table == RT_TABLE_MAIN;
        let found = routes(kernel, ns, v4).map_err(fail)?.into_iter().filter(is_default).find_map(|r| r.link);
        if let Some(index) = found {
            let name = name_of(kernel, ns, index).map_err(fail)?;
            facts.default_links.insert(ns, name.clone());
            return read_link(kernel, &LinkRef { ns, name }, facts);
        }
    }
    Ok(())
}

pub(super) fn name_of(kernel: &mut Kernel, ns: Ns, index: u32) -> Result<IfName, KernelError> {
    let message = kernel.route(ns)?.get(rtnl::GETLINK, |out| link::by_index(index, out))?;
    let name = link::parse(&message.body).map(|(name, _)| name);
    name.and_then(|name| IfName::parse(&name).ok()).ok_or_else(|| Errno::ENODEV.into())
}

pub(super) fn read_addrs(kernel: &mut Kernel, at: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    read_link(kernel, at, facts)?;
    let Some(index) = facts.link(at).map(|fact| fact.index) else { return Ok(()) };
    let found = kernel.route(at.ns).and_then(|socket| socket.dump(rtnl::GETADDR, |out| addr::dump(index, out)));
    let messages = found.map_err(|cause| Error::new(format!("list addresses of {at}"), cause))?;
    let addrs = messages.iter().filter_map(|message| addr::parse(&message.body));
    facts.addrs.insert(at.clone(), addrs.filter(|(of, _)| *of == index).map(|(_, fact)| fact).collect());
    Ok(())
}

fn routes(kernel: &mut Kernel, ns: Ns, v4: bool) -> Result<Vec<RouteFact>, KernelError> {
    let messages = kernel.route(ns)?.dump(rtnl::GETROUTE, |out| route::dump(v4, out))?;
    Ok(messages.iter().flat_map(|message| route::parse(&message.body)).collect())
}

#[cold]
pub(super) fn read_vlans(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    let fail = |cause| Error::new("list VLANs of bridge ports", cause);
    let socket = kernel.route(Ns::Host).map_err(fail)?;
    let messages = socket.dump(rtnl::GETLINK, link::vlan_dump).map_err(fail)?;
    for message in &messages {
        let Some((_, vlans)) = link::parse_vlans(&message.body) else { continue };
        let Some((name, _)) = link::parse(&message.body) else { continue };
        facts.vlans.extend(IfName::parse(&name).ok().map(|name| (name, vlans)));
    }
    Ok(())
}
