//! Budgets of braid's speed, and their verdicts.

use anyhow::{Result, bail};

/// A measured ratio of braid's time to another time, and its upper bound.
#[derive(Debug, PartialEq)]
pub(super) struct Budget {
    pub(super) what: String,
    pub(super) ratio: f64,
    pub(super) at_most: f64,
}

pub(super) fn judge(budgets: &[Budget], enforce: bool) -> Result<()> {
    eprintln!("\nbudgets (ratios):");
    for Budget {
        what,
        ratio,
        at_most,
    } in budgets
    {
        let verdict = if ratio <= at_most { "pass" } else { "FAIL" };
        eprintln!("  {verdict}  {what}: {ratio:.3}, at most {at_most:.3}");
    }
    let failed = budgets
        .iter()
        .filter(|budget| budget.ratio > budget.at_most)
        .count();
    if enforce && failed > 0 {
        bail!("{failed} of {} budgets not kept", budgets.len());
    }
    Ok(())
}
