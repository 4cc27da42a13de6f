//! Checksums of the files from which the committed object was built.

use super::OBJECT;
use anyhow::{Context, Result};
use braid_testbed::sh;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns current checksums in the format of sha256sum(1), ordered by path. They cover the object
/// and every file below ebpf/ that determines the object. The compiler is not included, because any
/// compiler that is new enough may be used.
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
    let mut text = String::new();
    for (name, sum) in lines {
        let _ = writeln!(text, "{sum:x}  {name}");
    }
    Ok(text)
}

/// Adds the Rust files, TOML files and lock files below `dir` to `files`. Licences and build
/// products do not affect the object.
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

/// Returns a line for each file that is new, changed or gone between two lists of checksums.
pub(super) fn differences(recorded: &str, present: &str) -> Vec<String> {
    let (old, new) = (by_name(recorded), by_name(present));
    let mut differences = Vec::new();
    for name in old.keys() {
        if !new.contains_key(name) {
            differences.push(format!("{name} is gone"));
        }
    }
    for (name, sum) in &new {
        match old.get(name) {
            None => differences.push(format!("{name} is new")),
            Some(old) if old != sum => differences.push(format!("{name} changed")),
            Some(_) => {}
        }
    }
    differences
}

fn by_name(checksums: &str) -> BTreeMap<&str, &str> {
    let mut sums = BTreeMap::new();
    for line in checksums.lines() {
        if let Some((sum, name)) = line.split_once("  ") {
            sums.insert(name, sum);
        }
    }
    sums
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
