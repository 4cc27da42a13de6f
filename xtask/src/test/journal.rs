//! Journal that the tests write during a run: `TIME <seconds> <test>`, `SKIP <test>: <why>`,
//! `PANIC <test>: <why>`.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Environment variable that passes the journal's path to the tests.
pub(crate) const VARIABLE: &str = "BRAID_TEST_JOURNAL";
/// Number of slowest tests that are listed at the end of a run.
const SLOWEST: usize = 10;
/// Text in the reason of a skipped test that another kernel can run.
const FOR_ANOTHER_KERNEL: &str = "run by cargo xtask vm";

/// Starts a run with an empty journal.
pub(super) fn begin(path: &Path) -> Result<()> {
    fs::write(path, "").with_context(|| format!("write {}", path.display()))
}

/// Appends the times of tests on another kernel to this run's journal, if there is one. `notes` is
/// the text of the other kernel's journal.
pub(crate) fn add_times(notes: &str, kernel: &str) -> Result<()> {
    let Some(path) = std::env::var_os(VARIABLE) else {
        return Ok(());
    };
    let mut file = File::options()
        .append(true)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    Ok(file.write_all(times_on(notes, kernel).as_bytes())?)
}

fn times_on(notes: &str, kernel: &str) -> String {
    let mut times = Vec::new();
    for line in notes.lines() {
        if line.starts_with("TIME ") {
            times.push(format!("{line} on {kernel}\n"));
        }
    }
    times.concat()
}

/// Returns the names of the tests in `target` that were skipped because of this machine's kernel.
pub(crate) fn left_to_other_kernels(path: &Path, target: &str) -> Result<Vec<String>> {
    Ok(left_to(&read(path)?, target))
}

fn left_to(notes: &str, target: &str) -> Vec<String> {
    let name = |line: &str| {
        let (test, why) = line.strip_prefix("SKIP ")?.split_once(": ")?;
        let name = test.strip_prefix(target)?.strip_prefix("::")?;
        why.contains(FOR_ANOTHER_KERNEL).then(|| name.to_owned())
    };
    let names: BTreeSet<String> = notes.lines().filter_map(name).collect();
    names.into_iter().collect()
}

/// Returns a line for each of the slowest tests, with the total time of the test's sandboxes.
pub(super) fn slowest(path: &Path) -> Result<Vec<String>> {
    Ok(slowest_of(&read(path)?))
}

fn slowest_of(notes: &str) -> Vec<String> {
    let time = |line: &str| {
        let (seconds, test) = line.strip_prefix("TIME ")?.split_once(' ')?;
        Some((seconds.parse::<f64>().ok()?, test.to_owned()))
    };
    let mut times = BTreeMap::<String, f64>::new();
    for (seconds, test) in notes.lines().filter_map(time) {
        *times.entry(test).or_default() += seconds;
    }
    let mut times: Vec<(String, f64)> = times.into_iter().collect();
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    times
        .iter()
        .take(SLOWEST)
        .map(|(test, seconds)| format!("{seconds:>7.1} s  {test}"))
        .collect()
}

/// Returns a line for each panic of a test on this machine's kernel: the test, and why.
pub(super) fn panics(path: &Path) -> Result<Vec<String>> {
    Ok(panics_in(&read(path)?))
}

fn panics_in(notes: &str) -> Vec<String> {
    notes
        .lines()
        .filter_map(|line| line.strip_prefix("PANIC "))
        .map(ToOwned::to_owned)
        .collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &str = "TIME 0.4 a::b\nSKIP netns::ipvlan::a: needs ipvlan, run by cargo xtask vm 6.12\n\
                         SKIP netns::x::y: needs bpftool, a package of that name\nTIME 12.5 c\n\
                         SKIP crash::ipvlan_add: needs ipvlan, run by cargo xtask vm 6.12\nTIME 13.0 a::b\n\
                         SKIP netns::ipvlan::a: needs ipvlan, run by cargo xtask vm 6.12\n\
                         PANIC netns::order::d: 4 turned\n";

    #[test]
    fn tests_without_kernel_support_are_left_to_another_kernel() {
        assert_eq!(left_to(NOTES, "netns"), ["ipvlan::a"]);
        assert_eq!(left_to(NOTES, "crash"), ["ipvlan_add"]);
    }

    #[test]
    fn a_time_on_another_kernel_names_it() {
        assert_eq!(
            times_on(NOTES, "7.3"),
            "TIME 0.4 a::b on 7.3\nTIME 12.5 c on 7.3\nTIME 13.0 a::b on 7.3\n"
        );
    }

    #[test]
    fn a_panic_is_listed_with_its_reason() {
        assert_eq!(panics_in(NOTES), ["netns::order::d: 4 turned"]);
    }

    #[test]
    fn the_slowest_test_comes_first_with_all_its_sandboxes() {
        assert_eq!(slowest_of(NOTES), ["   13.4 s  a::b", "   12.5 s  c"]);
    }
}
