//! Golden files of plans: for each configuration, the plan on a host that the case describes.
//! The tests need neither root nor a particular kernel.
//!
//! A case is `<type>/<name>.json`, and its golden file is `<type>/<name>.txt`. `BRAID_BLESS=1`
//! rewrites the golden files.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by a panic"
)]

mod case;

use case::Case;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Returns the files with this extension in the folders of all types, sorted.
fn files(extension: &str) -> Vec<PathBuf> {
    let entries = |path: &Path| {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    let types = entries(&folder()).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = types.flat_map(|path| entries(&path)).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

#[test]
fn every_plan_matches_its_golden() {
    let bless = std::env::var_os("BRAID_BLESS").is_some();
    let mut differing = Vec::new();
    for path in files("json") {
        let text = Case::read(&path).text();
        let golden = path.with_extension("txt");
        if fs::read_to_string(&golden).unwrap_or_default() != text {
            if bless {
                fs::write(&golden, &text).unwrap();
            } else {
                differing.push(format!("{}:\n{text}", golden.display()));
            }
        }
    }
    assert!(
        differing.is_empty(),
        "plans changed; `cargo xtask bless` takes them over:\n{}",
        differing.join("\n")
    );
}

#[test]
fn every_golden_has_its_case() {
    let orphans: Vec<PathBuf> = files("txt")
        .into_iter()
        .filter(|path| !path.with_extension("json").is_file())
        .collect();
    assert_eq!(orphans, Vec::<PathBuf>::new());
}

#[test]
fn every_type_has_a_golden() {
    let has = |kind: &&&str| {
        files("json")
            .iter()
            .any(|path| path.parent().is_some_and(|dir| dir.ends_with(kind)))
    };
    let missing: Vec<&&str> = braid_core::plugins::TYPES
        .iter()
        .filter(|kind| !has(kind))
        .collect();
    assert_eq!(missing, Vec::<&&str>::new());
}
