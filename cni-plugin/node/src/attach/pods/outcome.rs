//! Results of a pod's ADD: published in the pod's status, then delivered to the runtime.

use super::find::Finder;
use super::network::AttachedNetwork;
use super::publish::Publisher;
use crate::apply::host::{Host, Machine};
use crate::attach::add::stdout;
use crate::attach::invocation::Wanted;
use crate::attach::receiver::Receiver;
use crate::store::record::Owed;
use braid_core::cni::{AddResult, Error, Json, Version};
use braid_core::plan::Facts;

/// Receiver of the results of a pod's ADD.
pub(super) struct Outcome<'o, 'f> {
    publisher: &'o Publisher,
    finder: &'o mut Finder<'f>,
    wanted: &'o [Wanted],
    version: Version,
    machine: &'o dyn Machine,
    deliver: &'o mut dyn FnMut(&str) -> Result<(), Error>,
    /// Status entries, if they are known before the kernel work.
    planned: Option<Vec<Json>>,
    /// True if the status may be published.
    may_be_published: bool,
    /// True after the error of this ADD was reported as an event.
    pub(super) is_told: bool,
}

impl<'o, 'f> Outcome<'o, 'f> {
    pub(super) fn new(
        (publisher, finder): (&'o Publisher, &'o mut Finder<'f>),
        (wanted, version): (&'o [Wanted], Version),
        machine: &'o dyn Machine,
        deliver: &'o mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Self {
        Self {
            publisher,
            finder,
            wanted,
            version,
            machine,
            deliver,
            planned: None,
            may_be_published: false,
            is_told: false,
        }
    }

    /// Removes the status of a failed ADD, if it may be published.
    #[cold]
    pub(super) fn withdraw(&mut self) {
        if self.may_be_published {
            self.publisher.withdraw(self.finder.source(), self.machine);
        }
    }
}

impl Receiver for Outcome<'_, '_> {
    fn plan(&mut self, results: &[Option<AddResult>], ahead: &Facts) {
        let attached = AttachedNetwork::all(self.wanted, results);
        self.planned = self.publisher.planned(&attached, ahead, self.machine);
        if let Some(entries) = &self.planned {
            let source = self.finder.source();
            self.may_be_published = self.publisher.begin(&attached, entries, source);
        }
    }

    fn deliver(
        &mut self,
        results: &[Option<AddResult>],
        mut host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<Option<Owed>, Error> {
        let Self {
            publisher,
            finder,
            machine,
            ..
        } = self;
        let attached = AttachedNetwork::all(self.wanted, results);
        let verified =
            publisher.verify(&attached, (host.as_deref_mut(), finder.source()), *machine);
        verified.inspect_err(|_| self.is_told = true)?;
        publisher.fill_claims(&attached, finder.source())?;
        let text = stdout(results, self.version)?;
        self.may_be_published = true;
        let planned = self.planned.take();
        let owed = publisher.publish(&attached, planned, (host, finder.source()), *machine);
        (self.deliver)(&text)?;
        Ok(owed)
    }
}
