//! nf_tables over netlink: transactions, expressions of rules, and what the kernel shows.
//!
//! An attachment is one element of a map or a set, so adding, removing and matching cost the same
//! with one pod or a thousand. Tables, chains and rules are made once, when the first element finds
//! them missing.

pub(crate) mod batch;
pub(crate) mod expression;
pub(crate) mod ip;
mod key;
pub(crate) mod read;

use super::netlink::{KernelError, Socket};
use batch::{Batch, Family};
pub(crate) use key::{IFNAME_LEN, TABLE, address, bytes, ifname, name};
use nix::errno::Errno;
use read::{element, elements};

/// Sends the first batch; where the kernel misses what it names, the next, larger one.
///
/// Another process may make the same things meanwhile, so a larger batch that finds them made
/// starts over.
pub(crate) fn first_that_fits(
    socket: &mut Socket,
    batches: &[&dyn Fn() -> Batch],
) -> Result<(), KernelError> {
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

/// A transaction in table `inet braid`.
pub(crate) fn batch(fill: impl FnOnce(&mut Batch)) -> Batch {
    Batch::of(Family::Inet, TABLE, fill)
}

/// Set and key of an element in table `inet braid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElementKey {
    pub(crate) set: &'static str,
    pub(crate) key: Vec<u8>,
}

/// Takes elements away in one transaction; success where they are not there.
pub(crate) fn del_all(socket: &mut Socket, all: &[ElementKey]) -> Result<(), KernelError> {
    del_all_in(socket, Family::Inet, all)
}

/// The same in the table of another family.
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
        // Somebody took one away meanwhile, and the kernel none: one by one.
        Err(err) if err.errno == Errno::ENOENT && all.len() > 1 => all
            .chunks(1)
            .try_for_each(|one| del_all_in(socket, family, one)),
        other => gone_is_fine(other),
    }
}

/// Owner of the element; `None` where it is not there.
pub(crate) fn owner_of(
    socket: &mut Socket,
    key: &ElementKey,
) -> Result<Option<String>, KernelError> {
    Ok(element(socket, Family::Inet, key.set, &key.key)?.map(|element| element.comment))
}

/// Those of the elements that are there and whose owner `is_wanted`.
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

/// Takes away all that an owner has in these sets.
pub(crate) fn del_of(
    socket: &mut Socket,
    sets: &[&'static str],
    owner: &str,
) -> Result<(), KernelError> {
    let mut own = Vec::new();
    for set in sets {
        let found = elements(socket, Family::Inet, set)?
            .into_iter()
            .filter(|element| element.comment == owner);
        own.extend(found.map(|element| ElementKey {
            set,
            key: element.key,
        }));
    }
    del_all(socket, &own)
}

/// Owners of the elements of these sets, each once.
pub(crate) fn owners_in(socket: &mut Socket, sets: &[&str]) -> Result<Vec<String>, KernelError> {
    let mut owners = Vec::new();
    for set in sets {
        owners.extend(
            elements(socket, Family::Inet, set)?
                .into_iter()
                .map(|element| element.comment),
        );
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
