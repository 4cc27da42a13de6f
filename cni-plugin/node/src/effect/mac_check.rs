//! Hardware address check of bridge ports: table `bridge braid`, two elements for each port.
//!
//! ```text
//! table bridge braid {
//!     set checked { type ifname; elements = { "veth1" comment "net 4f1c eth0" } }
//!     set allowed { type ifname . ether_addr; elements = { "veth1" . 0a:58:0a:01:00:05 comment … } }
//!     chain prerouting { type filter hook prerouting priority dstnat
//!         iifname @checked iifname . ether saddr != @allowed drop }
//! }
//! ```

use super::Effect;
use super::claim::{Claim, claim};
use crate::effect::tables::Table;
use crate::kernel::Kernel;
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, ETHER_ADDR, Family, HOOK_PREROUTING, IFNAME, Means};
use crate::sys::nft::expression::{LINK_HEADER, META_IIFNAME, REG_1, REG_2, Verdict};
use crate::sys::nft::read::{Element, element, elements};
use crate::sys::nft::{ElementKey, IFNAME_LEN, TABLE, del_all_in, first_that_fits, ifname, name};
use crate::{Cause, Context, Error};
use braid_core::name::{IfName, Mac};
use braid_core::plan::facts::Facts;
use braid_core::plan::thing::MacCheck;
use nix::errno::Errno;

const FAMILY: Family = Family::Bridge;
const CHECKED: &str = "checked";
const ALLOWED: &str = "allowed";
const BASE_CHAIN: &str = "prerouting";
/// Chains that are always created together.
pub(crate) const CHAINS: &[&str] = &[BASE_CHAIN];
/// `NF_BR_PRI_NAT_DST_BRIDGED`, the priority of the reference plugin's chain.
const PRIORITY: i32 = -300;
const ETHER_SOURCE: u32 = 6;

impl Effect for MacCheck {
    fn table(&self) -> Option<Table> {
        Some(Table::Bridge)
    }

    fn add(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        claim(kernel, self)
    }

    fn del(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(del_owned(kernel.nft()?, self)?)
    }
}

impl Claim for MacCheck {
    fn claim(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(add(kernel.nft()?, self)?)
    }

    fn claimant(&self) -> &str {
        &self.owner
    }

    fn holders(&self, kernel: &mut Kernel) -> Result<Vec<String>, Cause> {
        Ok(owner(kernel.nft()?, &self.port)?.into_iter().collect())
    }

    fn clear(&self, kernel: &mut Kernel) -> Result<(), Cause> {
        Ok(del(kernel.nft()?, &self.port)?)
    }
}

/// Restricts the port to the address; `EEXIST` if it is restricted already.
pub fn add(socket: &mut Socket, what: &MacCheck) -> Result<(), KernelError> {
    let transaction = |has_base: bool| {
        Batch::of(FAMILY, TABLE, |b| {
            if has_base {
                add_base(b);
            }
            for ElementKey { set, key } in keys(what) {
                b.add_element(set, &key, &Means::Nothing, &what.owner);
            }
        })
    };
    first_that_fits(socket, &[&|| transaction(false), &|| transaction(true)])
}

/// Returns the owner of the port's check; `None` if there is no check.
pub fn owner(socket: &mut Socket, port: &IfName) -> Result<Option<String>, KernelError> {
    Ok(element(socket, FAMILY, CHECKED, &name(port))?.map(|element| element.comment))
}

/// Deletes the port's check if it still belongs to this owner. If the check allows another address,
/// the set elements for this address do not exist. Then all elements of the port are deleted.
pub fn del_owned(socket: &mut Socket, what: &MacCheck) -> Result<(), KernelError> {
    if owner(socket, &what.port)?.is_none_or(|owner| owner != what.owner) {
        return Ok(());
    }
    let both = Batch::of(FAMILY, TABLE, |b| {
        for ElementKey { set, key } in keys(what) {
            b.del_element(set, &key);
        }
    });
    match both.send(socket) {
        Err(err) if err.errno == Errno::ENOENT => del(socket, &what.port),
        other => other,
    }
}

/// Deletes the port's check. A missing check is a success.
pub fn del(socket: &mut Socket, port: &IfName) -> Result<(), KernelError> {
    let mut held = Vec::new();
    for set in [CHECKED, ALLOWED] {
        for Element { key, .. } in elements(socket, FAMILY, set)? {
            if key.starts_with(&name(port)) {
                held.push(ElementKey { set, key });
            }
        }
    }
    del_all_in(socket, FAMILY, &held)
}

/// Lists the checked ports with their allowed addresses.
fn list(socket: &mut Socket) -> Result<Vec<(IfName, Mac)>, KernelError> {
    let mut checked = Vec::new();
    for Element { key, .. } in elements(socket, FAMILY, ALLOWED)? {
        checked.extend(parse_allowed(&key));
    }
    Ok(checked)
}

fn parse_allowed(key: &[u8]) -> Option<(IfName, Mac)> {
    let mac = key.get(IFNAME_LEN..)?.first_chunk()?;
    Some((ifname(key)?, Mac(*mac)))
}

/// Lists the checked ports with their owners.
pub fn owners(socket: &mut Socket) -> Result<Vec<(IfName, String)>, KernelError> {
    let mut owners = Vec::new();
    for Element { key, comment, .. } in elements(socket, FAMILY, CHECKED)? {
        if let Some(port) = ifname(&key) {
            owners.push((port, comment));
        }
    }
    Ok(owners)
}

#[cold]
pub(crate) fn read(kernel: &mut Kernel, facts: &mut Facts) -> Result<(), Error> {
    facts.mac_checks.extend(
        kernel
            .nft()
            .and_then(list)
            .doing("list checked bridge ports")?,
    );
    Ok(())
}

/// Returns the keys of the port's two elements.
fn keys(what: &MacCheck) -> [ElementKey; 2] {
    let port = name(&what.port);
    // Each part of a concatenation is padded to four bytes.
    let pair = [&port[..], &what.mac.0, &[0; 2]].concat();
    [
        ElementKey {
            set: CHECKED,
            key: port.to_vec(),
        },
        ElementKey {
            set: ALLOWED,
            key: pair,
        },
    ]
}

fn add_base(batch: &mut Batch) {
    batch.table();
    batch
        .set(CHECKED, &[IFNAME])
        .set(ALLOWED, &[IFNAME, ETHER_ADDR]);
    batch.base_chain(BASE_CHAIN, "filter", HOOK_PREROUTING, PRIORITY);
    batch.rule(BASE_CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1).lookup(CHECKED, REG_1, false);
        rule.meta(META_IIFNAME, REG_1)
            .payload(LINK_HEADER, ETHER_SOURCE, 6, REG_2)
            .lookup(ALLOWED, REG_1, true);
        rule.decide(Verdict::Drop);
    });
}
