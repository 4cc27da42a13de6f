//! Host ports: ports of the host that are redirected to containers.
//!
//! nf_tables decides who owns a port, since an element has only one owner. Two attachments of a
//! container may request the same port. When the attachment that owns the port is deleted, the
//! other attachment gets the port in the same transaction.

pub mod ebpf;
mod fact;
pub mod loopback;
pub mod nft;

use super::{Effect, Transport};
use crate::effect::tables::Table;
use crate::kernel::Kernel;
use crate::store::holder::{self, Sibling};
use crate::store::lock::Lock;
use crate::store::record;
use crate::sys::conntrack;
use crate::sys::nft::ElementKey;
use crate::{Cause, Context, Error};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::host_ports::{
    EbpfCounts, Holder, HostEndpoint, HostPort, HostPortFact, Protocol,
};
use braid_core::plan::thing::{HostPorts, Verb};
use fact::fact;
use nft::NftPort;
use nix::errno::Errno;
use std::borrow::Cow;
use std::collections::BTreeSet;

impl Effect for HostPorts {
    fn table(&self) -> Option<Table> {
        Some(Table::Inet)
    }

    fn is_lost(&self, kernel: &mut Kernel) -> Result<bool, Cause> {
        Ok(!nft::are_there(kernel.nft()?, self)?)
    }

    fn transport(&self, verb: Verb) -> Transport<'_> {
        verb.word(Transport::Alone, Transport::Elements)
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        add(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        give_up(kernel, self, all)
    }

    fn is_several(&self) -> bool {
        true
    }
}

/// Redirects the ports to the container, including UDP flows that exist already.
pub(super) fn add(kernel: &mut Kernel, all: &HostPorts) -> Result<(), Cause> {
    // eBPF is first. Otherwise a flow could begin in nf_tables and then get another conntrack entry
    // in eBPF.
    if let Some(way) = all.way() {
        let has_siblings = !holder::siblings(&all.container_id, &all.owner)?.is_empty();
        let own = if has_siblings {
            Cow::Owned(with(all, wanted(kernel, all, None)?))
        } else {
            Cow::Borrowed(all)
        };
        ebpf::add(kernel, &own, way, None)?;
    }
    let (own, kept) = match nft::add(kernel.nft()?, all) {
        Err(err) if err.errno == Errno::EEXIST => {
            let kept = kept(kernel, all)?;
            (Cow::Owned(settle(kernel, all, None)?), kept)
        }
        added => {
            added?;
            (Cow::Borrowed(all), Vec::new())
        }
    };
    // The loopback port follows nf_tables, which decides who owns a port.
    loopback::add(&own)?;
    let is_new = |port: &&HostPort| !kept.contains(port);
    forget_flows(kernel, own.ports.iter().filter(is_new))
}

/// Returns the ports that are redirected to their targets already. Their flows go on.
fn kept(kernel: &mut Kernel, all: &HostPorts) -> Result<Vec<HostPort>, Cause> {
    let mut kept = Vec::new();
    for port in &all.ports {
        let found = nft::find(kernel.nft()?, &port.at)?;
        kept.extend(
            found
                .is_some_and(|found| found.owner == all.owner && found.to == Some(port.to))
                .then_some(*port),
        );
    }
    Ok(kept)
}

fn forget_flows<'p>(
    kernel: &mut Kernel,
    ports: impl Iterator<Item = &'p HostPort>,
) -> Result<(), Cause> {
    let mut udp = Vec::new();
    for HostPort { at, .. } in ports {
        if at.protocol == Protocol::Udp {
            udp.push((at.addr, at.port));
        }
    }
    Ok(conntrack::forget_udp(kernel.nft()?, udp)?)
}

/// Hands ports over to other attachments of the container, and deletes the remaining ports in eBPF.
/// Adds to `elements` the nf_tables elements that still belong to this owner. The caller deletes
/// them.
pub(super) fn give_up(
    kernel: &mut Kernel,
    all: &HostPorts,
    elements: &mut Vec<ElementKey>,
) -> Result<(), Cause> {
    hand_over(kernel, &all.container_id, &all.owner, Some(&all.ports))?;
    let by_ebpf = if all.way().is_some() {
        ebpf::del(kernel, all)
    } else {
        Ok(())
    };
    let at_loopback = loopback::del(all);
    elements.extend(nft::owned(kernel.nft()?, all)?);
    by_ebpf?;
    Ok(at_loopback?)
}

/// Deletes all ports of an owner.
pub(super) fn del_owner(kernel: &mut Kernel, owner: &str) -> Result<(), Cause> {
    let handed_over = match record::container_of(owner) {
        Some(container_id) => hand_over(kernel, &container_id, owner, None),
        None => Ok(()),
    };
    let by_ebpf = ebpf::del_owner(kernel, owner);
    let at_loopback = loopback::del_owner(owner);
    nft::del_owner(kernel.nft()?, owner)?;
    by_ebpf?;
    at_loopback?;
    handed_over
}

/// Counts the ports that eBPF redirects.
fn count_ebpf() -> Result<EbpfCounts, Errno> {
    Ok(EbpfCounts {
        ports: ebpf::owners()?.len(),
        at_loopback: loopback::owners()?.len(),
    })
}

/// Lists the owners of all ports.
pub fn owners(kernel: &mut Kernel) -> Result<Vec<String>, Cause> {
    let mut owners = nft::owners(kernel.nft()?)?;
    owners.extend(ebpf::owners()?);
    owners.extend(loopback::owners()?);
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// Hands ports of the owner `leaving` over to other attachments of the container that request them:
/// the ports in `only`, or else all.
fn hand_over(
    kernel: &mut Kernel,
    container_id: &str,
    leaving: &str,
    only: Option<&[HostPort]>,
) -> Result<(), Cause> {
    for Sibling {
        ports: mut all,
        is_apart,
    } in holder::siblings(container_id, leaving)?
    {
        if let Some(only) = only {
            all.ports
                .retain(|port| only.iter().any(|one| one.at == port.at));
        }
        let own = settle(kernel, &all, Some(leaving))?;
        if own.ports.is_empty() {
            continue;
        }
        if let Some(way) = own.way() {
            match ebpf::add(kernel, &own, way, Some(leaving)) {
                // The other attachment is about to be deleted as well, and its links no longer
                // exist.
                Err(err) if err.is(&[Errno::ENODEV]) => {}
                other => other?,
            }
            if is_apart {
                ebpf::keep_apart(&own.owner)?;
            }
        }
        loopback::add(&own)?;
        forget_flows(kernel, own.ports.iter())?;
    }
    Ok(())
}

/// Redirects the requested ports to this attachment, except ports of another attachment of this
/// container. Takes over ports of terminated containers. Fails if any other container owns a port.
/// With `leaving`, redirects only free ports and ports of the owner `leaving`. Returns the
/// redirected ports.
///
/// An ADD detects another owner of a port only by an existing element. If two calls deleted
/// elements at the same time, one could delete the other's new element. So calls that delete
/// elements hold a lock against each other.
fn settle(kernel: &mut Kernel, all: &HostPorts, leaving: Option<&str>) -> Result<HostPorts, Cause> {
    const ROUNDS: usize = 8;
    let dead = dead(kernel, all)?;
    let _quiet = holder::quiet(&all.owner, dead.iter().map(String::as_str))?;
    let _held = Lock::Rules.hold()?;
    for _ in 0..ROUNDS {
        kernel.forget_holders();
        let own = with(all, wanted(kernel, all, leaving)?);
        if own.ports.is_empty() && leaving.is_some() {
            return Ok(own);
        }
        let socket = kernel.nft()?;
        let gone = nft::there(socket, &own)?;
        match nft::add_in_place_of(socket, &gone, &own) {
            // Another call was faster. The next round finds the new owner.
            Err(err) if [Errno::EEXIST, Errno::ENOENT].contains(&err.errno) => {}
            added => {
                added?;
                // eBPF sees packets before nf_tables, so it would still redirect to the terminated
                // container.
                for owner in &dead {
                    ebpf::del_owner(kernel, owner)?;
                    loopback::del_owner(owner)?;
                }
                return Ok(own);
            }
        }
    }
    Err(Errno::EEXIST.into())
}

fn with(all: &HostPorts, ports: Vec<HostPort>) -> HostPorts {
    HostPorts {
        ports,
        ..all.clone()
    }
}

/// Lists the owners of requested ports that belong to terminated containers.
fn dead(kernel: &mut Kernel, all: &HostPorts) -> Result<BTreeSet<String>, Cause> {
    let mut dead = BTreeSet::new();
    for HostPort { at, .. } in &all.ports {
        if let Some(fact) = observe(kernel, at)?
            && fact.holder == Holder::Nobody
        {
            dead.insert(fact.owner);
        }
    }
    Ok(dead)
}

/// Lists the ports that [`settle`] redirects to this attachment.
fn wanted(
    kernel: &mut Kernel,
    all: &HostPorts,
    leaving: Option<&str>,
) -> Result<Vec<HostPort>, Cause> {
    let mut wanted = Vec::new();
    for port in &all.ports {
        let is_wanted = match (observe(kernel, &port.at)?, leaving) {
            (None, _) => true,
            (Some(fact), Some(leaving)) => fact.is_of(leaving),
            (Some(fact), None) => match fact.refusal(&port.at, &all.container_id, &all.owner) {
                Some(refusal) => return Err(Cause::Refused(refusal)),
                None => !fact.is_siblings(&all.container_id, &all.owner),
            },
        };
        wanted.extend(is_wanted.then_some(*port));
    }
    Ok(wanted)
}

/// Returns owner and target of a host port; `None` if the port is free.
fn observe(kernel: &mut Kernel, at: &HostEndpoint) -> Result<Option<HostPortFact>, Cause> {
    let Some(NftPort { to, owner }) = nft::find(kernel.nft()?, at)? else {
        return Ok(None);
    };
    Ok(Some(fact(kernel, to, owner)))
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, at: &HostEndpoint, facts: &mut Facts) -> Result<(), Error> {
    let found = observe(kernel, at).doing(format_args!("look up host port {at}"))?;
    if let Some(fact) = found {
        facts.host_ports.insert(*at, fact);
    }
    Ok(())
}

#[cold]
pub(crate) fn read_ebpf_counts(facts: &mut Facts) -> Result<(), Error> {
    facts.ebpf_counts = count_ebpf().doing("count the host ports in eBPF")?;
    Ok(())
}
