//! All changes of one call: recorded before they are made, and rolled back together on a failure.

use super::executor::{OnError, Timing};
use super::host::Host;
use crate::store::record::{Attached, Folder, Owed, Record};
use crate::{Context, Error};
use braid_core::cni::AddResult;
use braid_core::plan::facts::{Facts, LinkFact};
use braid_core::plan::order::ordered;
use braid_core::plan::step::Step;
use braid_core::plan::thing::{LinkRef, Thing};

/// Changes that one call has recorded and applied so far.
#[derive(Debug)]
pub struct Transaction<'a> {
    folder: &'a Folder,
    record: Record,
    /// Number of parts in the record from earlier calls. A runtime may call the plugins of one
    /// chain separately, and each call adds parts. 0 for the first call, and for calls with several
    /// attachments.
    earlier: usize,
    /// The record without this transaction, if it adds to the attachments of a running container.
    running: Option<Record>,
    /// Inverses of the applied steps.
    inverses: Vec<Step>,
    /// Routes of the running container that were deleted.
    deleted: Vec<Step>,
    /// Duration of each send to the kernel, with the steps in it.
    pub timings: Vec<(Vec<Step>, Timing)>,
}

/// Steps of one plugin for one attachment.
#[derive(Debug, Clone)]
pub struct Part {
    /// Index of the attachment in the call.
    pub attachment: usize,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// True if the steps continue the attachment's last recorded part, since the plugin's first
    /// steps are already applied.
    pub goes_on: bool,
}

impl Part {
    /// Creates a part with all steps of a plugin.
    pub fn new(attachment: usize, steps: Vec<Step>) -> Self {
        Self {
            attachment,
            steps,
            goes_on: false,
        }
    }
}

impl<'a> Transaction<'a> {
    /// Creates a transaction. `record` has no steps, or the steps of earlier calls for the chain.
    pub fn new(folder: &'a Folder, record: Record) -> Self {
        let earlier = record
            .attachments
            .first()
            .map_or(0, |attached| attached.parts.len());
        Self {
            folder,
            earlier,
            running: None,
            record,
            inverses: Vec::new(),
            deleted: Vec::new(),
            timings: Vec::new(),
        }
    }

    /// Creates a transaction that adds the attachments `joining` to a running container and keeps its
    /// present ones. New attachments are unsettled until the transaction ends.
    pub fn of_edit(folder: &'a Folder, running: Record, joining: Vec<Attached>) -> Self {
        let mut record = running.clone();
        record.is_unpublished = true;
        for attached in joining {
            record.attachments.push(Attached {
                is_unsettled: true,
                ..attached
            });
        }
        Self {
            earlier: 0,
            running: Some(running),
            ..Self::new(folder, record)
        }
    }

    /// Returns the number of attachments that the transaction keeps: the first ones of its record.
    pub fn kept(&self) -> usize {
        self.running
            .as_ref()
            .map_or(0, |running| running.attachments.len())
    }

    /// Records the steps of each plugin and the results, then applies all steps. Stops at the first
    /// error.
    pub fn run(
        &mut self,
        host: &mut dyn Host,
        parts: Vec<Part>,
        facts: &Facts,
        results: &[Option<AddResult>],
    ) -> Result<(), Error> {
        let mut planned = Vec::new();
        for part in &parts {
            planned.extend_from_slice(&part.steps);
        }
        let steps = ordered(planned);
        for part in parts {
            let recorded = &mut self.record.attachments[part.attachment].parts;
            match recorded.last_mut() {
                Some(last) if part.goes_on => last.extend(part.steps),
                _ => recorded.push(part.steps),
            }
        }
        self.note(results)?;
        let report = host.execute(&steps, facts, OnError::Stop);
        for at in report.applied {
            self.inverses.extend(steps[at].inverse());
            if let Step::Del(route @ Thing::Route(_)) = &steps[at]
                && self.running.is_some()
            {
                self.deleted.push(Step::Add(route.clone()));
            }
        }
        for timing in report.timings {
            let sent = steps.iter().skip(timing.first).take(timing.count);
            self.timings.push((sent.cloned().collect(), timing));
        }
        report.errors.into_iter().next().map_or(Ok(()), Err)?;
        self.learn_moved(&steps, host)
    }

    /// Records the interface index of each link that `steps` moved into the container, since the
    /// container may rename the link.
    fn learn_moved(&mut self, steps: &[Step], host: &mut dyn Host) -> Result<(), Error> {
        let mut is_any = false;
        for step in steps {
            let Step::Add(Thing::Moved(moved)) = step else {
                continue;
            };
            let fact = host
                .link(&moved.to)
                .doing(format_args!("look up link {}", moved.to))?;
            let Some(LinkFact { index, .. }) = fact else {
                continue;
            };
            for attached in &mut self.record.attachments {
                for part in &mut attached.parts {
                    is_any |= learn(part, &moved.to, index);
                }
            }
            is_any |= learn(&mut self.inverses, &moved.to, index);
        }
        if is_any {
            self.folder.store(&self.record)
        } else {
            Ok(())
        }
    }

    /// Records the results of the attachments so far.
    pub fn note(&mut self, results: &[Option<AddResult>]) -> Result<(), Error> {
        let kept = self.kept();
        let attachments = self.record.attachments.iter_mut();
        for (at, (attached, result)) in attachments.zip(results).enumerate() {
            if at >= kept || result.is_some() {
                attached.note(result.as_ref());
            }
        }
        self.keep()
    }

    /// Writes the record to disk, before a foreign program is started.
    pub fn keep(&mut self) -> Result<(), Error> {
        self.folder.store(&self.record)
    }

    /// Removes the recorded steps for which `is_gone` returns true. A later step of this call
    /// undoes these steps. `is_gone` receives the index of the attachment and the step.
    pub fn forget(&mut self, is_gone: impl Fn(usize, &Step) -> bool) {
        for (at, attached) in self.record.attachments.iter_mut().enumerate() {
            for part in &mut attached.parts {
                part.retain(|step| !is_gone(at, step));
            }
        }
    }

    /// Records the default routes of attachments that lose them to another network.
    pub fn displace(&mut self, routes: Vec<Part>) {
        for part in routes {
            let attached = &mut self.record.attachments[part.attachment];
            attached.displaced.extend(part.steps);
        }
    }

    /// Records a network status that could not be published.
    pub fn owe(&mut self, owed: Owed) -> Result<(), Error> {
        self.record.owed = Some(owed);
        self.keep()
    }

    /// Records that a foreign plugin is the next plugin of an attachment, before it is run.
    pub fn will_delegate(&mut self, attachment: usize) -> Result<(), Error> {
        self.record.attachments[attachment].parts.push(Vec::new());
        self.keep()
    }

    /// Returns the record with only the steps that this call applied, without planned steps and
    /// without the steps of earlier calls.
    pub fn done(&self) -> Record {
        let mut done = self.record.clone();
        for attached in &mut done.attachments[..self.kept()] {
            attached.device_file = None;
        }
        for (at, attached) in done.attachments.iter_mut().enumerate() {
            attached
                .parts
                .drain(..if at == 0 { self.earlier } else { 0 });
            attached.keep(0..attached.parts.len(), &self.inverses);
        }
        done
    }

    /// Returns the steps that restore the routes of the running container that this call deleted.
    pub fn restoring(&self) -> &[Step] {
        &self.deleted
    }

    /// Ends a successful edit: its attachments are settled. Returns the record.
    pub fn settle(mut self) -> Result<Record, Error> {
        let kept = self.kept();
        for attached in &mut self.record.attachments[kept..] {
            attached.is_unsettled = false;
        }
        self.keep()?;
        Ok(self.record)
    }

    /// Ends the transaction after a rollback. `left` has the steps that could not be rolled back.
    /// After earlier calls, restores their record, and appends `left` to it if there are errors.
    /// Without earlier calls, records `left` if there are errors, and deletes the record if there
    /// are none. After an edit, records the running attachments, and new ones in `left` if there are
    /// errors. Returns `errors`, and the error of this function if it fails.
    pub fn end<E: From<Error>>(mut self, left: Record, mut errors: Vec<E>) -> Vec<E> {
        let kept = self.kept();
        if let Some(mut running) = self.running {
            if !errors.is_empty() {
                running
                    .attachments
                    .extend(left.attachments.into_iter().skip(kept));
            }
            errors.extend(self.folder.store(&running).err().map(E::from));
            return errors;
        }
        let first = match self.record.attachments.first_mut() {
            Some(first) if self.earlier > 0 => first,
            _ => return self.folder.settle(&left.key, Some(&left), errors),
        };
        first.parts.truncate(self.earlier);
        if !errors.is_empty() {
            for attached in left.attachments {
                first.parts.extend(attached.parts);
            }
        }
        errors.extend(self.folder.store(&self.record).err().map(E::from));
        errors
    }
}

/// Records `index` as the link's interface index in each of `steps` that moved a link to `to`.
/// Returns true if there is such a step.
fn learn(steps: &mut [Step], to: &LinkRef, index: u32) -> bool {
    let mut is_any = false;
    for step in steps {
        if let Some(known) = step.as_moved_mut()
            && known.to == *to
        {
            known.learn(index);
            is_any = true;
        }
    }
    is_any
}
