//! All changes of one call: recorded before they are made, taken back together when one fails.

use super::Error;
use super::executor::{OnError, Timing};
use super::host::Host;
use super::record::{Folder, Record};
use crate::plan::facts::Facts;
use crate::plan::order::ordered;
use crate::plan::step::Step;

/// A call's changes so far.
#[derive(Debug)]
pub struct Transaction<'a> {
    folder: &'a Folder,
    record: Record,
    /// How many parts an earlier call of the same chain recorded.
    earlier: usize,
    /// The inverses of what was carried out.
    inverses: Vec<Step>,
    /// How long each send took, with the steps that it carried.
    pub timings: Vec<(Vec<Step>, Timing)>,
}

impl<'a> Transaction<'a> {
    /// Starts from a record, which holds no step yet, or those of an earlier call.
    pub fn new(folder: &'a Folder, record: Record) -> Self {
        let earlier = record.parts.len();
        Self { folder, earlier, record, inverses: Vec::new(), timings: Vec::new() }
    }

    /// Records the steps of each plugin, then applies them all.
    pub fn run(&mut self, host: &mut dyn Host, parts: Vec<Vec<Step>>, facts: &Facts) -> Result<(), Error> {
        let steps = ordered(parts.iter().flatten().cloned().collect());
        self.record.parts.extend(parts);
        self.folder.store(&self.record)?;
        host.set_record(self.folder.file(&self.record.key));
        let report = host.execute(&steps, facts, OnError::Stop);
        self.inverses.extend(report.applied.into_iter().filter_map(|at| steps[at].inverse()));
        for timing in report.timings {
            let sent = steps.iter().skip(timing.first).take(timing.count).cloned().collect();
            self.timings.push((sent, timing));
        }
        report.errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Records that a foreign plugin follows, before it is run.
    pub fn will_delegate(&mut self) -> Result<(), Error> {
        self.record.parts.push(Vec::new());
        self.folder.store(&self.record)
    }

    /// The record of what this call did, and not of what it was about to do.
    pub fn done(&self) -> Record {
        let mut done = self.record.clone();
        done.parts.drain(..self.earlier);
        done.keep(0..done.parts.len(), &self.inverses);
        done
    }

    /// Goes back to the record before, with what is left of [`Transaction::done`] behind it where there were errors.
    pub fn end<E: From<Error>>(mut self, left: Record, mut errors: Vec<E>) -> Vec<E> {
        if self.earlier == 0 {
            return self.folder.settle(&left.key, Some(&left), errors);
        }
        self.record.parts.truncate(self.earlier);
        if !errors.is_empty() {
            self.record.parts.extend(left.parts);
        }
        errors.extend(self.folder.store(&self.record).err().map(E::from));
        errors
    }
}
