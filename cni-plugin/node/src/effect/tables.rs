//! State of braid's nf_tables tables: complete, or flushed by another program.
//!
//! ```text
//! table inet braid { chain whole { return } }
//! ```
//!
//! The chain `whole` marks a table that has all the rules and elements of the records. A call that
//! finds no table creates the rules that it needs, but not this chain. So the next call restores
//! the rest.

use super::firewall::{addrs, isolation};
use super::host_ports::nft;
pub use super::verbs::Table;
use super::{mac_check, masquerade};
use crate::sys::netlink::{KernelError, Socket, find};
use crate::sys::nft::batch::{Batch, Family, SUBSYS};
use crate::sys::nft::expression::Verdict;
use crate::sys::nft::read::{GENMSG_LEN, about, chains_with_rules};
use crate::sys::nft::{TABLE, gone_is_fine};
use nix::errno::Errno;

const GETTABLE: u16 = 1;
const NFTA_TABLE_HANDLE: u16 = 4;
const MARKER: &str = "whole";

/// State of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableState {
    /// Rules and elements are complete.
    Whole,
    /// The existing rules are right, but elements may be missing.
    Incomplete,
    /// Rules are missing.
    Broken,
    /// The table does not exist.
    Missing,
}

impl Table {
    fn family(self) -> Family {
        match self {
            Self::Inet => Family::Inet,
            Self::Bridge => Family::Bridge,
        }
    }

    /// Returns the groups of chains that are always created together. Each of these chains has
    /// rules.
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

/// Reads the state of a table.
pub fn look(socket: &mut Socket, table: Table) -> Result<TableState, KernelError> {
    let there = chains_with_rules(socket, table.family())?;
    let count = |group: &[&str]| group.iter().filter(|chain| there.contains(**chain)).count();
    if table
        .groups()
        .iter()
        .any(|group| ![0, group.len()].contains(&count(group)))
    {
        return Ok(TableState::Broken);
    }
    if there.contains(MARKER) {
        return Ok(TableState::Whole);
    }
    if table.groups().iter().any(|group| count(group) > 0) {
        return Ok(TableState::Incomplete);
    }
    // A flushed table without any rule may still have chains, which would conflict.
    Ok(if handle(socket, table)?.is_some() {
        TableState::Broken
    } else {
        TableState::Missing
    })
}

/// Returns the handle of a table, which is another one for each creation; `None` if the table does
/// not exist.
pub fn handle(socket: &mut Socket, table: Table) -> Result<Option<u64>, KernelError> {
    let found = socket.call(SUBSYS | GETTABLE, 0, |out| {
        about(out, table.family(), &[TABLE]);
    });
    let messages = match found {
        Err(err) if err.errno == Errno::ENOENT => return Ok(None),
        found => found?,
    };
    let mut handles = messages.iter().filter_map(|message| {
        let body = message.body.get(GENMSG_LEN..)?;
        let bytes = find(NFTA_TABLE_HANDLE, body)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    });
    handles
        .next()
        .map(Some)
        .ok_or_else(|| Errno::EBADMSG.into())
}

/// Deletes the table with all its contents. A missing table is a success.
pub fn delete(socket: &mut Socket, table: Table) -> Result<(), KernelError> {
    let mut batch = Batch::new(table.family(), TABLE);
    batch.del_table();
    gone_is_fine(batch.send(socket))
}

/// Marks the table as complete, and creates it if it is missing. Without the marker, each call
/// would look through all records.
pub fn note_whole(socket: &mut Socket, table: Table) -> Result<(), KernelError> {
    let mut batch = Batch::new(table.family(), TABLE);
    batch.table().empty_chain(MARKER).rule(MARKER, |rule| {
        rule.decide(Verdict::Return);
    });
    batch.send(socket)
}
