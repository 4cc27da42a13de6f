//! The hardware address check of bridge ports: table `bridge braid`, two elements for each port.
//!
//! ```text
//! table bridge braid {
//!     set checked { type ifname; elements = { "veth1" comment "net 4f1c eth0" } }
//!     set allowed { type ifname . ether_addr; elements = { "veth1" . 0a:58:0a:01:00:05 comment … } }
//!     chain prerouting { type filter hook prerouting priority dstnat
//!         iifname @checked iifname . ether saddr != @allowed drop }
//! }
//! ```

use super::batch::{Batch, Family, Key, Means};
use super::expression::{REG_1, REG_2, Verdict};
use super::first_that_fits;
use super::read::{Element, element, elements};
use crate::plan::thing::MacCheck;
use crate::plan::{IfName, Mac};
use crate::sys::netlink::{KernelError, Socket};
use nix::errno::Errno;

/// The table's name.
pub const TABLE: &str = "braid";
const FAMILY: Family = Family::Bridge;
const CHECKED: &str = "checked";
const ALLOWED: &str = "allowed";
const BASE_CHAIN: &str = "prerouting";
/// All that belong together.
pub(super) const CHAINS: &[&str] = &[BASE_CHAIN];
const HOOK_PREROUTING: u32 = 0;
/// `NF_BR_PRI_NAT_DST_BRIDGED`, where the reference plugin's chain is too.
const PRIORITY: i32 = -300;
pub(super) const META_IIFNAME: u32 = 6;
const LINK_HEADER: u32 = 0;
const ETHER_SOURCE: u32 = 6;
pub(super) const TYPE_IFNAME: u32 = 41;
const TYPE_ETHER_ADDR: u32 = 9;
pub(super) const IFNAME_LEN: usize = 16;

/// Holds the port to the address; `EEXIST` where it is held to one.
pub fn add(socket: &mut Socket, what: &MacCheck) -> Result<(), KernelError> {
    first_that_fits(
        socket,
        &[&|| batch(|b| add_elements(b, what)), &|| {
            batch(|b| {
                add_base(b);
                add_elements(b, what);
            })
        }],
    )
}

/// Who has the port held; none where nobody has.
pub fn owner(socket: &mut Socket, port: &IfName) -> Result<Option<String>, KernelError> {
    Ok(element(socket, FAMILY, TABLE, CHECKED, &name(port))?.map(|element| element.comment))
}

/// Lets go of the port that is held to this address and still this owner's; whatever else it is held to is searched for.
pub fn del_owned(socket: &mut Socket, what: &MacCheck) -> Result<(), KernelError> {
    if owner(socket, &what.port)?.is_none_or(|owner| owner != what.owner) {
        return Ok(());
    }
    let both = batch(|b| {
        b.del_element(CHECKED, &name(&what.port));
        b.del_element(ALLOWED, &pair(what));
    });
    match both.send(socket) {
        Err(err) if err.errno == Errno::ENOENT => del(socket, &what.port),
        other => other,
    }
}

/// Lets go of the port; success when it was not held.
pub fn del(socket: &mut Socket, port: &IfName) -> Result<(), KernelError> {
    let checked = name(port);
    let mine = |element: &Element| element.key.starts_with(&checked);
    let allowed = elements(socket, FAMILY, TABLE, ALLOWED)?;
    let is_checked = elements(socket, FAMILY, TABLE, CHECKED)?.iter().any(mine);
    let keys: Vec<&Element> = allowed.iter().filter(|element| mine(element)).collect();
    if keys.is_empty() && !is_checked {
        return Ok(());
    }
    let batch = batch(|b| {
        if is_checked {
            b.del_element(CHECKED, &checked);
        }
        for element in keys {
            b.del_element(ALLOWED, &element.key);
        }
    });
    match batch.send(socket) {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}

/// All ports that are held, and to which address.
pub fn list(socket: &mut Socket) -> Result<Vec<(IfName, Mac)>, KernelError> {
    let parse = |element: Element| {
        let (port, mac) = element.key.split_at_checked(IFNAME_LEN)?;
        let port = std::str::from_utf8(port).ok()?.trim_end_matches('\0');
        Some((IfName::parse(port).ok()?, Mac(*mac.first_chunk()?)))
    };
    Ok(elements(socket, FAMILY, TABLE, ALLOWED)?.into_iter().filter_map(parse).collect())
}

/// All ports that are held and whose they are.
pub fn owners(socket: &mut Socket) -> Result<Vec<(IfName, String)>, KernelError> {
    let parse = |element: Element| {
        let port = std::str::from_utf8(&element.key).ok()?.trim_end_matches('\0');
        Some((IfName::parse(port).ok()?, element.comment))
    };
    Ok(elements(socket, FAMILY, TABLE, CHECKED)?.into_iter().filter_map(parse).collect())
}

fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(FAMILY, TABLE, fill)
}

pub(super) fn name(port: &IfName) -> [u8; IFNAME_LEN] {
    let mut bytes = [0; IFNAME_LEN];
    for (to, from) in bytes.iter_mut().zip(port.as_str().bytes()) {
        *to = from;
    }
    bytes
}

fn add_elements(batch: &mut Batch, what: &MacCheck) {
    let owner = &what.owner;
    batch.add_element(CHECKED, &name(&what.port), Means::Nothing, owner);
    batch.add_element(ALLOWED, &pair(what), Means::Nothing, owner);
}

fn pair(what: &MacCheck) -> Vec<u8> {
    let mut pair = name(&what.port).to_vec();
    pair.extend(what.mac.0);
    // Each part of a concatenation is padded to four bytes.
    pair.extend([0; 2]);
    pair
}

fn add_base(batch: &mut Batch) {
    batch.table();
    batch.set(CHECKED, Key { kind: TYPE_IFNAME, len: 16, host_order: true });
    batch.set(ALLOWED, Key { kind: TYPE_IFNAME << 6 | TYPE_ETHER_ADDR, len: 24, host_order: false });
    batch.base_chain(BASE_CHAIN, "filter", HOOK_PREROUTING, PRIORITY);
    batch.rule(BASE_CHAIN, |rule| {
        rule.meta(META_IIFNAME, REG_1).lookup(CHECKED, REG_1, false);
        rule.meta(META_IIFNAME, REG_1).payload(LINK_HEADER, ETHER_SOURCE, 6, REG_2).lookup(ALLOWED, REG_1, true);
        rule.decide(Verdict::Drop);
    });
}
