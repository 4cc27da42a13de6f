//! Restoring flushed rules. Nodes reload their own rules with `nft flush ruleset`, which also
//! deletes braid's rules.

use crate::effect;
use crate::effect::firewall::forward_accept;
use crate::effect::tables::{self, Table, TableState};
use crate::kernel::Kernel;
use crate::store::lock::Lock;
use crate::store::record::{self, Record};
use crate::{Cause, Context, Error};
use braid_core::plan::thing::Thing;
use braid_core::plan::thing::firewall::Gate;
use braid_core::plan::{Feature, Step};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Tables of braid, each with the features that need it.
const NEEDS: [(Table, &[Feature]); 2] = [
    (Table::Inet, &[Feature::NfTables, Feature::Masquerade]),
    (Table::Bridge, &[Feature::MacCheck]),
];

/// Restores the recorded nf_tables objects of all live attachments, if a table that `features` need
/// was deleted or lacks objects. Returns the errors. Skips containers that another call is
/// processing; a later call restores their objects.
pub fn rules(
    kernel: &mut Kernel,
    features: &[Feature],
    is_alive: impl Fn(&Record) -> bool,
) -> Vec<Error> {
    // Without nf_tables in the kernel, the step that needs it will fail.
    match lost(kernel, features) {
        Ok(lost) if !lost.is_empty() => rebuild(kernel, features, is_alive),
        _ => Vec::new(),
    }
}

/// True if a table that `features` need was deleted or lacks objects.
pub fn has_lost_rules(kernel: &mut Kernel, features: &[Feature]) -> bool {
    lost(kernel, features).is_ok_and(|lost| !lost.is_empty())
}

/// Returns the handles of all tables that exist. A table that is created again has another one.
pub fn handles(kernel: &mut Kernel) -> Result<BTreeSet<u64>, Cause> {
    let mut handles = BTreeSet::new();
    for (table, _) in NEEDS {
        handles.extend(tables::handle(kernel.nft()?, table)?);
    }
    Ok(handles)
}

#[cold]
fn rebuild(
    kernel: &mut Kernel,
    features: &[Feature],
    is_alive: impl Fn(&Record) -> bool,
) -> Vec<Error> {
    let mut errors = Vec::new();
    let rebuilt = rebuild_locked(kernel, features, is_alive, &mut errors);
    errors.extend(rebuilt.err());
    errors
}

/// Restores the lost tables. Adds the errors of single objects to `errors`.
fn rebuild_locked(
    kernel: &mut Kernel,
    features: &[Feature],
    is_alive: impl Fn(&Record) -> bool,
    errors: &mut Vec<Error>,
) -> Result<(), Error> {
    const DOING: &str = "restore flushed rules";
    let _held = Lock::Repair.hold()?;
    // Another call may have been faster.
    let lost = lost(kernel, features).doing(DOING)?;
    for (table, state) in &lost {
        if *state == TableState::Broken {
            let socket = kernel.nft().doing(DOING)?;
            tables::delete(socket, *table).doing(DOING)?;
        }
    }
    let all_seen = record::each_idle(|record| {
        if is_alive(record) {
            errors.extend(put_back(kernel, record, &lost));
        }
    })?;
    if all_seen && errors.is_empty() {
        for (table, _) in &lost {
            let socket = kernel.nft().doing(DOING)?;
            tables::note_whole(socket, *table).doing(DOING)?;
        }
    }
    Ok(())
}

fn lost(kernel: &mut Kernel, features: &[Feature]) -> Result<Vec<(Table, TableState)>, Cause> {
    let mut lost = Vec::new();
    for (table, needed_by) in NEEDS {
        if features.iter().any(|feature| needed_by.contains(feature)) {
            let state = tables::look(kernel.nft()?, table)?;
            if state != TableState::Whole {
                lost.push((table, state));
            }
        }
    }
    Ok(lost)
}

fn put_back(kernel: &mut Kernel, record: &Record, lost: &[(Table, TableState)]) -> Vec<Error> {
    let mut errors = Vec::new();
    for step in record.steps() {
        let Step::Add(thing) = step else { continue };
        if let Err(cause) = add_if_gone(kernel, thing, lost) {
            errors.push(Error::new("restore", Error::of_steps([step], cause)));
        }
    }
    errors
}

/// Creates the thing again if it was deleted with its table. `lost` lists the tables that were
/// deleted or lack objects.
fn add_if_gone(
    kernel: &mut Kernel,
    thing: &Thing,
    lost: &[(Table, TableState)],
) -> Result<(), Cause> {
    let effect = effect::of(thing);
    let Some(table) = effect.table() else {
        return Ok(());
    };
    let is_lost = lost.iter().any(|(lost, _)| *lost == table);
    if is_lost && effect.is_lost(kernel)? {
        effect.add(kernel)?;
    }
    Ok(())
}

/// Restores the rules that accept forwarded packets of all attachments. Another program may have
/// deleted them, for example when it reloaded its own firewall. Returns the errors.
pub fn gates(kernel: &mut Kernel, features: &[Feature]) -> Vec<Error> {
    if !features.contains(&Feature::Forwarding) {
        return Vec::new();
    }
    let mut gates: BTreeSet<(String, bool)> = BTreeSet::new();
    let mut note = |record: &Record| {
        for step in record.steps() {
            let Step::Add(Thing::Firewall(what)) = step else {
                continue;
            };
            if let Gate::Chains { admin } = &what.gate {
                for addr in &what.addrs {
                    gates.insert((admin.clone(), addr.is_ipv4()));
                }
            }
        }
    };
    let mut errors = Vec::new();
    errors.extend(record::each_idle(&mut note).err());
    for (admin, is_v4) in gates {
        // Any address of the family will do.
        let addr: IpAddr = if is_v4 { [0; 4].into() } else { [0; 16].into() };
        let opened = open(kernel, addr, &admin).doing("accept forwarded packets");
        errors.extend(opened.err());
    }
    errors
}

fn open(kernel: &mut Kernel, addr: IpAddr, admin: &str) -> Result<(), Cause> {
    let socket = kernel.nft()?;
    if forward_accept::shut(socket, &[addr], admin)?.is_empty() {
        return Ok(());
    }
    let _held = Lock::Rules.hold()?;
    forward_accept::open(socket, &[addr], admin)
}
