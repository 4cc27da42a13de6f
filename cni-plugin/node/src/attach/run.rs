//! One run of plugins, native and foreign, within a transaction: ADD of a call, and the networks that
//! an edit attaches to a running container.

use super::chain::ForeignCall;
use super::invocation::{PluginIndex, Wanted, is_foreign, of_network, places};
use super::lease_request::LeaseRequest;
use super::planner::{Native, Planner};
use super::receiver::Receiver;
use super::reserver;
use super::routes;
use super::teardown::Teardown;
use crate::apply::executor::OnError;
use crate::apply::host::Host;
use crate::apply::transaction::Transaction;
use crate::log::Log;
use braid_core::cni::{Command, Error};
use braid_core::plan::Facts;

/// State of a run.
pub(super) struct Run<'a> {
    pub(super) planner: Planner<'a>,
    /// The plugins to run, in order.
    places: Vec<PluginIndex>,
    /// Number of plugins in `places`, counted from the first, that may hold state to release after
    /// a failure.
    done: usize,
    pub(super) transaction: Transaction<'a>,
}

impl<'a> Run<'a> {
    /// Creates a run of all plugins of the planner's networks, except for those that the transaction
    /// keeps.
    pub(super) fn new(planner: Planner<'a>, transaction: Transaction<'a>) -> Self {
        let mut places = places(planner.wanted);
        places.retain(|place| place.wanted >= transaction.kept());
        Self {
            planner,
            places,
            done: 0,
            transaction,
        }
    }

    /// Runs all plugins.
    pub(super) fn all(
        &mut self,
        host: &mut dyn Host,
        receiver: &mut dyn Receiver,
    ) -> Result<(), Error> {
        self.begin()?;
        let wanted = self.planner.wanted;
        let mut at = 0;
        while let Some(place) = self.places.get(at) {
            if is_foreign(wanted, *place) {
                self.foreign(at, host.log())?;
                at += 1;
            } else {
                let natives = self.natives(at);
                let planned = self.native(at, natives, host)?;
                at += natives;
                if at == self.places.len() {
                    receiver.plan(&self.planner.results, &planned.ahead);
                }
                self.apply(planned, host)?;
            }
        }
        match self.places.last() {
            Some(last) if is_foreign(wanted, *last) => self.settle_routes(host),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the number of consecutive native plugins from index `at` on that are planned
    /// together. A plugin that gets addresses through its link (DHCP), or probes them there, ends the
    /// sequence, because its link must exist before the next plugins are planned.
    fn natives(&self, at: usize) -> usize {
        let wanted = self.planner.wanted;
        let natives = self.places[at..]
            .iter()
            .take_while(|place| !is_foreign(wanted, **place));
        let item = |place: &PluginIndex| &wanted[place.wanted].chain.items[place.item];
        let before = natives
            .clone()
            .take_while(|place| !item(place).needs_link())
            .count();
        natives.count().min(before + 1)
    }

    /// Writes the record if DEL will need it to find the state of this run. DEL needs it for
    /// addresses in networks outside the call's configuration, for files, and for state of foreign
    /// programs. The record is written before any of these is created. Then writes the device
    /// information files for the plugins.
    fn begin(&mut self) -> Result<(), Error> {
        let wanted = self.planner.wanted;
        let is_elsewhere =
            |wanted: &Wanted| wanted.object.is_some() || wanted.device_file.is_some();
        if wanted.len() > 1 || wanted.iter().any(is_elsewhere) {
            self.transaction
                .note(&self.planner.results)
                .map_err(Error::from)?;
        } else if wanted.iter().any(|wanted| wanted.chain.has_foreign()) {
            self.transaction.keep().map_err(Error::from)?;
        }
        for wanted in wanted {
            if let Some(file) = &wanted.device_file {
                file.write()?;
            }
        }
        Ok(())
    }

    /// Moves the pod's default routes to the network that requests them. Does nothing if no network
    /// requests them. ADD calls this function if the last plugin is another program. The default
    /// routes then exist already, so they are deleted from the kernel.
    fn settle_routes(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        let Some(decided) = self.planner.default_routes(self.transaction.kept()) else {
            return Ok(());
        };
        let wanted = self.planner.wanted;
        let (mut parts, displaced) = routes::of_kernel(&decided, wanted, host)?;
        self.transaction.displace(displaced);
        routes::settle(&decided, wanted, &mut parts);
        self.transaction
            .forget(|at, step| routes::is_default_of(step, decided[at].families()));
        self.transaction
            .run(host, parts, &Facts::default(), &self.planner.results)
            .map_err(Error::from)
    }

    fn foreign(&mut self, at: usize, log: &Log) -> Result<(), Error> {
        let place = self.places[at];
        let Wanted {
            chain, attachment, ..
        } = &self.planner.wanted[place.wanted];
        self.transaction
            .will_delegate(place.wanted)
            .map_err(Error::from)?;
        self.done = at + 1;
        let result = &mut self.planner.results[place.wanted];
        let call = ForeignCall {
            plugin: &chain.items[place.item].conf.plugin,
            item: place.item,
            command: Command::Add,
            attachment: Some(attachment),
            prev: result.as_ref(),
        };
        let own = chain.delegate(&call, log);
        let own = own.map_err(of_network(self.planner.wanted, place.wanted))?;
        *result = own.or(result.take());
        // A runtime caches the first network's result itself, but does not pass it to GC.
        self.transaction
            .note(&self.planner.results)
            .map_err(Error::from)
    }

    /// Plans `count` consecutive native plugins from index `at` on, one after the other. If the last
    /// plugin gets its addresses through its link (DHCP), or probes them there, its link is created
    /// before the addresses are requested.
    fn native(&mut self, at: usize, count: usize, host: &mut dyn Host) -> Result<Native, Error> {
        let Self {
            planner,
            done,
            places,
            transaction,
        } = self;
        let (wanted, mut next) = (planner.wanted, at);
        let mut reserve = |ask: &LeaseRequest<'_>, host: &mut dyn Host| {
            next += 1;
            reserver::reserve(&wanted[ask.place.wanted], ask, host, || *done = next)
        };
        let planned = planner.native(&places[at..at + count], host, &mut reserve);
        for warning in planner.warnings.drain(..) {
            host.log().warn(&warning);
        }
        let mut planned = planned?;
        let last = places[at + count - 1];
        let is_unaddressed = planned.is_unaddressed();
        if is_unaddressed {
            transaction
                .run(
                    host,
                    planned.parts.clone(),
                    &planned.observed,
                    &planner.results,
                )
                .map_err(Error::from)?;
            // Even if the request fails, the IPAM may hold a lease.
            *done = at + count;
            let mut ask = |ask: &LeaseRequest<'_>, host: &mut dyn Host| {
                reserver::reserve(&wanted[last.wanted], ask, host, || {})
            };
            planned = planner.addresses(last, host, planned, &mut ask)?;
            for warning in planner.warnings.drain(..) {
                host.log().warn(&warning);
            }
        }
        if at + count == self.places.len()
            && let Some(decided) = self.planner.default_routes(self.transaction.kept())
        {
            if at > 0 || is_unaddressed || self.transaction.kept() > 0 {
                let (present, displaced) = routes::of_kernel(&decided, wanted, host)?;
                self.transaction.displace(displaced);
                planned.parts.extend(present);
                self.transaction
                    .forget(|at, step| routes::is_default_of(step, decided[at].families()));
            }
            let displaced = routes::settle(&decided, wanted, &mut planned.parts);
            self.transaction.displace(displaced);
        }
        Ok(planned)
    }

    /// Applies the steps of all planned plugins together.
    fn apply(&mut self, planned: Native, host: &mut dyn Host) -> Result<(), Error> {
        let results = &self.planner.results;
        self.transaction
            .run(host, planned.parts, &planned.observed, results)
            .map_err(Error::from)
    }

    /// Rolls the run back. Returns `error`, with a list of everything that could not be rolled
    /// back.
    #[cold]
    pub(super) fn fail(self, error: Error, host: &mut dyn Host) -> Error {
        let Self {
            planner: Planner { wanted, .. },
            places,
            done,
            transaction,
        } = self;
        let mut record = transaction.done();
        for (at, attached) in record.attachments.iter_mut().enumerate() {
            let mut held = Vec::new();
            for place in &places[..done] {
                if place.wanted == at {
                    held.push(place.item);
                }
            }
            attached.left = Some(held);
        }
        let mut taking = Teardown {
            wanted,
            record: Some(record),
            passes_prev_result: false,
        };
        let mut errors = taking.run(host);
        let restoring = transaction.restoring();
        if !restoring.is_empty() {
            let report = host.execute(restoring, &Facts::default(), OnError::GoOn);
            errors.extend(report.errors.into_iter().map(Error::from));
        }
        let leftovers = taking
            .record
            .map_or(Vec::new(), |left| transaction.end(left, errors));
        error.and_left_behind(&leftovers)
    }
}
