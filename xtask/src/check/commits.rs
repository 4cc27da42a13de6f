//! Checks of commit messages: body lines fit into 72 columns, and a change that users see has a
//! body.

use anyhow::{Result, ensure};
use braid_testbed::sh;

/// Only commits after this one are checked.
const AFTER: &str = "96116af63b63";
/// Maximum number of columns in a line.
const MOST: usize = 72;
/// Changelog for users. A commit that adds a line to this file changes behaviour.
const CHANGELOG: &str = "CHANGELOG.md";

/// Parts of a commit that the check reads.
#[derive(Debug, Default)]
struct Commit {
    /// Abbreviated hash.
    hash: String,
    body: String,
    /// True if the commit adds a line to [`CHANGELOG`].
    changes_behaviour: bool,
}

pub(super) fn check() -> Result<String> {
    let known = format!("{AFTER}^{{commit}}");
    if git(&["rev-parse", "--quiet", "--verify", &known]).is_err() {
        return Ok(format!("not checked: this clone has no commit {AFTER}"));
    }
    let range = format!("{AFTER}..HEAD");
    let hashes = git(&["rev-list", "--no-merges", "--abbrev-commit", &range])?;
    let commits = hashes.lines().map(read).collect::<Result<Vec<_>>>()?;
    let wrong: Vec<String> = commits.iter().flat_map(faults).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{} messages since {AFTER}", commits.len()))
}

fn read(hash: &str) -> Result<Commit> {
    let body = git(&["show", "--no-patch", "--format=%b", hash])?;
    let patch = git(&["show", "--format=", hash, "--", CHANGELOG])?;
    Ok(Commit {
        hash: hash.to_owned(),
        body,
        changes_behaviour: adds_a_line(&patch),
    })
}

fn git(args: &[&str]) -> Result<String> {
    sh::read(&mut sh::cmd("git", args))
}

/// True if a patch adds a line that is not empty.
fn adds_a_line(patch: &str) -> bool {
    patch
        .lines()
        .filter(|line| !line.starts_with("+++"))
        .any(|line| {
            line.strip_prefix('+')
                .is_some_and(|new| !new.trim().is_empty())
        })
}

fn faults(commit: &Commit) -> Vec<String> {
    let hash = &commit.hash;
    let mut faults = Vec::new();
    for line in commit.body.lines() {
        let columns = line.chars().count();
        if columns > MOST {
            faults.push(format!(
                "{hash}: {columns} columns, more than {MOST}: {line}"
            ));
        }
    }
    if commit.changes_behaviour && commit.body.trim().is_empty() {
        faults.push(format!("{hash}: adds to {CHANGELOG}, and has no body"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_of_a_body_is_refused() {
        let body = format!("{}\n{}\n", "a".repeat(MOST), "b".repeat(MOST + 1));
        let commit = Commit {
            body,
            ..Commit::default()
        };
        let faults = faults(&commit);
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("73 columns"), "{faults:?}");
    }

    #[test]
    fn a_line_for_users_needs_a_body() {
        let mut commit = Commit {
            changes_behaviour: true,
            ..Commit::default()
        };
        assert_eq!(faults(&commit).len(), 1);
        commit.body = "The reason.".to_owned();
        assert!(faults(&commit).is_empty());
    }

    #[test]
    fn only_added_text_is_a_line_for_users() {
        assert!(adds_a_line("+++ b/CHANGELOG.md\n+- braid top\n"));
        assert!(!adds_a_line("+++ b/CHANGELOG.md\n-- braid top\n+\n"));
    }
}
