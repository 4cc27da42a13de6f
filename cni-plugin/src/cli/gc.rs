//! `braid gc`: takes back every attachment whose network namespace is gone, with its addresses.

use super::{FAILURE, SUCCESS};
use super::{Outcome, output};
use crate::apply::record::{self, Record};
use crate::attach::gc::{collect, is_alive};
use clap::Args;

/// Take back attachments whose network namespace is gone
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only say what would be taken back
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let dead: Vec<Record> = record::list()?.into_iter().filter(|record| !is_alive(record)).collect();
    let outcome = |record: &Record| {
        if arguments.dry_run { Ok("would be taken back") } else { collect(record).map(|()| "taken back") }
    };
    let all_done = take_back(&dead, outcome);
    if dead.is_empty() {
        output::print("nothing to take back\n");
    }
    if !arguments.dry_run {
        record::sweep_empty()?;
    }
    Ok(all_done)
}

/// Goes through all of them whatever fails, and shows what became of each.
pub(super) fn take_back(
    records: &[Record],
    mut work: impl FnMut(&Record) -> Result<&'static str, crate::cni::Error>,
) -> u8 {
    let mut code = SUCCESS;
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let done = work(record).map_or_else(
                |err| {
                    code = FAILURE;
                    format!("failed: {err}")
                },
                str::to_owned,
            );
            let key = &record.key;
            vec![key.network.clone(), key.plugin.clone(), key.container_id.clone(), key.ifname.clone(), done]
        })
        .collect();
    if !rows.is_empty() {
        output::print(&output::table(&["network", "type", "container", "ifname", "attachment"], rows));
    }
    code
}
