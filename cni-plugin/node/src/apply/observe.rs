//! Reading what a plan depends on: needs become facts, each asked for once.

use super::kernel::Kernel;
use crate::{Doing, Error, effect};
use braid_core::plan::facts::{Facts, Need};
use braid_core::plan::thing::LinkRef;
use std::collections::BTreeSet;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reads everything that is needed.
pub fn observe(kernel: &mut Kernel, needs: &[Need]) -> Result<Facts, Error> {
    let mut facts = Facts::default();
    for need in needs.iter().collect::<BTreeSet<_>>() {
        effect::read(kernel, need, &mut facts)?;
    }
    Ok(facts)
}

pub(crate) fn read_boot_id_without(kernel: &mut Kernel, link: &LinkRef, facts: &mut Facts) -> Result<(), Error> {
    effect::link::read(kernel, link, facts)?;
    if facts.link(link).is_none_or(|fact| fact.mac.is_none()) { read_boot_id(facts) } else { Ok(()) }
}

/// Reads a text file; one that does not exist has no entry.
#[cold]
pub(crate) fn read_file(path: &str, facts: &mut Facts) -> Result<(), Error> {
    match std::fs::read_to_string(path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
        read => drop(facts.files.insert(path.to_owned(), read.doing(format_args!("read {path}"))?)),
    }
    Ok(())
}

pub(crate) fn read_boot_id(facts: &mut Facts) -> Result<(), Error> {
    let found = std::fs::read_to_string(BOOT_ID).doing(format_args!("read {BOOT_ID}"))?;
    found.trim().clone_into(&mut facts.boot_id);
    Ok(())
}
