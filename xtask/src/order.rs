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

/// What the calls attach, first of all: an interface and no more, where a page fault is the largest part of the whole.
const PLAIN: [&str; 3] = ["bridge", "ptp", "macvlan"];
/// Then all that a pod may have.
const CHAINS: [&str; 6] =
    ["bridge-ipmasq", "chain", "bandwidth-braid", "bandwidth-macvlan", "full-braid", "hostport-ebpf"];
/// In the name of the function that only an ADD runs.
const ADD: &str = "5braid6attach3add6attach";
/// An ADD weighs more than all other calls together.
const OTHER_CALLS: usize = 1000;
/// Fewer, and calls cannot have been seen whole.
const FEWEST: usize = 400;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    sh::apt(&[("valgrind", "valgrind"), ("nm", "binutils")])?;
    let folder = build::target_dir().join("order");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let traces = folder.join("traces");
    fs::create_dir_all(&traces).with_context(|| format!("create {}", traces.display()))?;
    // The next build writes another binary to the same place.
    let braid = folder.join("braid");
    fs::copy(dist::with_symbols()?, &braid).with_context(|| format!("copy braid to {}", braid.display()))?;
    let aliases = aliases(&braid)?;
    let plugins = traced(&braid, &folder, &traces)?;
    attach(&plugins, &PLAIN)?;
    let plain = calls(&traces, &aliases)?;
    attach(&plugins, &CHAINS)?;
    let all = calls(&traces, &aliases)?;
    let patterns = ordered(&plain, &all);
    ensure!(patterns.len() >= FEWEST, "only {} functions were seen to run", patterns.len());
    let file = sh::root().join("cni-plugin/order.ld");
    fs::write(&file, script(&patterns)).with_context(|| format!("write {}", file.display()))?;
    println!("{}  {} functions", file.display(), patterns.len());
    Ok(())
}

fn attach(plugins: &Path, conflists: &[&str]) -> Result<()> {
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    // What the first pod of a node has loaded serves the others.
    bench.args(["--runs=1", "--beside=1"]).arg(format!("--plugins=braid={}", plugins.display()));
    let folder = sh::root().join("bench/conflists");
    bench.args(conflists.iter().map(|name| format!("--conflist={}.conflist", folder.join(name).display())));
    sh::run(&mut bench)
}

/// A folder of plugins each of whose calls leaves a trace of the functions that it ran.
fn traced(braid: &Path, folder: &Path, traces: &Path) -> Result<std::path::PathBuf> {
    let real = build::linked(braid)?;
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

/// All names of each function that has several, of which a trace tells one and its section bears another.
fn aliases(braid: &Path) -> Result<Vec<Vec<String>>> {
    let symbols = sh::read(Command::new("nm").arg("--defined-only").arg(braid))?;
    let mut names = BTreeMap::<&str, Vec<String>>::new();
    for line in symbols.lines() {
        if let [address, "t" | "T" | "w" | "W", name] = line.split(' ').collect::<Vec<_>>()[..] {
            names.entry(address).or_default().push(name.to_owned());
        }
    }
    Ok(names.into_values().filter(|names| names.len() > 1).collect())
}

/// The functions of all traces so far, with the calls that ran each: those first that most ADDs run, for which a pod
/// waits, then those of other calls.
fn calls(traces: &Path, aliases: &[Vec<String>]) -> Result<Vec<(String, usize)>> {
    let aliases: BTreeMap<&str, &Vec<String>> =
        aliases.iter().flat_map(|names| names.iter().map(move |name| (name.as_str(), names))).collect();
    let mut calls = BTreeMap::<String, usize>::new();
    for trace in fs::read_dir(traces)? {
        let trace = trace?.path();
        let text = fs::read_to_string(&trace).with_context(|| format!("read {}", trace.display()))?;
        let functions: BTreeSet<&str> = text.lines().filter_map(function).collect();
        let others = functions.iter().filter_map(|name| aliases.get(name)).flat_map(|names| names.iter());
        let named = functions.iter().copied().chain(others.map(String::as_str));
        let patterns: BTreeSet<String> = named.map(pattern).collect();
        let weight = if text.contains(ADD) { OTHER_CALLS } else { 1 };
        for pattern in patterns {
            *calls.entry(pattern).or_default() += weight;
        }
    }
    ensure!(calls.values().any(|calls| *calls >= OTHER_CALLS), "no trace has a function whose name contains {ADD}");
    let mut patterns: Vec<_> = calls.into_iter().collect();
    patterns.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    Ok(patterns)
}

/// Each pattern once: those of plain ADDs, those of all ADDs, the rest.
fn ordered(plain: &[(String, usize)], all: &[(String, usize)]) -> Vec<String> {
    let is_in_add = |(_, calls): &&(String, usize)| *calls >= OTHER_CALLS;
    let mut seen = BTreeSet::new();
    let wanted = plain.iter().filter(is_in_add).chain(all.iter().filter(is_in_add)).chain(all);
    wanted.map(|(pattern, _)| pattern.clone()).filter(|pattern| seen.insert(pattern.clone())).collect()
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

/// Sections that no trace names and that every call needs: the program's start, and what the C library has in assembly.
const FIRST: [&str; 5] = [
    "*crt*.o(.text)",
    "*libc.a:*start_main*(.text .text.*)",
    "*libc.a:*init_tls*(.text .text.*)",
    "*libc.a:mem*(.text .text.*)",
    "*libc.a:*thread_area*(.text .text.*)",
];
/// Others that calls may need: functions that the compiler found to be the same and that go by the name of any of them,
/// and the rest of the C library.
const LAST: [&str; 3] =
    ["*(.text*.*_5alloc7raw_vecINtB*_6RawVec*E8grow_one*)", "*libc.a:*(.text .text.*)", "*liblibc-*:*(.text .text.*)"];

fn script(patterns: &[String]) -> String {
    // The compiler puts what it thinks unlikely into sections of another name.
    let of_traces = patterns.iter().map(|pattern| format!("*(.text*.{pattern})"));
    let all = FIRST.iter().map(ToString::to_string).chain(of_traces).chain(LAST.iter().map(ToString::to_string));
    let lines = all.fold(String::new(), |lines, line| lines + "        " + &line + "\n");
    let head = "/* The functions that plugin calls run. Written by `cargo xtask order`; do not edit. */\n";
    format!("{head}SECTIONS\n{{\n    .text.calls :\n    {{\n{lines}    }}\n}}\nINSERT BEFORE .text;\n")
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
    fn plain_adds_come_first_then_chains_then_other_calls() {
        let seen = |calls: &[(&str, usize)]| -> Vec<(String, usize)> {
            calls.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
        };
        let plain = seen(&[("add", 2 * OTHER_CALLS), ("del", 2)]);
        let all = seen(&[("chain", 5 * OTHER_CALLS), ("add", 3 * OTHER_CALLS), ("gc", 7), ("del", 6)]);
        assert_eq!(ordered(&plain, &all), ["add", "chain", "gc", "del"]);
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
