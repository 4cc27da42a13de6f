//! nf_tables over netlink: transactions, expressions of rules, and what the kernel shows.
//!
//! An attachment is one element of a map or a set, so adding, removing and matching cost the same with one pod or a
//! thousand. Tables, chains and rules are made once, when the first element finds them missing.

pub(crate) mod batch;
pub(crate) mod expression;
pub(crate) mod ip;
pub(crate) mod read;

use super::netlink::{KernelError, Socket};
use batch::{Batch, Family};
use braid_core::name::IfName;
use nix::errno::Errno;
use read::{element, elements};
use std::net::IpAddr;

/// Name of both tables, `inet braid` and `bridge braid`.
pub(crate) const TABLE: &str = "braid";

/// Sends the first batch; where the kernel misses what it names, the next, larger one.
///
/// Another process may make the same things meanwhile, so a larger batch that finds them made starts over.
pub(crate) fn first_that_fits(socket: &mut Socket, batches: &[&dyn Fn() -> Batch]) -> Result<(), KernelError> {
    const ROUNDS: usize = 8;
    let mut at = 0;
    let mut last = KernelError::from(Errno::ENOENT);
    for _ in 0..ROUNDS {
        let Some(make) = batches.get(at) else { break };
        match make().send(socket) {
            Err(err) if err.errno == Errno::ENOENT => {
                at += 1;
                last = err;
            }
            Err(err) if err.errno == Errno::EEXIST && at > 0 => {
                at = 0;
                last = err;
            }
            other => return other,
        }
    }
    Err(last)
}

/// Length of a link's name in a key.
pub(crate) const IFNAME_LEN: usize = 16;

/// A link's name as the kernel compares it.
pub(crate) fn name(link: &IfName) -> [u8; IFNAME_LEN] {
    let mut bytes = [0; IFNAME_LEN];
    bytes[..link.as_str().len()].copy_from_slice(link.as_str().as_bytes());
    bytes
}

/// The link's name that a key begins with.
pub(crate) fn ifname(key: &[u8]) -> Option<IfName> {
    let name = std::str::from_utf8(key.get(..IFNAME_LEN)?).ok()?;
    IfName::parse(name.trim_end_matches('\0')).ok()
}

/// An address as the kernel has it in a packet.
pub(crate) fn bytes(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// A transaction in table `inet braid`.
pub(crate) fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(Family::Inet, TABLE, fill)
}

/// An address from the kernel's bytes.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().copied().map(IpAddr::from),
        _ => bytes.first_chunk::<16>().copied().map(IpAddr::from),
    }
}

/// Set and key of an element in table `inet braid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) set: &'static str,
    pub(crate) key: Vec<u8>,
}

/// Takes elements away in one transaction; success where they are not there.
pub(crate) fn del_all(socket: &mut Socket, all: &[Spot]) -> Result<(), KernelError> {
    del_all_in(socket, Family::Inet, all)
}

/// The same in the table of another family.
pub(crate) fn del_all_in(socket: &mut Socket, family: Family, all: &[Spot]) -> Result<(), KernelError> {
    if all.is_empty() {
        return Ok(());
    }
    let del = Batch::of(family, TABLE, |b| {
        for Spot { set, key } in all {
            b.del_element(set, key);
        }
    });
    match del.send(socket) {
        // Somebody took one away meanwhile, and the kernel none: one by one.
        Err(err) if err.errno == Errno::ENOENT && all.len() > 1 => {
            all.chunks(1).try_for_each(|one| del_all_in(socket, family, one))
        }
        other => gone_is_fine(other),
    }
}

/// Owner of the element; `None` where it is not there.
pub(crate) fn owner_of(socket: &mut Socket, spot: &Spot) -> Result<Option<String>, KernelError> {
    Ok(element(socket, Family::Inet, spot.set, &spot.key)?.map(|element| element.comment))
}

/// Those of the elements that are there and whose owner `is_wanted`.
pub(crate) fn those(
    socket: &mut Socket,
    all: impl IntoIterator<Item = Spot>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Spot>, KernelError> {
    let mut found = Vec::new();
    for spot in all {
        if owner_of(socket, &spot)?.is_some_and(|owner| is_wanted(&owner)) {
            found.push(spot);
        }
    }
    Ok(found)
}

/// Takes away all that an owner has in these sets.
pub(crate) fn del_of(socket: &mut Socket, sets: &[&'static str], owner: &str) -> Result<(), KernelError> {
    let mut own = Vec::new();
    for set in sets {
        let found = elements(socket, Family::Inet, set)?.into_iter().filter(|element| element.comment == owner);
        own.extend(found.map(|element| Spot { set, key: element.key }));
    }
    del_all(socket, &own)
}

/// Owners of the elements of these sets, each once.
pub(crate) fn owners_in(socket: &mut Socket, sets: &[&str]) -> Result<Vec<String>, KernelError> {
    let mut owners = Vec::new();
    for set in sets {
        owners.extend(elements(socket, Family::Inet, set)?.into_iter().map(|element| element.comment));
    }
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// Deleting what is not there is no failure.
pub(crate) fn gone_is_fine(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}
