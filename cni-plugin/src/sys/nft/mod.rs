//! nf_tables over netlink: masquerading, host ports, what is forwarded and the hardware address check, each as elements
//! of a few maps and sets.
//!
//! An attachment is one element, so adding, removing and matching cost the same with one pod or a thousand. Tables,
//! chains and rules are made once, when the first element finds them missing.

mod batch;
mod expression;
pub mod firewall;
pub mod gate;
pub mod hostport;
pub mod isolation;
pub mod mac_check;
pub mod masquerade;
pub mod packet_guard;
mod read;
pub mod reference;
pub mod state;

use super::netlink::{KernelError, Socket};
use batch::{Batch, Family};
use nix::errno::Errno;
use std::net::IpAddr;

pub use read::Element;

/// Sends the first batch; where the kernel misses what it names, the next, larger one.
///
/// Another process may make the same things meanwhile, so a larger batch that finds them made starts over.
fn first_that_fits(socket: &mut Socket, batches: &[&dyn Fn() -> Batch]) -> Result<(), KernelError> {
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

/// An address as the kernel has it in a packet.
fn bytes(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

/// Where an element is in table `inet braid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    set: &'static str,
    key: Vec<u8>,
}

/// Takes elements away in one transaction; success where they are not there.
pub fn del_all(socket: &mut Socket, all: &[Spot]) -> Result<(), KernelError> {
    if all.is_empty() {
        return Ok(());
    }
    let del = Batch::of(Family::Inet, masquerade::TABLE, |b| {
        for Spot { set, key } in all {
            b.del_element(set, key);
        }
    });
    match del.send(socket) {
        // Somebody took one away meanwhile, and the kernel none: one by one.
        Err(err) if err.errno == Errno::ENOENT && all.len() > 1 => {
            all.chunks(1).try_for_each(|one| del_all(socket, one))
        }
        other => gone_is_fine(other),
    }
}

/// Takes an element away; success where it is not there.
fn del_element(socket: &mut Socket, set: &'static str, key: &[u8]) -> Result<(), KernelError> {
    del_all(socket, &[Spot { set, key: key.to_vec() }])
}

/// Whose the elements of these sets are, each once.
fn owners_in(socket: &mut Socket, sets: &[&str]) -> Result<Vec<String>, KernelError> {
    let mut owners = Vec::new();
    for set in sets {
        let found = read::elements(socket, Family::Inet, masquerade::TABLE, set)?;
        owners.extend(found.into_iter().map(|element| element.comment));
    }
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// Deleting what is not there is no failure.
fn gone_is_fine(result: Result<(), KernelError>) -> Result<(), KernelError> {
    match result {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}
