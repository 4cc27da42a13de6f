//! `cargo xtask order`: `cni-plugin/order.ld`, the functions that plugin calls run, for the linker to lay side by side.
//!
//! A function that is missing in the list, or that is there no more, costs a page fault and nothing else: the list is
//! written anew when much has changed, not with every change.

use crate::{build, dist, sh};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What the calls attach: each type, and chains with all that a pod may have.
const CONFLISTS: [&str; 8] =
    ["bridge", "bridge-ipmasq", "ptp", "macvlan", "chain", "bandwidth-braid", "full-braid", "hostport-ebpf"];
/// In the name of the function that only an ADD runs.
const ADD: &str = "5braid6attach3add6attach";
/// An ADD weighs more than all other calls together.
const OTHER_CALLS: usize = 1000;
/// Fewer, and calls cannot have been seen whole.
const FEWEST: usize = 400;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    sh::apt(&[("valgrind", "valgrind")])?;
    let folder = build::target_dir().join("order");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let traces = folder.join("traces");
    fs::create_dir_all(&traces).with_context(|| format!("create {}", traces.display()))?;
    let plugins = traced(&dist::with_symbols()?, &folder, &traces)?;
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    bench.arg("--runs=1").arg(format!("--plugins=braid={}", plugins.display()));
    let conflist = |name: &str| format!("--conflist={}", sh::root().join("bench/conflists").join(name).display());
    sh::run(bench.args(CONFLISTS.map(|name| conflist(name) + ".conflist")))?;
    let patterns = patterns(&traces)?;
    ensure!(patterns.len() >= FEWEST, "only {} functions were seen to run", patterns.len());
    let file = sh::root().join("cni-plugin/order.ld");
    fs::write(&file, script(&patterns)).with_context(|| format!("write {}", file.display()))?;
    println!("{}  {} functions", file.display(), patterns.len());
    Ok(())
}

/// A folder of plugins each of whose calls leaves a trace of the functions that it ran.
fn traced(braid: &Path, folder: &Path, traces: &Path) -> Result<std::path::PathBuf> {
    // The next build writes another binary to the same place.
    let kept = folder.join("braid");
    fs::copy(braid, &kept).with_context(|| format!("copy {}", braid.display()))?;
    let real = build::linked(&kept)?;
    let wrapped = folder.join("plugins");
    fs::create_dir_all(&wrapped).with_context(|| format!("create {}", wrapped.display()))?;
    for plugin in fs::read_dir(&real)? {
        let plugin = plugin?.path();
        let wrapper = wrapped.join(plugin.file_name().unwrap_or_default());
        let script = format!(
            "#!/bin/sh\nexec valgrind --quiet --log-file=/dev/null --tool=callgrind --demangle=no \
                --callgrind-out-file={}/%p {}\n",
            traces.display(),
            plugin.display()
        );
        fs::write(&wrapper, script).with_context(|| format!("write {}", wrapper.display()))?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    }
    Ok(wrapped)
}

/// The functions of all traces: those first that most ADDs run, for which a pod waits, then those of other calls.
fn patterns(traces: &Path) -> Result<Vec<String>> {
    let mut calls = BTreeMap::<String, usize>::new();
    for trace in fs::read_dir(traces)? {
        let trace = trace?.path();
        let text = fs::read_to_string(&trace).with_context(|| format!("read {}", trace.display()))?;
        let weight = if text.contains(ADD) { OTHER_CALLS } else { 1 };
        let patterns: BTreeSet<String> = text.lines().filter_map(function).map(pattern).collect();
        for pattern in patterns {
            *calls.entry(pattern).or_default() += weight;
        }
    }
    ensure!(calls.values().any(|calls| *calls >= OTHER_CALLS), "no trace has a function whose name contains {ADD}");
    let mut patterns: Vec<_> = calls.into_iter().collect();
    patterns.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    Ok(patterns.into_iter().map(|(pattern, _)| pattern).collect())
}

/// The function that a line of a trace gives a number: `fn=(12) main` or, of one that is called, `cfn=(12) main`.
fn function(line: &str) -> Option<&str> {
    let (_, name) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn="))?.split_once(' ')?;
    let name = name.split('\'').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
    (name.chars().all(plain) && !name.starts_with("0x")).then_some(name)
}

/// A symbol with a star for what differs from build to build: the hash of a crate (`Cs1234567890a_`), and references to
/// an earlier place in the name (`B1_`), which the hash's length moves.
fn pattern(symbol: &str) -> String {
    let mut pattern = String::new();
    let mut rest = symbol;
    while let Some(c) = rest.chars().next() {
        let (mark, lengths) = if rest.starts_with("Cs") { ("Cs", 1..13) } else { ("B", 0..4) };
        let number = rest.strip_prefix(mark).and_then(|tail| tail.split_once('_'));
        match number {
            Some((digits, tail))
                if lengths.contains(&digits.len()) && digits.chars().all(|d| d.is_ascii_alphanumeric()) =>
            {
                pattern.push_str(mark);
                pattern.push_str("*_");
                rest = tail;
            }
            _ => {
                pattern.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    pattern
}

/// Sections that no trace names: functions that the compiler found to be the same and that go by the name of any of them,
/// the program's start, and the C library's, of which many are written in assembly.
const UNNAMED: &str = "\
        *(.text*.*_5alloc7raw_vecINtB*_6RawVec*E8grow_one*)
        *crt*.o(.text)
        *libc.a:*(.text .text.*)
        *liblibc-*:*(.text .text.*)
";

fn script(patterns: &[String]) -> String {
    let head = "/* The functions that plugin calls run. Written by `cargo xtask order`; do not edit. */\n";
    // The compiler puts what it thinks unlikely into sections of another name.
    let lines = patterns.iter().fold(String::new(), |lines, pattern| lines + "        *(.text*." + pattern + ")\n");
    format!("{head}SECTIONS\n{{\n    .text.calls :\n    {{\n{lines}{UNNAMED}    }}\n}}\nINSERT BEFORE .text;\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_functions_where_they_get_their_number() {
        assert_eq!(function("fn=(12) main"), Some("main"));
        assert_eq!(function("cfn=(13) _RNvCs1_5braid3add'2"), Some("_RNvCs1_5braid3add"));
        assert_eq!(function("fn=(12)"), None);
        assert_eq!(function("fn=(14) 0x0000000000401000"), None);
        assert_eq!(function("fn=(15) (below main)"), None);
        assert_eq!(function("fl=(1) main.rs"), None);
    }

    #[test]
    fn a_pattern_holds_for_builds_with_other_hashes() {
        let symbol = "_RINvNtCs3hFGUgdv7O9_4core3ptr13drop_in_placeINtNtCs6GcN1bHzWXk_5alloc3vec3VecNtB1l_4StepEEB6_";
        let star = "_RINvNtCs*_4core3ptr13drop_in_placeINtNtCs*_5alloc3vec3VecNtB*_4StepEEB*_";
        assert_eq!(pattern(symbol), star);
        assert_eq!(pattern("_RNvNtB1_11collections8BTreeMap"), "_RNvNtB*_11collections8BTreeMap");
        assert_eq!(pattern("memcpy"), "memcpy");
    }
}
