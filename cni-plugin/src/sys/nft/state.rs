//! Whether somebody flushed what braid made.

use super::batch::{Batch, Family, SUBSYS};
use super::masquerade::TABLE;
use crate::sys::netlink::{KernelError, Socket, find};
use nix::errno::Errno;

const GETCHAIN: u16 = 4;
const GENMSG_LEN: usize = 4;

/// One of braid's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// `inet braid`.
    Inet,
    /// `bridge braid`.
    Bridge,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Each chain at a hook has rules.
    Whole,
    /// The table is there, and a chain at a hook has no rule: `nft flush table`.
    Flushed,
    /// No table: `nft flush ruleset`, or nobody has made it since the node's start.
    Missing,
}

impl Table {
    fn family(self) -> Family {
        match self {
            Self::Inet => Family::Inet,
            Self::Bridge => Family::Bridge,
        }
    }
}

/// Looks at the table.
pub fn look(socket: &mut Socket, table: Table) -> Result<State, KernelError> {
    let messages = socket.dump(SUBSYS | GETCHAIN, |out| out.extend([table.family() as u8, 0, 0, 0]))?;
    let name = [TABLE.as_bytes(), b"\0"].concat();
    let bodies = messages.iter().filter_map(|message| message.body.get(GENMSG_LEN..));
    let own: Vec<&[u8]> = bodies.filter(|body| find(1, body) == Some(name.as_slice())).collect();
    // With a hook, and used by no rule.
    let is_flushed = |body: &&[u8]| find(4, body).is_some() && find(6, body).is_some_and(|uses| uses == [0; 4]);
    if own.iter().any(is_flushed) {
        return Ok(State::Flushed);
    }
    Ok(if own.is_empty() { State::Missing } else { State::Whole })
}

/// Takes the table away with all that is in it; success where it is not there.
pub fn delete(socket: &mut Socket, table: Table) -> Result<(), KernelError> {
    let mut batch = Batch::new(table.family(), TABLE);
    batch.del_table();
    match batch.send(socket) {
        Err(err) if err.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}
