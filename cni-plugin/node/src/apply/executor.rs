//! Execution of steps in order. Requests of neighbouring steps to the same netlink socket share one
//! send.

use super::wait;
use crate::effect::link::{make, unmake};
use crate::effect::request::{RouteRequest, is_only_elements, link_of};
use crate::effect::shared::is_there_already;
use crate::effect::{self, Transport, elements, shaping, sysctl};
use crate::kernel::Kernel;
use crate::sys::netlink::KernelError;
use crate::{Cause, Error};
use braid_core::name::Ns;
use braid_core::plan::facts::Facts;
use braid_core::plan::request::{in_one_request, queue_len_of_new, redirect_with_shaping};
use braid_core::plan::step::{Event, Step};
use braid_core::plan::thing::{Link, Shaping, Thing, Verb};
use nix::errno::Errno;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Duration of one send to the kernel, which may carry several steps.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Index of the first step of the send.
    pub first: usize,
    /// Number of steps in the send.
    pub count: usize,
    /// Time from the send to the kernel's response.
    pub took: Duration,
}

/// Outcome of a list of steps.
#[derive(Debug, Default)]
pub struct Report {
    /// Indexes of the steps that this call applied, or may have applied, in order.
    pub applied: Vec<usize>,
    /// Indexes of the failed steps, in order, with the cause. With [`OnError::Stop`] the first
    /// entry is the reason why the remaining steps were not tried.
    pub failed: Vec<(usize, Cause)>,
    /// The failures as errors. Neighbouring steps with the same cause share one error.
    pub errors: Vec<Error>,
    /// Duration of each send, if enabled by [`Kernel::time`].
    pub timings: Vec<Timing>,
}

/// Reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Stop, as the following steps depend on the failed one.
    Stop,
    /// Continue and collect the errors, for cleanup.
    GoOn,
}

/// Applies `steps` in order. Skips a step that ensures a shared thing if `facts` already contain
/// that thing.
pub fn execute(kernel: &mut Kernel, steps: &[Step], facts: &Facts, on_error: OnError) -> Report {
    let mut run = Run {
        kernel,
        steps,
        facts,
        on_error,
        queue: Vec::new(),
        report: Report::default(),
    };
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        at += if is_there_already(step, facts) {
            1
        } else {
            run.step(at, step)
        };
        if run.is_over() {
            run.drop_queue();
            return run.end();
        }
    }
    run.flush();
    run.end()
}

struct Run<'a> {
    kernel: &'a mut Kernel,
    steps: &'a [Step],
    facts: &'a Facts,
    on_error: OnError,
    /// The requests that are queued on a socket and not sent yet, each as its range of steps.
    queue: Vec<Range<usize>>,
    report: Report,
}

impl Run<'_> {
    /// Calls `work`. If recording is enabled, records the duration for the steps from `first` on.
    /// `count` computes the number of these steps from the result of `work`. Recording is optional,
    /// since reading the clock twice for each send takes 1 % of the time of an ADD.
    fn timed<T>(
        &mut self,
        first: usize,
        count: impl FnOnce(&T) -> usize,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let start = self.kernel.is_timed().then(Instant::now);
        let result = work(self);
        if let Some(start) = start {
            self.report.timings.push(Timing {
                first,
                count: count(&result),
                took: start.elapsed(),
            });
        }
        result
    }

    /// True if a failure has ended the run.
    fn is_over(&self) -> bool {
        self.on_error == OnError::Stop && !self.report.failed.is_empty()
    }

    fn end(mut self) -> Report {
        let is_same_cause = |(_, one): &(usize, Cause), (_, next): &(usize, Cause)| one == next;
        let mut errors = Vec::new();
        for group in self.report.failed.chunk_by(is_same_cause) {
            let steps = group.iter().map(|(at, _)| &self.steps[*at]);
            errors.push(Error::of_steps(steps, group[0].1.clone()));
        }
        self.report.errors = errors;
        self.report
    }

    /// Discards the queued requests after a failure. The steps of these requests are not in the
    /// report, so a rollback would not undo them.
    fn drop_queue(&mut self) {
        if let Some(last) = self.queue.pop() {
            // If the socket cannot be opened, it has no queue.
            if let Ok(socket) = self.kernel.route(self.steps[last.start].ns()) {
                socket.drop_queue();
            }
        }
    }

    /// Runs the step at `at`, and directly following steps that can share its request. Returns the
    /// number of steps.
    fn step(&mut self, at: usize, step: &Step) -> usize {
        match step {
            Step::Add(thing) | Step::Ensure(thing) => {
                return self.carry(at, step, thing, Verb::Add);
            }
            Step::Del(thing) => return self.carry(at, step, thing, Verb::Del),
            Step::Set { .. } => return self.queue(at, step),
            Step::Retune { to, .. } => self.alone(at, |run| shaping::retune(run.kernel, to)),
            Step::Wait(Event::Up(link)) => self.alone(at, |run| wait::up(run.kernel, link)),
            Step::Wait(Event::Dad(link)) => self.alone(at, |run| wait::dad(run.kernel, link)),
            Step::Forget(kind, owner) => {
                self.alone(at, |run| effect::forget(run.kernel, *kind, owner));
            }
            Step::Legacy(legacy) => self.alone(at, |run| effect::end_legacy(run.kernel, legacy)),
        }
        1
    }

    fn carry(&mut self, at: usize, step: &Step, thing: &Thing, verb: Verb) -> usize {
        let effect = effect::of(thing);
        match (effect.transport(verb), verb) {
            (Transport::Request, _) => self.queue(at, step),
            (Transport::Link(link), Verb::Add) => {
                self.make_link(at, link, matches!(step, Step::Ensure(_)))
            }
            (Transport::Link(_), Verb::Del) => self.del_links(at),
            (Transport::Sysctl(sysctl), Verb::Add) => self.sysctls(at, sysctl.ns),
            // The sysctl is deleted with its namespace.
            (Transport::Sysctl(_), Verb::Del) => 1,
            (Transport::Shaping(shaping), _) => self.shape(at, shaping),
            (Transport::Elements, _) => self.del_elements(at),
            (Transport::Alone, Verb::Add) => self.at_once(at, 1, |run| effect.add(run.kernel)),
            (Transport::Alone, Verb::Del) => self.at_once(at, 1, |run| effect.del(run.kernel)),
        }
    }

    /// Creates the link of the step at `at`. If the next step sets the queue length of the new
    /// link, the same request sets it. Returns the number of steps.
    fn make_link(&mut self, at: usize, link: &Link, shared: bool) -> usize {
        let options = make::CreateOptions {
            shared,
            tx_queue_len: queue_len_of_new(&self.steps[at..]),
        };
        let count = 1 + usize::from(options.tx_queue_len.is_some());
        self.at_once(at, count, |run| make::link(run.kernel, link, options))
    }

    /// Applies the shaping of the step at `at`, together with a redirect in the next step. Returns
    /// the number of steps.
    fn shape(&mut self, at: usize, shaping: &Shaping) -> usize {
        let redirect = redirect_with_shaping(&self.steps[at..]);
        let count = 1 + usize::from(redirect.is_some());
        self.at_once(at, count, |run| shaping::add(run.kernel, shaping, redirect))
    }

    /// Sends the queued requests, then runs `work` for the single step at `at`.
    fn alone(&mut self, at: usize, work: impl FnOnce(&mut Self) -> Result<(), Cause>) {
        self.at_once(at, 1, work);
    }

    /// Sends the queued requests, then runs `work` for `count` steps from `at` on, which succeed or
    /// fail together. Returns `count`.
    #[inline(never)] // Separate code for each `work`: a call runs only a few.
    fn at_once(
        &mut self,
        at: usize,
        count: usize,
        work: impl FnOnce(&mut Self) -> Result<(), Cause>,
    ) -> usize {
        if !self.goes_on_after_queue() {
            return count;
        }
        if self.report.failed.is_empty() || !is_making(&self.steps[at]) {
            let result = match self.awaited(at) {
                Some(failed) => Err(Cause::Refused(format!(
                    "skipped, because `{failed}` failed"
                ))),
                None => self.timed(at, |_| count, work),
            };
            self.account(at..at + count, result);
        }
        count
    }

    /// Returns the failed step that the step at `at` depends on; `None` if there is none.
    fn awaited(&self, at: usize) -> Option<&Step> {
        for (failed, _) in &self.report.failed {
            let failed = &self.steps[*failed];
            if self.steps[at].waits_for(failed) {
                return Some(failed);
            }
        }
        None
    }

    /// Records `result` for the steps in `range`, which shared one request.
    fn account(&mut self, range: Range<usize>, result: Result<(), Cause>) {
        let steps = &self.steps[range.clone()];
        match result {
            Ok(()) => self.report.applied.extend(range),
            Err(err) if steps.iter().all(|step| is_moot(step, &err, self.on_error)) => {}
            Err(err) => {
                // The request may have been applied, entirely or in part. Undoing an unapplied step
                // is success.
                let is_unanswered = err.kernel().is_some_and(|said| said.unanswered);
                let is_unknown = is_unanswered || steps.iter().any(is_several);
                if is_unknown {
                    self.report.applied.extend(range.clone());
                }
                for at in range {
                    self.report.failed.push((at, err.clone()));
                }
            }
        }
    }

    /// Queues the request of the step at `at`. First sends the queue if it is for another
    /// namespace. Returns the number of steps in the request.
    fn queue(&mut self, at: usize, step: &Step) -> usize {
        let ns = step.ns();
        let other_socket = self
            .queue
            .last()
            .is_some_and(|last| self.steps[last.start].ns() != ns);
        // An unknown index is looked up on the same socket, so the queue is sent first.
        let has_to_wait =
            other_socket || link_of(step).is_some_and(|link| !self.kernel.knows(link));
        if has_to_wait && !self.goes_on_after_queue() {
            return 1;
        }
        let range = at..at + in_one_request(&self.steps[at..]);
        let count = range.len();
        match self.push(range.clone(), ns) {
            Ok(()) => self.queue.push(range),
            Err(err) => self.account(range, Err(err)),
        }
        count
    }

    /// Puts the request of the steps in `range` into the socket's queue.
    fn push(&mut self, range: Range<usize>, ns: Ns) -> Result<(), Cause> {
        let request = RouteRequest::of(&self.steps[range], self.kernel)?;
        let body = |out: &mut Vec<u8>| out.extend(&request.body);
        let socket = self.kernel.route(ns)?;
        socket.push(request.kind, request.flags, body);
        Ok(())
    }

    /// Sends the queue and records the outcome of each step.
    fn flush(&mut self) {
        let queue = std::mem::take(&mut self.queue);
        let (Some(first), Some(last)) = (queue.first(), queue.last()) else {
            return;
        };
        let (first, count) = (first.start, queue.iter().map(ExactSizeIterator::len).sum());
        let steps = self.steps;
        let ns = steps[last.start].ns();
        let outcomes = self.timed(
            first,
            |_| count,
            |run| -> Result<_, Cause> { Ok(run.kernel.route(ns)?.flush()?) },
        );
        match outcomes {
            Ok(outcomes) => {
                for (range, outcome) in queue.into_iter().zip(outcomes) {
                    self.account(range, outcome.error.map_or(Ok(()), |err| Err(err.into())));
                }
            }
            Err(err) => {
                for range in queue {
                    self.account(range, Err(err.clone()));
                }
            }
        }
    }

    /// Sends the queue. Returns false if a failure has ended the run.
    fn goes_on_after_queue(&mut self) -> bool {
        self.flush();
        !self.is_over()
    }

    /// Deletes the link of the step at `at` and the links of directly following steps in the same
    /// namespace. Returns the number of steps.
    fn del_links(&mut self, at: usize) -> usize {
        if !self.goes_on_after_queue() {
            return 1;
        }
        let ns = self.steps[at].ns();
        let links = deleted(&self.steps[at..]).map_while(|thing| {
            if let Thing::Link(link) = thing {
                Some(link)
            } else {
                None
            }
        });
        let links: Vec<&Link> = links.take_while(|link| link.at.ns == ns).collect();
        self.together(at, |kernel| unmake::links(kernel, ns, &links))
    }

    /// Deletes the nf_tables elements of the step at `at` and of directly following steps. Returns
    /// the number of steps.
    fn del_elements(&mut self, at: usize) -> usize {
        if !self.goes_on_after_queue() {
            return 1;
        }
        let things = deleted(&self.steps[at..]).take_while(|thing| is_only_elements(thing));
        let things: Vec<&Thing> = things.collect();
        self.together(at, |kernel| elements::del(kernel, &things))
    }

    /// Calls `work` for the step at `at` and following steps. `work` returns a result for each of
    /// these steps, which is recorded. Returns the number of steps.
    #[inline(never)] // Separate code for each `work`, as in `at_once`.
    fn together(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Kernel) -> Vec<Result<(), Cause>>,
    ) -> usize {
        let results = self.timed(at, Vec::len, |run| work(run.kernel));
        let count = results.len();
        for (place, result) in results.into_iter().enumerate() {
            self.account(at + place..at + place + 1, result);
        }
        count
    }

    /// Writes the sysctl of the step at `at`, and the sysctls of directly following steps in the
    /// namespace `ns`. The namespace is entered once. Returns the number of steps.
    fn sysctls(&mut self, at: usize, ns: Ns) -> usize {
        if !self.goes_on_after_queue() {
            return 1;
        }
        let is_one = |step: &&Step| matches!(step, Step::Add(Thing::Sysctl(one)) | Step::Ensure(Thing::Sysctl(one)) if one.ns == ns);
        let all: Vec<&Step> = self.steps[at..].iter().take_while(is_one).collect();
        let written = self.timed(
            at,
            |_| all.len(),
            |run| sysctl::write(run.kernel, ns, &all, run.facts),
        );
        match written {
            Ok(results) => {
                for (place, result) in results.into_iter().enumerate() {
                    self.sysctl_written(at + place, result);
                }
            }
            Err(err) => {
                for place in at..at + all.len() {
                    self.report.failed.push((place, err.clone().into()));
                }
            }
        }
        all.len()
    }

    fn sysctl_written(&mut self, at: usize, result: std::io::Result<bool>) {
        let step @ (Step::Add(Thing::Sysctl(sysctl)) | Step::Ensure(Thing::Sysctl(sysctl))) =
            &self.steps[at]
        else {
            return;
        };
        let cause = match result {
            Ok(true) => return self.report.applied.push(at),
            Ok(false) if sysctl.optional => return,
            Err(err) if sysctl.optional => {
                let log = self.kernel.log();
                return log.line(format_args!("{step}: {err}"));
            }
            Ok(false) => Errno::ENOENT.into(),
            Err(err) => err.into(),
        };
        self.report.failed.push((at, cause));
    }
}

/// Returns the things that the leading `Del` steps of `steps` delete.
fn deleted(steps: &[Step]) -> impl Iterator<Item = &Thing> {
    steps.iter().map_while(|step| {
        if let Step::Del(thing) = step {
            Some(thing)
        } else {
            None
        }
    })
}

/// True if the step takes several requests, so a failure can leave it half done.
fn is_several(step: &Step) -> bool {
    match step {
        Step::Add(thing) => effect::of(thing).is_several(),
        Step::Retune { .. } => true,
        Step::Ensure(_)
        | Step::Del(_)
        | Step::Set { .. }
        | Step::Wait(_)
        | Step::Forget(..)
        | Step::Legacy(_) => false,
    }
}

/// True if the step creates or changes something, so it must not follow a failure.
fn is_making(step: &Step) -> bool {
    !matches!(step, Step::Del(_) | Step::Forget(..) | Step::Legacy(_))
}

/// True if the error means that there is nothing to do: "not found" when deleting or cleaning up,
/// "exists" when ensuring.
fn is_moot(step: &Step, cause: &Cause, on_error: OnError) -> bool {
    const NOT_THERE: &[Errno] = &[
        Errno::ENOENT,
        Errno::ENODEV,
        Errno::EADDRNOTAVAIL,
        Errno::ESRCH,
        Errno::ENXIO,
    ];
    let Some(KernelError { errno, .. }) = cause.kernel() else {
        return false;
    };
    match step {
        Step::Del(thing) => effect::of(thing).is_gone(*errno),
        Step::Forget(..) => NOT_THERE.contains(errno),
        Step::Ensure(Thing::Addr(_)) => *errno == Errno::EEXIST,
        Step::Add(Thing::NoRoute(_)) if *errno == Errno::ESRCH => true,
        // Such a step may restore an old value on a deleted link.
        Step::Add(_)
        | Step::Ensure(_)
        | Step::Set { .. }
        | Step::Retune { .. }
        | Step::Wait(_)
        | Step::Legacy(_) => on_error == OnError::GoOn && NOT_THERE.contains(errno),
    }
}
