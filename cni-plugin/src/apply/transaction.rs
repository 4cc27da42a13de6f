//! All changes of one call: recorded before they are made, taken back together when one fails.

use super::Error;
use super::executor::{OnError, Timing, execute};
use super::kernel::Kernel;
use super::record::{Folder, Record};
use crate::plan::facts::Facts;
use crate::plan::order::ordered;
use crate::plan::step::Step;
use crate::plan::undo::undo;
use std::fmt;
use std::fmt::Write;

/// A call's changes so far.
#[derive(Debug)]
pub struct Transaction<'a> {
    folder: &'a Folder,
    record: Record,
    /// How many parts an earlier call of the same chain recorded.
    earlier: usize,
    /// The steps so far, in the order in which they are carried out.
    steps: Vec<Step>,
    /// Which of them were.
    applied: Vec<usize>,
    /// How long each send took, with the steps that it carried.
    pub timings: Vec<(Vec<Step>, Timing)>,
}

/// Why a call failed, and what could not be taken back.
#[derive(Debug)]
pub struct Failure {
    /// The first failure.
    pub error: Error,
    /// What is left and why; empty when everything was taken back.
    pub leftovers: Vec<Error>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if !self.leftovers.is_empty() {
            let mut text = String::new();
            for left in &self.leftovers {
                let _ = write!(text, "; {left}");
            }
            write!(f, "; left behind until DEL or GC{text}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl<'a> Transaction<'a> {
    /// Starts from a record, which holds no step yet, or those of an earlier call.
    pub fn new(folder: &'a Folder, record: Record) -> Self {
        let earlier = record.parts.len();
        Self { folder, earlier, record, steps: Vec::new(), applied: Vec::new(), timings: Vec::new() }
    }

    /// Records the steps of each plugin, then applies them all.
    pub fn run(&mut self, kernel: &mut Kernel, parts: Vec<Vec<Step>>, facts: &Facts) -> Result<(), Error> {
        let steps = ordered(parts.iter().flatten().cloned().collect());
        self.record.parts.extend(parts);
        self.folder.store(&self.record)?;
        kernel.set_record(self.folder.file(&self.record.key));
        let report = execute(kernel, &steps, facts, OnError::Stop);
        self.applied.extend(report.applied.into_iter().map(|at| self.steps.len() + at));
        for timing in report.timings {
            let sent = steps.iter().skip(timing.first).take(timing.count).cloned().collect();
            self.timings.push((sent, timing));
        }
        self.steps.extend(steps);
        report.errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Records that a foreign plugin follows, before it is run.
    pub fn will_delegate(&mut self) -> Result<(), Error> {
        self.record.parts.push(Vec::new());
        self.folder.store(&self.record)
    }

    /// Takes back what was applied, newest first, and forgets it when nothing is left.
    pub fn roll_back(mut self, kernel: &mut Kernel) -> Vec<Error> {
        let applied: Vec<Step> = self.applied.iter().map(|at| self.steps[*at].clone()).collect();
        let report = execute(kernel, &undo(&applied), &Facts::default(), OnError::GoOn);
        let mut leftovers = report.errors;
        if leftovers.is_empty() {
            self.record.parts.truncate(self.earlier);
            let forgotten = match self.earlier {
                0 => self.folder.remove(&self.record.key),
                _ => self.folder.store(&self.record),
            };
            leftovers.extend(forgotten.err());
        }
        leftovers
    }
}
