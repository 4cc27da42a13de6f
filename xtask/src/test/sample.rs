//! The sample of crash points and tests that a commit tries.

use braid_testbed::sh;

/// A number that differs between commits, so that the crash points tried differ; 0 outside a
/// checkout.
pub(crate) fn commit_number() -> u64 {
    let commit = sh::read(&mut sh::cmd("git", ["rev-parse", "HEAD"])).unwrap_or_default();
    commit
        .get(..8)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}
