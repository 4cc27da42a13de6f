//! Busy time of all processors together.

use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// Length of a tick in `/proc/stat`: `USER_HZ` is 100 on every architecture that plugins run on.
const TICK: Duration = Duration::from_millis(10);

/// A moment, and the processors' idle time until then.
///
/// The kernel measures idle time, but it only samples busy time at each tick. Samples would count
/// work after a timer, such as the timer of a queue, by chance. So busy time is calculated from
/// idle time.
pub(crate) struct Moment {
    at: Instant,
    idle: Duration,
    processors: u32,
}

impl Moment {
    pub(crate) fn now() -> Result<Self> {
        let text = crate::read::read("/proc/stat")?;
        let (idle, processors) =
            parse(&text).context("/proc/stat has no line `cpu` as proc(5) says")?;
        Ok(Self {
            at: Instant::now(),
            idle,
            processors,
        })
    }

    /// Returns the busy time of all processors since this moment.
    pub(crate) fn busy(&self) -> Result<Duration> {
        let now = Self::now()?;
        let passed = now.at.duration_since(self.at) * self.processors;
        Ok(passed.saturating_sub(now.idle.saturating_sub(self.idle)))
    }
}

/// Returns the idle time of all processors together, including waits for a disk, and the number of
/// processors.
fn parse(text: &str) -> Option<(Duration, u32)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user nice system idle iowait …
    let ticks: Vec<u32> = line
        .split_whitespace()
        .take(5)
        .map(|tick| tick.parse().ok())
        .collect::<Option<_>>()?;
    let [_, _, _, idle, iowait] = ticks[..] else {
        return None;
    };
    let processors = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    Some((TICK * (idle + iowait), u32::try_from(processors).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_includes_iowait_of_all_processors() {
        let text =
            "cpu  100 20 3 9000 800 4 5 6 70 8\ncpu0 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1\nintr 1\n";
        assert_eq!(parse(text), Some((TICK * 9800, 2)));
    }

    #[test]
    fn other_text_is_not_a_time() {
        assert_eq!(parse("cpu  1 2\n"), None);
        assert_eq!(parse("intr 1 2 3 4 5\n"), None);
    }
}
