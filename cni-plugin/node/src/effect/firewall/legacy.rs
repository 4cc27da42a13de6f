//! Tables of legacy iptables that drop forwarded packets: one rule in each accepts packets that
//! braid marks.

use crate::sys::iptables;
use crate::{Cause, Context};
use braid_core::plan::thing::firewall::{LegacyTable, MARK};
use std::path::PathBuf;
use std::process::Command;

/// Folders to search for the programs, since a plugin's environment may have no `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Lists the tables that would drop marked packets, each as a sentence.
pub(super) fn shut(tables: &[LegacyTable]) -> Result<Vec<String>, Cause> {
    let shut = each_shut(tables)?.into_iter();
    Ok(shut
        .map(|(table, _)| format!("{table} FORWARD drops packets with braid's mark"))
        .collect())
}

/// Inserts the rule before the one that drops. Concurrent calls could insert it twice, so the
/// caller holds a lock.
pub(super) fn open(tables: &[LegacyTable]) -> Result<(), Cause> {
    each_shut(tables)?
        .into_iter()
        .try_for_each(|(table, place)| insert(table, place))
}

/// Finds the tables that drop, with the number for the new rule.
fn each_shut(tables: &[LegacyTable]) -> Result<Vec<(&LegacyTable, usize)>, Cause> {
    let mut shut = Vec::new();
    for table in tables {
        let forward = iptables::forward(table.is_ipv4, &table.name, MARK);
        let forward = forward
            .doing(format_args!("read {table}"))?
            .unwrap_or_default();
        shut.extend(
            forward
                .dropper
                .filter(|_| !forward.passes_mark)
                .map(|place| (table, place)),
        );
    }
    Ok(shut)
}

fn insert(table: &LegacyTable, place: usize) -> Result<(), Cause> {
    let program = table.program();
    let path = FOLDERS
        .iter()
        .map(|folder| PathBuf::from(folder).join(program))
        .find(|path| path.exists());
    let no_program = || {
        Cause::Refused(format!(
            "{table} drops forwarded packets, and {program} is missing"
        ))
    };
    let path = path.ok_or_else(no_program)?;
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
