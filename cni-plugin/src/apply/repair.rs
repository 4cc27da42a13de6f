//! Making again what somebody flushed: `nft flush ruleset` is how the node's own rules are loaded anew.

use super::kernel::Kernel;
use super::record::{self, Record};
use super::{Error, firewall};
use crate::plan::{Feature, Step};
use crate::sys::netlink::KernelError;
use crate::sys::nft::state::{self, State, Table};
use crate::sys::nft::{hostport, mac_check, masquerade};
use nix::errno::Errno;

/// Puts back what the records of all attachments say is in nf_tables, where a table that these features need was flushed.
/// A call that is under way for another container may have made something just before; that stays lost until its DEL.
pub fn rules(kernel: &mut Kernel, features: &[Feature]) -> Result<(), Error> {
    let fail = |cause: KernelError| Error::new("look whether somebody flushed nf_tables", cause);
    // A kernel without nf_tables: who needs it is told so by what fails then.
    if lost(kernel, features).map_or(true, |lost| lost.is_empty()) {
        return Ok(());
    }
    let _held = record::lock_all().map_err(fail)?;
    // Somebody may have been faster.
    for (table, state) in self::lost(kernel, features).map_err(fail)? {
        if state == State::Flushed {
            kernel.nft().and_then(|socket| state::delete(socket, table)).map_err(fail)?;
        }
    }
    let mut errors = Vec::new();
    record::each_idle(|record| errors.extend(put_back(kernel, record)))?;
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn lost(kernel: &mut Kernel, features: &[Feature]) -> Result<Vec<(Table, State)>, KernelError> {
    const NEEDS: [(Table, &[Feature]); 2] =
        [(Table::Inet, &[Feature::NfTables, Feature::Masquerade]), (Table::Bridge, &[Feature::MacCheck])];
    let mut lost = Vec::new();
    for (table, needed_by) in NEEDS {
        if features.iter().any(|feature| needed_by.contains(feature)) {
            let state = state::look(kernel.nft()?, table)?;
            lost.extend((state != State::Whole).then_some((table, state)));
        }
    }
    Ok(lost)
}

fn put_back(kernel: &mut Kernel, record: &Record) -> Vec<Error> {
    let one = |step: &Step| {
        let made = match step {
            Step::AddMasquerade(what) => kernel.nft().and_then(|socket| masquerade::add(socket, what)),
            Step::AddMacCheck(what) => kernel.nft().and_then(|socket| mac_check::add(socket, what)),
            Step::AddHostPorts(what) => kernel.nft().and_then(|socket| hostport::add(socket, what)),
            Step::AddFirewall(what) => firewall::add_held(kernel, what),
            _ => Ok(()),
        };
        match made {
            Err(err) if err.errno != Errno::EEXIST => Some(Error::new(format!("put back: {step}"), err)),
            _ => None,
        }
    };
    record.steps().filter_map(one).collect()
}
