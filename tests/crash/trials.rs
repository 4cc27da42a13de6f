//! Trials: each injects a fault into one system call of ADD or DEL, cleans up with DEL or GC, and
//! runs ADD again.

use crate::cluster::Due;
use crate::points::{Fault, HUNG, Point, points, run};
use crate::world::{World, ok};
use braid_tests::{Answer, Call, Feature};
use std::io::Write;

/// Text in the error of an ADD that failed and could not be rolled back completely.
const CONFESSION: &str = "left behind until DEL or GC";
/// Number of trials between two checks that the reference host-local can use the leases.
const REFERENCE_STEP: usize = 16;

/// CNI verb that cleans up after a trial's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaner {
    Del,
    Gc,
}

/// Trials at all points of a call.
struct Pass<'a> {
    world: &'a World,
    verb: &'static str,
    cleaner: Cleaner,
    /// True if the host is wiped before each trial.
    is_fresh: bool,
    /// Number of trials so far.
    count: usize,
    missed: Vec<String>,
    failures: Vec<String>,
}

/// Kind of fault: the process is killed, or the system call fails.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Kill,
    Fail,
}

/// Form of the trials of a verb: kind of fault, verb that cleans up, and true if the host is wiped
/// before each trial.
type Form = (Harm, Cleaner, bool);

/// Index of a form in [`ADD`] and [`DEL`]: the process is killed, and DEL cleans up.
pub(crate) const KILLED: usize = 0;
pub(crate) const COLLECTED: usize = 1;
pub(crate) const FAILED: usize = 2;

/// Forms of ADD: killed on a used host, killed on a wiped host, failing on a wiped host.
const ADD: [Form; 3] = [
    (Harm::Kill, Cleaner::Del, false),
    (Harm::Kill, Cleaner::Gc, true),
    (Harm::Fail, Cleaner::Del, true),
];
/// Forms of DEL: killed and repeated, killed before a GC, failing and repeated.
const DEL: [Form; 3] = [
    (Harm::Kill, Cleaner::Del, false),
    (Harm::Kill, Cleaner::Gc, false),
    (Harm::Fail, Cleaner::Del, false),
];

/// Runs trials of ADD of `plugin` in all forms.
pub(crate) fn add(plugin: &'static str) {
    all(plugin, "ADD", &[KILLED, COLLECTED, FAILED]);
}

/// Runs trials of DEL of `plugin` in all forms.
pub(crate) fn del(plugin: &'static str) {
    all(plugin, "DEL", &[KILLED, COLLECTED, FAILED]);
}

/// Runs trials of a pod's ADD in one form. Forms are separate tests, so that they can run on
/// different machines: a trial with an API server takes longer.
pub(crate) fn add_of_pod(form: usize) {
    all("pod", "ADD", &[form]);
}

/// Runs trials of a pod's DEL in one form.
pub(crate) fn del_of_pod(form: usize) {
    all("pod", "DEL", &[form]);
}

/// Runs trials of a call of a pod with an address that is unique in the cluster, in one form.
pub(crate) fn pooled(verb: &'static str, form: usize) {
    all("pooled", verb, &[form]);
}

/// Checks that ADD and DEL of `plugin` do not wait for a disk.
pub(crate) fn no_sync(plugin: &'static str) {
    let Some(world) = World::new(plugin, "no-sync") else {
        return;
    };
    let call = world.call("synced");
    for verb in ["ADD", "DEL"] {
        let waits: Vec<String> = points(&call, verb)
            .iter()
            .filter(|point| point.waits_for_a_disk())
            .map(Point::to_string)
            .collect();
        assert_eq!(waits, [""; 0], "{verb} of {plugin}");
    }
}

fn all(plugin: &'static str, verb: &'static str, numbers: &[usize]) {
    let Some(world) = World::new(plugin, &format!("{}-{}", verb.to_lowercase(), numbers[0])) else {
        return;
    };
    let mut failures = Vec::new();
    let mut summary = format!("crash {plugin}");
    for &number in numbers {
        let (harm, cleaner, is_fresh) = if verb == "ADD" {
            ADD[number]
        } else {
            DEL[number]
        };
        let mut pass = Pass {
            world: &world,
            verb,
            cleaner,
            is_fresh,
            count: 0,
            missed: Vec::new(),
            failures: Vec::new(),
        };
        pass.go(harm, number);
        let (count, missed, failed) = (pass.count, pass.missed.len(), pass.failures.len());
        let made = format!("{count} trials, {missed} not reached, {failed} failed");
        summary = format!("{summary}; {verb} {harm:?} then {cleaner:?}: {made}");
        failures.extend(pass.failures);
    }
    // This bypasses the test harness, which hides the output of passing tests.
    let _ = writeln!(std::io::stderr(), "{summary}");
    assert!(
        failures.is_empty(),
        "{} trials failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

impl Pass<'_> {
    fn go(&mut self, harm: Harm, number: usize) {
        for point in thinned(self.points(), number) {
            let faults: Vec<Fault> = match harm {
                Harm::Kill => vec![Fault::Kill],
                Harm::Fail => point
                    .errors()
                    .iter()
                    .map(|errno| Fault::Error(errno))
                    .collect(),
            };
            for fault in faults {
                self.count += 1;
                if let Err(why) = self.trial(&point, fault) {
                    self.failures.push(format!(
                        "{} {fault:?} at {point}: then {:?}: {why}",
                        self.verb, self.cleaner
                    ));
                    self.world.wipe();
                }
            }
        }
        self.failures
            .extend(self.world.all_addresses_are_free().err());
        // The constant 1 is for samples, which may have few points.
        if self.missed.len() > 1 + self.count / 10 {
            let missed = self.missed.join("\n");
            self.failures.push(format!(
                "of {} calls these never came to their points:\n{missed}",
                self.count
            ));
        }
    }

    /// Returns the points of a call without faults. The host is in the same state as in the trials.
    fn points(&self) -> Vec<Point> {
        self.world.wipe();
        let call = self.world.call("points");
        // Sysctls survive a wipe, so the very first call makes system calls that no trial makes.
        call.add().result();
        call.del().ok();
        if self.is_fresh {
            self.world.wipe();
        }
        if self.verb == "DEL" {
            call.add().result();
        }
        let points = points(&call, self.verb);
        call.del().ok();
        points
    }

    fn trial(&mut self, point: &Point, fault: Fault) -> Result<(), String> {
        let id = format!("trial{}", self.count);
        let call = self.world.call(&id);
        if self.is_fresh {
            self.world.wipe();
        }
        if self.verb == "DEL" {
            call.add().result();
        }
        match run(&call, self.verb, point, fault) {
            Some(answer) => {
                self.judge(&call, point, fault, &answer)?;
                let due = match (self.verb, answer.code) {
                    ("ADD", 0) => Due::All,
                    ("ADD", 1) => Due::Nothing,
                    _ => Due::Either,
                };
                self.world.judge_status(&id, due)?;
            }
            None => self.missed.push(point.to_string()),
        }
        if self.count.is_multiple_of(REFERENCE_STEP) {
            self.reference_can_lease()?;
        }
        match self.cleaner {
            Cleaner::Del => ok("DEL", &call.del())?,
            Cleaner::Gc => ok("GC", &call.gc(&[]))?,
        }
        self.nothing_left()?;
        let again = call.add();
        if again.code != 0 {
            return Err(format!("a second ADD failed: {}", again.stdout));
        }
        self.world.attached()?;
        self.world.judge_status(&id, Due::All)?;
        ok("the last DEL", &call.del())
    }

    /// Checks the call with the fault: it must end in time, and either leave a clean host or report
    /// what it has left.
    fn judge(
        &self,
        call: &Call,
        point: &Point,
        fault: Fault,
        answer: &Answer,
    ) -> Result<(), String> {
        let said = answer.stdout.as_str();
        match answer.code {
            HUNG => Err("the call hung".to_owned()),
            128.. if matches!(fault, Fault::Kill) || point.may_end_the_process() => Ok(()),
            0 if self.verb == "DEL" => self.nothing_left(),
            0 => {
                self.world.attached()?;
                ok(
                    "CHECK of an ADD that said nothing",
                    &call.check(&answer.result()),
                )
            }
            1 if said.contains("\"msg\"") && said.contains(CONFESSION) => Ok(()),
            1 if said.contains("\"msg\"") && self.verb == "ADD" => self
                .nothing_left()
                .map_err(|left| format!("{left} by an ADD that did not say so: {said}")),
            1 if said.contains("\"msg\"") || point.is_answer() => Ok(()),
            _ if point.is_start_up => Ok(()),
            code => Err(format!(
                "the call ended with {code}: {said:?} {}",
                answer.stderr
            )),
        }
    }

    fn nothing_left(&self) -> Result<(), String> {
        let left = self.world.left();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("left behind: {left:?}"))
        }
    }

    /// Checks that the reference host-local can reserve and release an address in the current
    /// store.
    fn reference_can_lease(&self) -> Result<(), String> {
        if Feature::Reference.missing().is_some() {
            return Ok(());
        }
        let Some(call) = self.world.reference() else {
            return Ok(());
        };
        let added = call.add();
        if added.code != 0 {
            return Err(format!(
                "the reference host-local has no use for the store: {}",
                added.stdout
            ));
        }
        ok("DEL of the reference host-local", &call.del())
    }
}

/// Returns every `BRAID_CRASH_STEP`th point, starting at the index `BRAID_CRASH_OFFSET` plus
/// `pass`.
fn thinned(points: Vec<Point>, pass: usize) -> Vec<Point> {
    let number = |variable: &str, default| {
        std::env::var(variable).map_or(default, |value| {
            value.parse().expect("BRAID_CRASH_… is a number")
        })
    };
    let step = number("BRAID_CRASH_STEP", 1).max(1);
    let offset = (number("BRAID_CRASH_OFFSET", 0) + pass) % step;
    points.into_iter().skip(offset).step_by(step).collect()
}
