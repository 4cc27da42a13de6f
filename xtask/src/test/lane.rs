//! Runs lanes of stages side by side, and keeps the result of each stage. A failure stops only the
//! stages that need the failed stage.

use super::stage::Stage;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Stages that run one after the other. A lane in the background (`is_behind`) has a lower
/// priority.
pub(super) struct Lane {
    pub(super) stages: Vec<Stage>,
    pub(super) is_behind: bool,
}

/// Result of a stage.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    name: &'static str,
    /// Start of the stage, since the start of the run.
    from: Duration,
    took: Duration,
    failure: Option<String>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            from,
            took,
            failure,
        } = self;
        let (from, took) = (from.as_secs(), took.as_secs());
        let verdict = failure
            .as_ref()
            .map_or_else(|| "passed".to_owned(), |why| format!("FAILED: {why}"));
        write!(
            f,
            "{name:12} {took:>5} s, started at {from:>5} s: {verdict}"
        )
    }
}

/// Runs all lanes. Calls `work` for each stage, with the stage's time limit and its lane's
/// `is_behind`. The time limit is shortened if less time is left of the run's `limit`. Returns the
/// results in the order in which the stages ended.
pub(super) fn run(
    lanes: &[Lane],
    limit: Duration,
    work: impl Fn(&Stage, Duration, bool) -> Result<()> + Sync,
) -> Vec<Ended> {
    let board = Board {
        start: Instant::now(),
        ended: Mutex::default(),
        changed: Condvar::new(),
    };
    let run_stage = |stage: &Stage, is_behind| {
        let missing = board.wait_for(stage);
        let (from, begin) = (board.start.elapsed(), Instant::now());
        let left = limit.saturating_sub(from);
        let result = match missing {
            Some(name) => Err(anyhow::anyhow!("not run, for it needs {name:?}")),
            None if left.is_zero() => Err(anyhow::anyhow!(
                "not run, since the run's {} minutes are over",
                limit.as_secs() / 60
            )),
            None => work(stage, stage.limit.min(left), is_behind),
        };
        let failure = result.err().map(|err| format!("{err:#}"));
        board.note(Ended {
            name: stage.name,
            from,
            took: begin.elapsed(),
            failure,
        });
    };
    thread::scope(|scope| {
        for lane in lanes {
            scope.spawn(|| {
                for stage in &lane.stages {
                    run_stage(stage, lane.is_behind);
                }
            });
        }
    });
    let mut ended: Vec<Ended> = board.lock().values().cloned().collect();
    ended.sort_by_key(|ended| ended.from + ended.took);
    ended
}

/// Results so far. Stages wait here for the results of the stages that they need.
struct Board {
    start: Instant,
    ended: Mutex<BTreeMap<&'static str, Ended>>,
    changed: Condvar,
}

impl Board {
    /// Waits until all stages that must precede `stage` have ended. Returns the name of a stage
    /// that it needs and that failed, if any.
    fn wait_for(&self, stage: &Stage) -> Option<&'static str> {
        let mut ended = self.lock();
        let mut awaited = stage.needs.to_vec();
        awaited.extend(stage.after);
        while !awaited.iter().all(|name| ended.contains_key(name)) {
            ended = self
                .changed
                .wait(ended)
                .unwrap_or_else(PoisonError::into_inner);
        }
        stage
            .needs
            .iter()
            .find(|name| ended[*name].failure.is_some())
            .copied()
    }

    fn note(&self, ended: Ended) {
        println!("=== {ended}");
        self.lock().insert(ended.name, ended);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prints all results, and fails if a stage failed.
pub(super) fn tell(all: &[Ended]) -> Result<()> {
    println!();
    for ended in all {
        println!("{ended}");
    }
    let seconds = all
        .last()
        .map_or(0, |last| (last.from + last.took).as_secs());
    let mut failed = Vec::new();
    for ended in all {
        if ended.failure.is_some() {
            failed.push(ended.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed after {seconds} s: {}", failed.join(", "));
    }
    println!("all passed in {seconds} s");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn stage(name: &'static str, needs: &'static [&'static str]) -> Stage {
        Stage {
            name,
            needs,
            after: None,
            limit: MINUTE,
            work: |_| Ok(()),
        }
    }

    fn lanes() -> [Lane; 2] {
        let front = vec![
            stage("a", &[]),
            stage("b", &["x"]),
            stage("c", &["b"]),
            stage("d", &[]),
        ];
        [
            Lane {
                stages: front,
                is_behind: false,
            },
            Lane {
                stages: vec![stage("x", &["a"])],
                is_behind: true,
            },
        ]
    }

    fn failures(all: &[Ended]) -> Vec<(&str, Option<&str>)> {
        all.iter()
            .map(|ended| (ended.name, ended.failure.as_deref()))
            .collect()
    }

    #[test]
    fn a_stage_waits_for_needed_stages_in_other_lanes() {
        let ended = run(&lanes(), MINUTE, |_, _, _| Ok(()));
        assert_eq!(
            failures(&ended),
            [
                ("a", None),
                ("x", None),
                ("b", None),
                ("c", None),
                ("d", None)
            ]
        );
        assert!(tell(&ended).is_ok());
    }

    #[test]
    fn only_stages_that_need_a_failed_stage_are_skipped() {
        let ended = run(&lanes(), MINUTE, |stage, _, _| {
            if stage.name == "x" {
                bail!("no network")
            }
            Ok(())
        });
        let (b, c) = ("not run, for it needs \"x\"", "not run, for it needs \"b\"");
        let all = [
            ("a", None),
            ("x", Some("no network")),
            ("b", Some(b)),
            ("c", Some(c)),
            ("d", None),
        ];
        assert_eq!(failures(&ended), all);
        assert!(tell(&ended).unwrap_err().to_string().ends_with(": x, b, c"));
    }

    #[test]
    fn a_stage_runs_after_a_failed_one_that_it_does_not_need() {
        let last = Stage {
            after: Some("x"),
            ..stage("y", &[])
        };
        let mut lanes = lanes();
        lanes[0].stages.insert(1, last);
        let ended = run(&lanes, MINUTE, |stage, _, _| {
            if stage.name == "x" {
                bail!("no network")
            }
            Ok(())
        });
        assert_eq!(
            failures(&ended)[..3],
            [("a", None), ("x", Some("no network")), ("y", None)]
        );
    }

    #[test]
    fn a_stage_ends_with_the_run() {
        let limit = Duration::from_secs(20);
        let ended = run(&lanes(), limit, |_, most, _| {
            if most <= limit {
                Ok(())
            } else {
                bail!("{most:?}")
            }
        });
        assert!(
            ended.iter().all(|ended| ended.failure.is_none()),
            "{ended:?}"
        );
        let ended = run(&lanes(), Duration::ZERO, |_, _, _| Ok(()));
        assert_eq!(
            ended[0].failure.as_deref(),
            Some("not run, since the run's 0 minutes are over")
        );
    }
}
