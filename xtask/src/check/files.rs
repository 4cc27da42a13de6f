//! Rust files of the checkout, read for the checks.

use anyhow::{Context, Result};
use braid_testbed::sh;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A file with its path from the root of the checkout.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

/// Reads all Rust files below a folder; build products are left out.
pub(super) fn all(folder: &str) -> Result<Vec<Source>> {
    let mut paths = Vec::new();
    list(&sh::root().join(folder), &mut paths)?;
    paths.iter().map(|path| read(path)).collect()
}

/// Reads the Rust files below a folder. Leaves out test files, and the test modules in other files.
pub(super) fn without_tests(folder: &str) -> Result<Vec<Source>> {
    let mut sources = all(folder)?;
    sources.retain(|source| !is_of_tests(source.path.trim_start_matches(folder)));
    for source in &mut sources {
        cut_tests(&mut source.text);
    }
    Ok(sources)
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry
            .with_context(|| format!("list {}", folder.display()))?
            .path();
        if path.is_dir() && path.file_name() != Some(OsStr::new("target")) {
            list(&path, paths)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Source> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let path = path.strip_prefix(sh::root()).unwrap_or(path);
    Ok(Source {
        path: path.display().to_string(),
        text,
    })
}

/// True if only tests compile the file at this path below a source folder.
fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Cuts off the test module, which is at the end of a file.
pub(super) fn cut_tests(text: &mut String) {
    text.truncate(text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len()));
}
