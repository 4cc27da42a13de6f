//! Masquerading: table `inet braid`, one map element for each source address, one chain for each
//! pod network.
//!
//! ```text
//! table inet braid {
//!     map masquerade4 { type ipv4_addr : verdict
//!         elements = { 10.1.0.5 comment "net 4f1c eth0" : goto outside-10.1.0.0/16 } }
//!     map masquerade6 { type ipv6_addr : verdict }
//!     chain postrouting { type nat hook postrouting priority srcnat
//!         ip saddr vmap @masquerade4
//!         ip6 saddr vmap @masquerade6 }
//!     chain outside-10.1.0.0/16 {
//!         ip daddr 10.1.0.0/16 return
//!         ip daddr 224.0.0.0/4 return
//!         masquerade }
//! }
//! ```

use super::claim::{Claim, claim};
use super::{Effect, Transport};
use crate::effect::tables::Table;
use crate::kernel::Kernel;
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family, HOOK_POSTROUTING, Means};
use crate::sys::nft::expression::{REG_1, Verdict};
use crate::sys::nft::ip::Ip;
use crate::sys::nft::read::{Element, elements};
use crate::sys::nft::{
    ElementKey, address, batch, bytes, del_all, del_of, first_that_fits, owner_of, those,
};
use crate::{Cause, Context, Error};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::{Masquerade, Verb};
use ipnet::IpNet;
use std::net::IpAddr;

const MAPS: [&str; 2] = ["masquerade4", "masquerade6"];
const BASE_CHAIN: &str = "postrouting";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[BASE_CHAIN];
const PRIORITY_SRCNAT: i32 = 100;
const MULTICAST: [&str; 2] = ["224.0.0.0/4", "ff00::/8"];

impl Effect for Masquerade {
    fn table(&self) -> Option<Table> {
        Some(Table::Inet)
    }

    fn is_lost(&self, kernel: &mut Kernel) -> Result<bool, Cause> {
        Ok(!is_there(kernel.nft()?, self)?)
    }

    fn transport(&self, verb: Verb) -> Transport<'_> {
        verb.word(Transport::Alone, Transport::Elements)
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        claim(kernel, self)
    }

    fn elements(&self, kernel: &mut Kernel, all: &mut Vec<ElementKey>) -> Result<(), Cause> {
        all.extend(owned(kernel.nft()?, self)?);
        Ok(())
    }
}

impl Claim for Masquerade {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(add(kernel.nft()?, self)?)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause> {
        Ok(owner(kernel.nft()?, self.source)?.into_iter().collect())
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(del_source(kernel.nft()?, self.source)?)
    }
}

fn key(source: IpAddr) -> ElementKey {
    ElementKey {
        set: Ip::of(source).one(MAPS),
        key: bytes(source),
    }
}

/// Returns the name of a pod network's chain. `nft` accepts no colon in a name.
fn chain(network: &IpNet) -> String {
    format!("outside-{}", network.trunc()).replace(':', "_")
}

/// Masquerades packets from the source address. Returns `EEXIST` if the address has an element
/// already. That element is left from a terminated container, and may use the chain of another
/// network.
pub fn add(socket: &mut Socket, what: &Masquerade) -> Result<(), KernelError> {
    let transaction = |has_network: bool, has_base: bool| {
        batch(|b| {
            if has_base {
                add_base(b);
            }
            if has_network {
                add_network(b, &what.network);
            }
            let ElementKey { set, key } = key(what.source);
            b.add_element(set, &key, &Means::Goto(chain(&what.network)), &what.owner);
        })
    };
    first_that_fits(
        socket,
        &[
            &|| transaction(false, false),
            &|| transaction(true, false),
            &|| transaction(true, true),
        ],
    )
}

/// Returns the owner of the source's masquerading; `None` if the source is not masqueraded.
pub fn owner(socket: &mut Socket, source: IpAddr) -> Result<Option<String>, KernelError> {
    owner_of(socket, &key(source))
}

/// True if the source is masqueraded for this owner.
pub fn is_there(socket: &mut Socket, what: &Masquerade) -> Result<bool, KernelError> {
    Ok(!owned(socket, what)?.is_empty())
}

/// Returns the element of the source if it still belongs to this owner.
pub(crate) fn owned(
    socket: &mut Socket,
    what: &Masquerade,
) -> Result<Vec<ElementKey>, KernelError> {
    those(socket, [key(what.source)], |owner| owner == what.owner)
}

/// Ends masquerading of an owner's sources.
pub fn del_owner(socket: &mut Socket, owner: &str) -> Result<(), KernelError> {
    del_of(socket, &MAPS, owner)
}

/// Ends masquerading of a source, regardless of its owner.
pub fn del_source(socket: &mut Socket, source: IpAddr) -> Result<(), KernelError> {
    del_all(socket, &[key(source)])
}

/// Lists masqueraded sources with their owners.
pub fn list(socket: &mut Socket) -> Result<Vec<(IpAddr, String)>, KernelError> {
    let mut found = Vec::new();
    for map in MAPS {
        for Element { key, comment, .. } in elements(socket, Family::Inet, map)? {
            if let Some(source) = address(&key) {
                found.push((source, comment));
            }
        }
    }
    Ok(found)
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    facts.masquerades.extend(
        kernel
            .nft()
            .and_then(list)
            .doing("list masqueraded sources")?,
    );
    Ok(())
}

fn add_network(batch: &mut Batch, network: &IpNet) {
    let name = chain(network);
    let ip = Ip::of(network.addr());
    batch.chain(&name);
    for stays in [Some(network.trunc()), ip.one(MULTICAST).parse().ok()]
        .into_iter()
        .flatten()
    {
        batch.rule(&name, |rule| {
            rule.only(ip)
                .destination(ip, REG_1)
                .within(&stays)
                .decide(Verdict::Return);
        });
    }
    batch.rule(&name, |rule| {
        rule.masquerade();
    });
}

fn add_base(batch: &mut Batch) {
    batch.table();
    for ip in Ip::BOTH {
        batch.verdict_map(ip.one(MAPS), &[ip.addr()]);
    }
    batch.base_chain(BASE_CHAIN, "nat", HOOK_POSTROUTING, PRIORITY_SRCNAT);
    for ip in Ip::BOTH {
        batch.rule(BASE_CHAIN, |rule| {
            rule.only(ip)
                .source(ip, REG_1)
                .lookup_verdict(ip.one(MAPS), REG_1);
        });
    }
}
