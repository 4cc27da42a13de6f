//! Facts for a plan: each need is read once.

use super::features;
use crate::Error;
use crate::effect;
use crate::kernel::Kernel;
use braid_core::plan::facts::{Facts, Need};
use std::collections::BTreeSet;

/// Reads the facts for all needs.
pub fn observe(kernel: &mut Kernel, needs: &[Need]) -> Result<Facts, Error> {
    let mut facts = Facts::default();
    for need in needs.iter().collect::<BTreeSet<_>>() {
        if let Need::Features(wanted) = need {
            facts.features.extend(features::known(wanted, kernel.log()));
        } else {
            effect::read(kernel, need, &mut facts)?;
        }
    }
    Ok(facts)
}
