//! State of braid's tables in nf_tables: all is there, or somebody flushed it.
//!
//! ```text
//! table inet braid { chain whole { return } }
//! ```
//!
//! That chain says that what records know of is there. A call that finds the table gone makes what
//! it needs itself, but not the chain, so that the next call looks for the rest.

use super::firewall::{addrs, isolation};
use super::host_ports::nft;
pub use super::verbs::Table;
use super::{mac_check, masquerade};
use crate::sys::netlink::{KernelError, Socket};
use crate::sys::nft::batch::{Batch, Family, SUBSYS};
use crate::sys::nft::expression::Verdict;
use crate::sys::nft::read::{about, chains_with_rules};
use crate::sys::nft::{TABLE, gone_is_fine};
use nix::errno::Errno;

const GETTABLE: u16 = 1;
const MARKER: &str = "whole";

/// State of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All is there.
    Whole,
    /// The rules that are there are right, but elements may be missing.
    Incomplete,
    /// Rules are missing.
    Broken,
    /// No table.
    Missing,
}

impl Table {
    fn family(self) -> Family {
        match self {
            Self::Inet => Family::Inet,
            Self::Bridge => Family::Bridge,
        }
    }

    /// The chains that belong together, of which none is without rules.
    fn groups(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Inet => &[
                masquerade::CHAINS,
                nft::CHAINS,
                nft::CONDITIONAL_CHAINS,
                addrs::CHAINS,
                isolation::CHAINS,
            ],
            Self::Bridge => &[mac_check::CHAINS],
        }
    }
}

/// Looks at the table.
pub fn look(socket: &mut Socket, table: Table) -> Result<State, KernelError> {
    let there = chains_with_rules(socket, table.family())?;
    let count = |group: &[&str]| group.iter().filter(|chain| there.contains(**chain)).count();
    if table
        .groups()
        .iter()
        .any(|group| ![0, group.len()].contains(&count(group)))
    {
        return Ok(State::Broken);
    }
    if there.contains(MARKER) {
        return Ok(State::Whole);
    }
    if table.groups().iter().any(|group| count(group) > 0) {
        return Ok(State::Incomplete);
    }
    // Without any rule, chains of a flushed table may still be in the way.
    Ok(if is_there(socket, table)? {
        State::Broken
    } else {
        State::Missing
    })
}

fn is_there(socket: &mut Socket, table: Table) -> Result<bool, KernelError> {
    match socket.call(SUBSYS | GETTABLE, 0, |out| {
        about(out, table.family(), &[TABLE]);
    }) {
        Err(err) if err.errno == Errno::ENOENT => Ok(false),
        other => other.map(|_| true),
    }
}

/// Takes the table away with all that is in it; success where it is not there.
pub fn delete(socket: &mut Socket, table: Table) -> Result<(), KernelError> {
    let mut batch = Batch::new(table.family(), TABLE);
    batch.del_table();
    gone_is_fine(batch.send(socket))
}

/// Notes that all is there, in a table of its own if nobody needed one yet: or each call would look
/// through all records.
pub fn note_whole(socket: &mut Socket, table: Table) -> Result<(), KernelError> {
    let mut batch = Batch::new(table.family(), TABLE);
    batch.table().empty_chain(MARKER).rule(MARKER, |rule| {
        rule.decide(Verdict::Return);
    });
    batch.send(socket)
}
