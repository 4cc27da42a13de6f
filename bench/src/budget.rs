//! Budgets of the plugins and their verdicts.

use anyhow::{Result, bail};

/// A budget: a figure and its bound.
#[derive(Debug, PartialEq)]
pub(crate) struct Budget {
    pub(crate) what: String,
    /// Measured value. If the value has an upper bound and could not be measured, it is infinite,
    /// so that the budget is broken.
    pub(crate) figure: f64,
    pub(crate) bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// Prints all budgets. Fails if they are enforced and one of them is broken.
pub(crate) fn judge(about: &str, budgets: &[Budget], enforce: bool) -> Result<()> {
    if !budgets.is_empty() {
        eprintln!("\nbudgets ({about}):");
    }
    for budget in budgets {
        let verdict = if budget.is_kept() { "pass" } else { "FAIL" };
        let (word, bound) = match budget.bound {
            Bound::AtMost(most) => ("most", most),
            Bound::AtLeast(least) => ("least", least),
        };
        eprintln!(
            "  {verdict}  {}: {:.3}, at {word} {bound:.3}",
            budget.what, budget.figure
        );
    }
    let failed = budgets.iter().filter(|budget| !budget.is_kept()).count();
    if enforce && failed > 0 {
        bail!("{failed} of {} budgets not kept", budgets.len());
    }
    Ok(())
}

impl Budget {
    fn is_kept(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.figure <= most,
            Bound::AtLeast(least) => self.figure >= least,
        }
    }
}
