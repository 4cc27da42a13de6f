//! How long the processors were busy, all together.

use anyhow::{Context, Result};
use std::time::Duration;

/// Length of one tick in `/proc/stat`: the kernel's `USER_HZ` is 100 on every architecture that plugins run on.
const TICK: Duration = Duration::from_millis(10);

/// Busy time of all processors since the start: all that is neither idle nor waiting for a disk.
pub(crate) fn busy() -> Result<Duration> {
    let text = crate::read("/proc/stat")?;
    parse(&text).context("/proc/stat has no line `cpu` as proc(5) says")
}

fn parse(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user nice system idle iowait irq softirq steal; guest and guest_nice, which follow, are part of user and nice.
    let ticks: Vec<u32> = line.split_whitespace().take(8).map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
    match ticks.as_slice() {
        [user, nice, system, _, _, rest @ ..] => Some(TICK * (user + nice + system + rest.iter().sum::<u32>())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_without_idle_and_iowait_and_counts_guests_once() {
        let text = "cpu  100 20 3 9000 800 4 5 6 70 8\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse(text), Some(TICK * (100 + 20 + 3 + 4 + 5 + 6)));
    }

    #[test]
    fn other_text_is_no_time() {
        assert_eq!(parse("cpu  1 2\n"), None);
        assert_eq!(parse("intr 1 2 3 4 5\n"), None);
    }
}
