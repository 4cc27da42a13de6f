//! nf_tables over netlink: transactions, rule expressions, and parsing of the kernel's replies.
//!
//! An attachment is one element of a map or a set, so the cost of adding, removing and matching
//! does not depend on the number of pods. Tables, chains and rules are created only once, when
//! adding the first element fails without them.

pub(crate) mod batch;
pub(crate) mod expression;
pub(crate) mod ip;
mod key;
pub(crate) mod read;

use super::netlink::{KernelError, Socket};
use batch::{Batch, Family};
pub(crate) use key::{IFNAME_LEN, TABLE, address, bytes, ifname, name};
use nix::errno::Errno;
use read::{Element, element, elements};

/// Sends the first batch. If a batch names an object that the kernel lacks, sends the next batch.
/// Each batch creates more objects than the one before.
///
/// Starts again with the first batch if another process has created the same objects meanwhile.
pub(crate) fn first_that_fits(
    socket: &mut Socket,
    batches: &[&dyn Fn() -> Batch],
) -> Result<(), KernelError> {
    const ROUNDS: usize = 8;
    let mut step = 0;
    let mut last = KernelError::from(Errno::ENOENT);
    for _ in 0..ROUNDS {
        let Some(make) = batches.get(step) else { break };
        match make().send(socket) {
            Err(err) if err.errno == Errno::ENOENT => {
                step += 1;
                last = err;
            }
            Err(err) if err.errno == Errno::EEXIST && step > 0 => {
                step = 0;
                last = err;
            }
            other => return other,
        }
    }
    Err(last)
}

/// Builds a transaction in table `inet braid`.
pub(crate) fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(Family::Inet, TABLE, fill)
}

/// Set and key of an element in table `inet braid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElementKey {
    pub(crate) set: &'static str,
    pub(crate) key: Vec<u8>,
}

/// Deletes elements of the table `inet braid` in one transaction. Missing elements are a success.
pub(crate) fn del_all(socket: &mut Socket, all: &[ElementKey]) -> Result<(), KernelError> {
    del_all_in(socket, Family::Inet, all)
}

/// Deletes elements of the table `braid` of this family in one transaction. Missing elements are a
/// success.
pub(crate) fn del_all_in(
    socket: &mut Socket,
    family: Family,
    all: &[ElementKey],
) -> Result<(), KernelError> {
    if all.is_empty() {
        return Ok(());
    }
    let del = Batch::of(family, TABLE, |b| {
        for ElementKey { set, key } in all {
            b.del_element(set, key);
        }
    });
    match del.send(socket) {
        // Another process deleted an element meanwhile, so the kernel deleted none. Deletes them
        // one by one.
        Err(err) if err.errno == Errno::ENOENT && all.len() > 1 => {
            for element in all.chunks(1) {
                del_all_in(socket, family, element)?;
            }
            Ok(())
        }
        other => gone_is_fine(other),
    }
}

/// Returns the element's owner, which is stored as its comment; `None` if the element does not
/// exist.
pub(crate) fn owner_of(
    socket: &mut Socket,
    key: &ElementKey,
) -> Result<Option<String>, KernelError> {
    Ok(element(socket, Family::Inet, key.set, &key.key)?.map(|element| element.comment))
}

/// Returns the elements of `all` that exist and have an owner that `is_wanted` accepts.
pub(crate) fn those(
    socket: &mut Socket,
    all: impl IntoIterator<Item = ElementKey>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<ElementKey>, KernelError> {
    let mut found = Vec::new();
    for key in all {
        if owner_of(socket, &key)?.is_some_and(|owner| is_wanted(&owner)) {
            found.push(key);
        }
    }
    Ok(found)
}

/// Deletes an owner's elements from these sets.
pub(crate) fn del_of(
    socket: &mut Socket,
    sets: &[&'static str],
    owner: &str,
) -> Result<(), KernelError> {
    let mut own = Vec::new();
    for set in sets {
        for Element { key, comment, .. } in elements(socket, Family::Inet, set)? {
            if comment == owner {
                own.push(ElementKey { set, key });
            }
        }
    }
    del_all(socket, &own)
}

/// Lists the owners of the elements in these sets, without duplicates.
pub(crate) fn owners_in(socket: &mut Socket, sets: &[&str]) -> Result<Vec<String>, KernelError> {
    let mut owners = Vec::new();
    for set in sets {
        for element in elements(socket, Family::Inet, set)? {
            owners.push(element.comment);
        }
    }
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// Treats deletion of a missing object as a success.
pub(crate) fn gone_is_fine(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}
