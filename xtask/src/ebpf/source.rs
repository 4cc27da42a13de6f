//! Source of the committed object: one checksum per file.

use super::OBJECT;
use anyhow::{Context, Result};
use braid_testbed::sh;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the current checksums of the object and of every file below ebpf/ that determines it, in
/// the format of sha256sum(1), ordered by path. The compiler is not included: any one that is new
/// enough may be used.
pub(super) fn checksums() -> Result<String> {
    let root = sh::root();
    let mut files = vec![root.join(OBJECT)];
    collect(&root.join("ebpf"), &mut files)?;
    let mut lines = BTreeMap::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .display()
            .to_string();
        lines.insert(name, Sha256::digest(content));
    }
    Ok(lines.iter().fold(String::new(), |mut text, (name, sum)| {
        let _ = writeln!(text, "{sum:x}  {name}");
        text
    }))
}

/// Collects Rust and TOML files and the lock file; licences and build products do not affect the
/// object.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry
            .with_context(|| format!("list {}", dir.display()))?
            .path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|ext| ["rs", "toml", "lock"].iter().any(|known| ext == *known))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the changes of files between two lists of checksums.
pub(super) fn differences(recorded: &str, present: &str) -> Vec<String> {
    let (old, new) = (by_name(recorded), by_name(present));
    let gone = old
        .keys()
        .filter(|name| !new.contains_key(*name))
        .map(|name| format!("{name} is gone"));
    let other = new.iter().filter_map(|(name, sum)| match old.get(name) {
        None => Some(format!("{name} is new")),
        Some(old) if old != sum => Some(format!("{name} changed")),
        Some(_) => None,
    });
    gone.chain(other).collect()
}

fn by_name(checksums: &str) -> BTreeMap<&str, &str> {
    checksums
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, name)| (name, sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_do_not_differ() {
        assert_eq!(
            differences("aa  a.rs\nbb  b.rs\n", "bb  b.rs\naa  a.rs\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn changed_new_and_missing_files_are_named() {
        let differences = differences("aa  a.rs\nbb  b.rs\n", "a0  a.rs\ncc  c.rs\n");
        assert_eq!(differences, ["b.rs is gone", "a.rs changed", "c.rs is new"]);
    }
}
