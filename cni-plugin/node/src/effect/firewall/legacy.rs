//! Tables of legacy iptables that drop forwarded packets. One rule in each table accepts packets
//! with braid's mark.

use crate::effect::programs;
use crate::sys::iptables;
use crate::{Cause, Context};
use braid_core::plan::thing::firewall::{LegacyTable, MARK};
use std::process::Command;

/// Lists the tables that would drop marked packets, each as a sentence.
pub(super) fn shut(tables: &[LegacyTable]) -> Result<Vec<String>, Cause> {
    let mut shut = Vec::new();
    for (table, _) in each_shut(tables)? {
        shut.push(format!("{table} FORWARD drops packets with braid's mark"));
    }
    Ok(shut)
}

/// Inserts the accept rule before the rule that drops, in each table that drops. Concurrent calls
/// could insert it twice, so the caller holds a lock.
pub(super) fn open(tables: &[LegacyTable]) -> Result<(), Cause> {
    for (table, place) in each_shut(tables)? {
        insert(table, place)?;
    }
    Ok(())
}

/// Finds the tables that drop marked packets. Returns each table with the number that the new rule
/// gets.
fn each_shut(tables: &[LegacyTable]) -> Result<Vec<(&LegacyTable, usize)>, Cause> {
    let mut shut = Vec::new();
    for table in tables {
        let forward = iptables::forward(table.is_ipv4, &table.name, MARK);
        let forward = forward
            .doing(format_args!("read {table}"))?
            .unwrap_or_default();
        if let Some(place) = forward.dropper
            && !forward.passes_mark
        {
            shut.push((table, place));
        }
    }
    Ok(shut)
}

fn insert(table: &LegacyTable, place: usize) -> Result<(), Cause> {
    let program = table.program();
    let no_program = || {
        Cause::Refused(format!(
            "{table} drops forwarded packets, and {program} is missing"
        ))
    };
    let path = programs::find(program).ok_or_else(no_program)?;
    let output = Command::new(&path)
        .args(table.insert(place).split(' ').skip(1))
        .output();
    let output = output.doing(format_args!("run {}", path.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Cause::Refused(format!(
        "{}: {}",
        table.insert(place),
        said.trim().replace('\n', "; ")
    )))
}
