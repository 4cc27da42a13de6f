//! Import cycles between the files of a crate. New cycles are refused, and known cycles may only
//! shrink.

use super::uses::Crate;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Root files of the crates.
const CRATES: &[&str] = &[
    "cni-plugin/agent/src/lib.rs",
    "cni-plugin/client/src/lib.rs",
    "cni-plugin/core/src/lib.rs",
    "cni-plugin/node/src/lib.rs",
    "cni-plugin/src/lib.rs",
    "bench/src/main.rs",
    "tests/src/lib.rs",
    "tests/cluster/src/main.rs",
    "tests/testbed/src/lib.rs",
    "xtask/src/main.rs",
];
/// File that lists the known cycles: a line per file, and an empty line between cycles.
const KNOWN: &str = "xtask/src/check/cycles.txt";

/// Files, each with the files that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;
/// Files that all use each other, directly or through others.
type Cycle = BTreeSet<String>;

/// Compares the cycles of all crates with the known cycles. Also fails if a known cycle became
/// smaller, until the list is updated.
pub(super) fn check() -> Result<String> {
    let known =
        fs::read_to_string(sh::root().join(KNOWN)).with_context(|| format!("read {KNOWN}"))?;
    let known = parse(&known);
    let (mut found, mut grown) = (Vec::new(), Vec::new());
    for root in CRATES {
        let uses = uses(&sh::root().join(root))?;
        let cycles = components(&uses);
        for cycle in &cycles {
            if !is_within(cycle, &known) {
                grown.push(edges(cycle, &uses));
            }
        }
        found.extend(cycles);
    }
    found.sort();
    ensure!(
        grown.is_empty(),
        "files that use each other:\n{}",
        grown.join("\n\n")
    );
    ensure_written_down(&found, &known)?;
    let largest = found.iter().map(BTreeSet::len).max().unwrap_or_default();
    let files: usize = found.iter().map(BTreeSet::len).sum();
    Ok(format!(
        "{} known cycles with {files} files, the largest with {largest}",
        found.len()
    ))
}

/// Fails if the known cycles in the list differ from the cycles found.
fn ensure_written_down(found: &[Cycle], known: &[Cycle]) -> Result<()> {
    ensure!(
        found == known,
        "cycles became smaller; change {KNOWN} to:\n{}",
        text_of(found)
    );
    Ok(())
}

/// Returns a text with the uses between the files of a cycle, one line per file.
fn edges(cycle: &Cycle, uses: &Uses) -> String {
    let mut lines = Vec::new();
    for file in cycle {
        let Some(used) = uses.get(file) else {
            continue;
        };
        let used: Vec<&str> = used.intersection(cycle).map(String::as_str).collect();
        lines.push(format!("{file} uses {}", used.join(", ")));
    }
    lines.join("\n")
}

fn is_within(cycle: &Cycle, known: &[Cycle]) -> bool {
    known.iter().any(|known| cycle.is_subset(known))
}

fn parse(text: &str) -> Vec<Cycle> {
    let mut cycles = Vec::new();
    for lines in text.split("\n\n") {
        let cycle: Cycle = lines.lines().map(str::to_owned).collect();
        if !cycle.is_empty() {
            cycles.push(cycle);
        }
    }
    cycles
}

fn text_of(cycles: &[Cycle]) -> String {
    let mut texts = Vec::new();
    for cycle in cycles {
        let files: Vec<&str> = cycle.iter().map(String::as_str).collect();
        texts.push(files.join("\n"));
    }
    texts.join("\n\n") + "\n"
}

/// Returns the uses between the files of a crate. `root` is the crate's root file; the returned
/// paths are relative to the checkout.
fn uses(root: &Path) -> Result<Uses> {
    let files = Crate::read(root)?;
    let name = |path: &Path| {
        path.strip_prefix(sh::root())
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let mut uses = Uses::new();
    for (file, used) in files.uses() {
        uses.insert(name(file), used.into_iter().map(name).collect());
    }
    Ok(uses)
}

/// Returns the cycles: the strongly connected components with more than one file.
fn components(uses: &Uses) -> Vec<Cycle> {
    let mut reached = BTreeMap::new();
    for file in uses.keys() {
        reached.insert(file.as_str(), reach(file, uses));
    }
    let mut cycles: Vec<Cycle> = Vec::new();
    for (file, from) in &reached {
        let mut cycle = Cycle::new();
        for other in from {
            if reached.get(other).is_some_and(|back| back.contains(file)) {
                cycle.insert((*other).to_owned());
            }
        }
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

/// Returns the files that a file uses, directly or through others.
fn reach<'u>(file: &str, uses: &'u Uses) -> BTreeSet<&'u str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![file];
    while let Some(file) = next.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if reached.insert(used.as_str()) {
                next.push(used);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles of a crate with these files.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
            fs::write(path, text).expect("a file");
        }
        let cycles = components(&uses(&dir.path().join("lib.rs")).expect("a crate"));
        let name = |file: &String| {
            Path::new(file)
                .strip_prefix(dir.path())
                .expect("in the folder")
                .display()
                .to_string()
        };
        cycles
            .iter()
            .map(|cycle| cycle.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn mutual_imports_are_a_cycle_and_module_declarations_are_not() {
        let none = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;"),
        ];
        assert_eq!(cycles_of(&none), [[""; 0]; 0]);
        let two = [
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b::B; pub fn a() {}"),
            ("b.rs", "use super::a::a;"),
        ];
        assert_eq!(cycles_of(&two), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn paths_in_code_count_and_paths_in_tests_do_not() {
        let a = ("a.rs", "use crate::b;\nfn f() { g!(b::B::new()) }");
        let lib = ("lib.rs", "mod a;\nmod b;");
        assert_eq!(
            cycles_of(&[lib, a, ("b.rs", "fn f() -> crate::a::A { x }")]),
            [["a.rs", "b.rs"]]
        );
        let tested =
            "pub struct B;\n#[cfg(test)]\nmod tests {\n use crate::a;\n fn f() { a::f() }\n}";
        assert_eq!(cycles_of(&[lib, a, ("b.rs", tested)]), [[""; 0]; 0]);
        let visible = "pub(in crate::a) struct B;";
        assert_eq!(cycles_of(&[lib, a, ("b.rs", visible)]), [[""; 0]; 0]);
    }

    #[test]
    fn a_known_cycle_may_shrink_and_must_then_be_updated() {
        let known = parse("a.rs\nb.rs\nc.rs\n\nd.rs\ne.rs\n");
        let cycle = |files: &[&str]| {
            files
                .iter()
                .map(|file| (*file).to_owned())
                .collect::<Cycle>()
        };
        assert_eq!(
            known,
            [cycle(&["a.rs", "b.rs", "c.rs"]), cycle(&["d.rs", "e.rs"])]
        );
        assert!(is_within(&cycle(&["a.rs", "c.rs"]), &known));
        assert!(
            !is_within(&cycle(&["c.rs", "d.rs"]), &known),
            "two cycles must not join"
        );
        let smaller = [cycle(&["a.rs", "c.rs"]), known[1].clone()];
        let refused = ensure_written_down(&smaller, &known)
            .expect_err("the list is longer")
            .to_string();
        assert_eq!(
            parse(refused.split_once(":\n").expect("the list").1),
            smaller
        );
        assert!(ensure_written_down(&known, &known).is_ok());
    }

    #[test]
    fn a_re_export_is_followed_to_the_defining_file() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\nmod c;\npub use b::{B, self as other};"),
            ("a/b.rs", "use super::c::C; pub struct B;"),
            ("a/c.rs", "use crate::a::B; pub struct C;"),
        ];
        assert_eq!(cycles_of(&files), [["a/b.rs", "a/c.rs"]]);
        let local = ("a/mod.rs", "mod b;\nmod c;\npub use b::b;\npub struct B;");
        let files = [
            files[0],
            local,
            ("a/b.rs", "use super::B; pub fn b() {}"),
            ("a/c.rs", "pub struct C;"),
        ];
        assert_eq!(cycles_of(&files), [["a/b.rs", "a/mod.rs"]]);
    }
}
