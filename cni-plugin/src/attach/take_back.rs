//! Taking an attachment back, for DEL, GC and an ADD that failed: what fails is left in the record, to be tried again.

use super::chain::{Chain, From, Work};
use super::liveness::Known;
use super::planner::call;
use crate::apply::executor::OnError;
use crate::apply::host::Host;
use crate::apply::record::Record;
use crate::cni::{AddResult, Attachment, Command, Error};
use crate::plan::Facts;
use crate::plan::order::ordered;
use crate::plan::step::Step;
use crate::plan::thing::Thing;
use crate::plan::undo::{in_turn, undo};
use std::ops::Range;

/// An attachment that is taken back.
#[derive(Debug)]
pub struct TakeBack<'a> {
    /// The plugins.
    pub chain: &'a Chain,
    /// The container's interface.
    pub attachment: &'a Attachment,
    /// What was done; less and less of it. Names alone say what there is to undo where there is none.
    pub record: Option<Record>,
    /// The result of the ADD, for foreign plugins.
    pub prev: Option<&'a AddResult>,
}

impl TakeBack<'_> {
    /// Goes through the chain backwards; neighbouring native plugins are undone together. Goes on after each failure.
    pub fn run(&mut self, host: &mut dyn Host) -> Vec<Error> {
        let items = self.chain.items.len();
        let owed = self.record.as_ref().and_then(|record| record.left.clone());
        let owed = owed.unwrap_or_else(|| (0..items).collect());
        let (mut errors, mut left, mut end) = (Vec::new(), Vec::new(), items);
        while end > 0 {
            let start = self.neighbours(end);
            let failed = self.undo_natives(start..end, host, &mut errors);
            for at in (start..end).rev().filter(|at| owed.contains(at)) {
                // An address is given back only when no link carries it any more.
                let is_carried = self.has_link(at, &failed);
                let given = if is_carried { None } else { Some(self.give_back(at, host)) };
                if !matches!(given, Some(Ok(()))) {
                    left.push(at);
                }
                errors.extend(given.and_then(Result::err));
            }
            end = start;
        }
        if let Some(record) = &mut self.record {
            record.left = Some(left);
        }
        errors
    }

    /// The first of the native plugins that end at `end`, or the foreign one that does.
    fn neighbours(&self, end: usize) -> usize {
        let is_foreign = |at: usize| matches!(self.chain.items[at].work, Work::Foreign);
        let mut start = end - 1;
        while !is_foreign(end - 1) && start > 0 && !is_foreign(start - 1) {
            start -= 1;
        }
        start
    }

    /// Undoes the plugins of `items`, by the record or by what their names say; returns the steps that failed.
    fn undo_natives(&mut self, items: Range<usize>, host: &mut dyn Host, errors: &mut Vec<Error>) -> Vec<Step> {
        let parts = self.parts(&items);
        let recorded = self.record.iter().flat_map(|record| &record.parts[parts.clone()]).flatten();
        // As they were carried out.
        let done = ordered(recorded.cloned().collect());
        let steps = if self.record.is_some() { undo(&done) } else { self.remnants(items) };
        let report = host.execute(&steps, &Facts::default(), OnError::GoOn);
        errors.extend(report.errors.into_iter().map(Error::from));
        let mut failed: Vec<Step> = report.failed.into_iter().map(|(at, _)| steps[at].clone()).collect();
        if !host.has_pod() {
            for step in &done {
                let Step::Add(Thing::Shaping(shaping)) = step else { continue };
                if let Err(err) = host.leave_shaping(shaping) {
                    errors.push(err.into());
                    failed.extend(step.inverse());
                }
            }
        }
        if let Some(record) = &mut self.record {
            record.keep(parts, &failed);
        }
        failed
    }

    /// The record's parts that belong to `items`. The runtime may have offered at ADD what made the chain longer.
    fn parts(&self, items: &Range<usize>) -> Range<usize> {
        let len = self.record.as_ref().map_or(0, |record| record.parts.len());
        let end = if items.end == self.chain.items.len() { len } else { items.end.min(len) };
        items.start.min(end)..end
    }

    fn remnants(&self, items: Range<usize>) -> Vec<Step> {
        let call = call(self.chain, self.attachment, "", self.prev);
        let plugins = self.chain.items[items].iter().rev().filter_map(|item| match &item.work {
            Work::Native(plugin) => Some(plugin),
            _ => None,
        });
        in_turn(plugins.flat_map(|plugin| plugin.remnants(&call)).collect())
    }

    /// Whether a link of item `at` could not be taken away.
    fn has_link(&self, at: usize, failed: &[Step]) -> bool {
        match &self.record {
            Some(record) => {
                record.parts.get(at).into_iter().flatten().any(|step| matches!(step, Step::Add(Thing::Link(_))))
            }
            None => failed.iter().any(|step| matches!(step, Step::Del(Thing::Link(_)))),
        }
    }

    /// Gives back what item `at` got from others: its addresses, or all that a foreign plugin made. One that would start this
    /// program again has made nothing, unless an ADD had begun with it: it was another file then.
    fn give_back(&self, at: usize, host: &mut dyn Host) -> Result<(), Error> {
        let Self { chain, attachment, .. } = self;
        let Some(item) = chain.items.get(at) else { return Ok(()) };
        let foreign = match (&item.work, &item.addresses) {
            (Work::Foreign, _) => &item.conf.plugin,
            (_, From::Foreign(ipam)) => ipam,
            (_, From::Nobody) => return Ok(()),
            (_, From::Ours(ipam)) => {
                let known = Known::of(chain.network());
                return ipam.release(&chain.owner(attachment), known.host()).map(drop);
            }
        };
        let is_begun = self.record.as_ref().is_some_and(|record| at < record.parts.len());
        if let Some(circle) = chain.circle(foreign, attachment, is_begun) {
            host.warn(&format!("network {:?}: nothing to take back: {circle}", chain.network()));
            return Ok(());
        }
        chain.delegate(foreign, at, Command::Del, Some(attachment), self.prev).map(drop)
    }
}
