//! Samples of crash points and tests, which differ between commits.

use braid_testbed::sh;

/// Returns a number that differs between commits, so that each commit tries other crash points. 0
/// outside a git checkout.
pub(crate) fn commit_number() -> u64 {
    let commit = sh::read(&mut sh::cmd("git", ["rev-parse", "HEAD"])).unwrap_or_default();
    commit
        .get(..8)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}
