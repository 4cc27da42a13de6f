//! Listing of ordinary and foreign records, and deletion of kernel objects without a record.

use crate::apply::executor::OnError;
use crate::apply::host::{Host, Machine};
use crate::store::record::{Record, foreign};
use braid_core::cni::Error;
use braid_core::plan::Facts;

/// Returns all readable records. A foreign record is included only if its call has no readable
/// ordinary record.
pub fn records(machine: &dyn Machine) -> Result<Vec<Record>, Error> {
    let mut records = machine.records().map_err(Error::from)?;
    let mut foreign = foreign::all(machine.root()).map_err(Error::from)?;
    foreign.retain(|second| records.iter().all(|record| record.key != second.key));
    records.append(&mut foreign);
    Ok(records)
}

/// Deletes empty folders and temporary files that interrupted calls left in the store. Returns all
/// errors.
pub fn sweep_empty(machine: &dyn Machine) -> Vec<Error> {
    let mut errors = Vec::new();
    for swept in [machine.sweep_empty(), foreign::sweep(machine.root())] {
        if let Err(err) = swept {
            errors.push(err.into());
        }
    }
    errors
}

/// Deletes the kernel objects of each owner for which `is_lost` is true. The argument of `is_lost`
/// is the owner as text. Then deletes unused shared objects. Returns all errors.
pub(super) fn sweep(is_lost: &dyn Fn(&str) -> bool, host: &mut dyn Host) -> Vec<Error> {
    let steps = match host.owned(is_lost) {
        Ok(steps) => steps,
        Err(err) => return vec![err.into()],
    };
    let mut errors = host
        .execute(&steps, &Facts::default(), OnError::GoOn)
        .errors;
    errors.extend(host.sweep().err());
    errors.into_iter().map(Error::from).collect()
}
