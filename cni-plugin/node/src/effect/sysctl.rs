//! Sysctls of a namespace, and the facts that braid needs before it enables forwarding. The
//! namespace is entered once for all sysctls.

use super::{Effect, Transport, link, route};
use crate::effect::shared::is_there_already;
use crate::kernel::Kernel;
use crate::sys::release::is_at_least;
use crate::sys::rtnl::{self, netconf};
use crate::sys::sysctl;
use crate::{Context, Error};
use braid_core::name::{IfName, Ns};
use braid_core::plan::Facts;
use braid_core::plan::step::Step;
use braid_core::plan::thing::advertised::Advertised;
use braid_core::plan::thing::{LinkRef, Sysctl, Thing, Verb};
use std::io;

impl Effect for Sysctl {
    fn transport(&self, _verb: Verb) -> Transport<'_> {
        Transport::Sysctl(self)
    }
}

/// Writes the sysctls of `steps`, all in namespace `ns`. Returns a result for each step: `false` if
/// the kernel has no such sysctl.
pub(crate) fn write(
    kernel: &mut Kernel,
    ns: Ns,
    steps: &[&Step],
    facts: &Facts,
) -> Result<Vec<io::Result<bool>>, Error> {
    let mut held = Vec::with_capacity(steps.len());
    for step in steps {
        held.push(is_there_already(step, facts) || is_held(kernel, step));
    }
    let write_steps = || {
        let mut results = Vec::with_capacity(steps.len());
        for (step, is_held) in steps.iter().zip(&held) {
            results.push(if *is_held { Ok(true) } else { write_step(step) });
        }
        results
    };
    if held.iter().all(|held| *held) {
        Ok(write_steps())
    } else {
        kernel.run_in(ns, write_steps)
    }
}

fn write_step(step: &Step) -> io::Result<bool> {
    match step {
        Step::Add(Thing::Sysctl(sysctl)) => sysctl::write(&sysctl.key, &sysctl.value),
        Step::Ensure(Thing::Sysctl(sysctl)) => sysctl::ensure(&sysctl.key, &sysctl.value),
        Step::Add(_)
        | Step::Ensure(_)
        | Step::Del(_)
        | Step::Set { .. }
        | Step::Retune { .. }
        | Step::Wait(_)
        | Step::Forget(..)
        | Step::Legacy(_) => Ok(true),
    }
}

pub(crate) fn read(kernel: &mut Kernel, ns: Ns, key: &str, facts: &mut Facts) -> Result<(), Error> {
    if let Some(value) = kernel.run_in(ns, || read_here(key))?? {
        facts.sysctls.insert((ns, key.to_owned()), value);
    }
    Ok(())
}

/// True if the step enables forwarding, and forwarding is enabled already.
fn is_held(kernel: &mut Kernel, step: &Step) -> bool {
    let Step::Ensure(Thing::Sysctl(Sysctl { ns, key, value, .. })) = step else {
        return false;
    };
    value == "1" && forwards(kernel, *ns, key) == Some(true)
}

/// Returns the value of the forwarding sysctl `key`, read with a netlink message. The message takes
/// a third of the time that reading the file takes. Before Linux 6.9, the message waits for the
/// lock on all networks, so this function returns `None`. Also returns `None` for other sysctls.
fn forwards(kernel: &mut Kernel, ns: Ns, key: &str) -> Option<bool> {
    let family = match key {
        Sysctl::IPV4_FORWARD => netconf::AF_INET,
        Sysctl::IPV6_FORWARD => netconf::AF_INET6,
        _ => return None,
    };
    if !is_at_least(6, 9) {
        return None;
    }
    let socket = kernel.route(ns).ok()?;
    let answer = socket.get(rtnl::GETNETCONF, |out| netconf::of_all(family, out));
    Some(netconf::forwards(&answer.ok()?.body))
}

/// Reads whether the host forwards IPv6. If not, also reads the host's links that accept router
/// advertisements.
pub(crate) fn read_ipv6_forwarding(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    let is_on = match forwards(kernel, Ns::Host, Sysctl::IPV6_FORWARD) {
        Some(is_on) => Some(is_on),
        None => read_here(Sysctl::IPV6_FORWARD)?.map(|value| value == "1"),
    };
    match is_on {
        Some(true) => drop(
            facts
                .sysctls
                .insert((Ns::Host, Sysctl::IPV6_FORWARD.to_owned()), "1".to_owned()),
        ),
        Some(false) => facts.advertised = advertised(kernel)?,
        None => {}
    }
    Ok(())
}

/// Reads a sysctl in this thread's namespace.
fn read_here(key: &str) -> Result<Option<String>, Error> {
    sysctl::read(key).doing(format_args!("read sysctl {key}"))
}

#[cold]
fn advertised(kernel: &mut Kernel) -> Result<Vec<Advertised>, Error> {
    let links = link::list(kernel.host()).doing("list links of the host")?;
    let routes = route::list(kernel.host(), false).doing("list IPv6 routes of the host")?;
    let mut advertised = Vec::new();
    for (name, fact) in links {
        let Ok(name) = IfName::parse(&name) else {
            continue;
        };
        let accept = [
            (Sysctl::accept_ra(name.as_str()), "1"),
            (format!("net/ipv6/conf/{name}/forwarding"), "0"),
        ];
        if accept
            .iter()
            .all(|(key, value)| read_here(key).is_ok_and(|found| found.as_deref() == Some(*value)))
        {
            let has_route = routes
                .iter()
                .any(|route| route.from_router && route.link == Some(fact.index));
            let (at, is_port) = (LinkRef::host(name), fact.master.is_some());
            advertised.push(Advertised {
                at,
                kind: fact.kind,
                is_port,
                has_route,
            });
        }
    }
    Ok(advertised)
}
