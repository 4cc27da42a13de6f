//! List of the functions that plugin calls run, so that the linker places them side by side.
//!
//! The kernel maps a program's code page by page on access, with the surrounding pages. If a call's
//! functions are spread over the whole binary, the kernel maps all of it, which takes a tenth of an
//! ADD. A function that is missing from the list costs only a page fault.

use crate::build::{self, COMPANION};
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use sha2::{Digest, Sha256};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Conflists with the functions that come first in the list. Each conflist attaches a single
/// interface, so page faults take the largest part of its time.
const PLAIN: [&str; 3] = ["bridge", "ptp", "macvlan"];
/// Conflists with the functions that come next in the list. Together, these conflists use all
/// features of a pod.
const CHAINS: [&str; 6] = [
    "bridge-ipmasq",
    "chain",
    "bandwidth-braid",
    "bandwidth-macvlan",
    "full-braid",
    "hostport-ebpf",
];
/// Part of the mangled name of a function that only ADD runs.
const ADD: &str = "10braid_node6attach3add3add";
/// Weight of an ADD in the count of calls. It is more than all calls of other verbs together.
const OTHER_CALLS: usize = 1000;
/// Minimum number of functions in the list. If there are fewer, the traces are incomplete.
const FEWEST: usize = 400;

/// Returns the path of the linker script for this binary, which must have symbols. Traces plugin
/// calls of the binary as root, unless an earlier script for the same binary exists.
pub(crate) fn list(binary: &Path) -> Result<PathBuf> {
    let content = fs::read(binary).with_context(|| format!("read {}", binary.display()))?;
    let folder = build::target_dir().join("order");
    // The name depends on the content, because cargo compares the linker's arguments but not the
    // files that they name.
    let list = folder.join(format!("{:x}.ld", Sha256::digest(&content)));
    if list.is_file() {
        return Ok(list);
    }
    sh::apt(&[("valgrind", "valgrind"), ("nm", "binutils")])?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let traces = folder.join("traces");
    fs::create_dir_all(&traces).with_context(|| format!("create {}", traces.display()))?;
    // The next build overwrites the binary.
    let braid = folder.join("braid");
    fs::copy(binary, &braid).with_context(|| format!("copy braid to {}", braid.display()))?;
    let companion = folder.join(COMPANION);
    fs::copy(binary.with_file_name(COMPANION), &companion)
        .with_context(|| format!("copy the agent to {}", companion.display()))?;
    let aliases = aliases(&braid)?;
    let plugins = traced(&braid, &folder, &traces)?;
    attach(&plugins, &PLAIN)?;
    let plain = calls(&traces, &aliases)?;
    attach(&plugins, &CHAINS)?;
    let functions = ordered(&plain, &calls(&traces, &aliases)?);
    ensure!(
        functions.len() >= FEWEST,
        "the traces have only {} functions",
        functions.len()
    );
    fs::write(&list, script(&functions)).with_context(|| format!("write {}", list.display()))?;
    Ok(list)
}

fn attach(plugins: &Path, conflists: &[&str]) -> Result<()> {
    let mut bench = Command::new(build::package("braid-bench", "braid-bench")?);
    // The first pod of a node loads objects that serve the later pods.
    bench
        .args(["--runs=1", "--beside=1"])
        .arg(format!("--plugins=braid={}", plugins.display()));
    let folder = sh::root().join("bench/conflists");
    for name in conflists {
        bench.arg(format!(
            "--conflist={}.conflist",
            folder.join(name).display()
        ));
    }
    // Its table has the times under valgrind.
    sh::run(bench.stdout(Stdio::null()))
}

/// Creates a plugin folder. Each plugin in it is a script that runs `braid` under valgrind, which
/// writes a trace of the called functions to `traces`.
fn traced(braid: &Path, folder: &Path, traces: &Path) -> Result<PathBuf> {
    let real = build::installed(braid)?;
    let (wrapped, links) = (folder.join("plugins"), folder.join("links"));
    for folder in [&wrapped, &links] {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    for plugin in fs::read_dir(&real)? {
        let name = plugin?.file_name();
        if name.to_string_lossy().starts_with('.') {
            continue;
        }
        let wrapper = wrapped.join(&name);
        // valgrind starts a script's interpreter differently from the kernel. A link has the
        // plugin's name, too.
        let plugin = links.join(&name);
        symlink(real.join("braid"), &plugin)
            .with_context(|| format!("link {}", plugin.display()))?;
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

/// Returns groups of names that belong to the same function. A trace has one name of a group, and
/// the function's section may have another.
fn aliases(braid: &Path) -> Result<Vec<Vec<String>>> {
    let symbols = sh::read(Command::new("nm").arg("--defined-only").arg(braid))?;
    let mut names = BTreeMap::<&str, Vec<String>>::new();
    for line in symbols.lines() {
        if let [address, "t" | "T" | "w" | "W", name] = line.split(' ').collect::<Vec<_>>()[..] {
            names.entry(address).or_default().push(name.to_owned());
        }
    }
    let mut aliases: Vec<Vec<String>> = names.into_values().collect();
    aliases.retain(|names| names.len() > 1);
    Ok(aliases)
}

/// A function that plugin calls run.
struct Function {
    name: String,
    /// Number of calls that ran the function. Each ADD counts as [`OTHER_CALLS`] calls.
    calls: usize,
}

/// Returns the functions in all traces so far. Functions that run in the most ADDs come first,
/// because pods wait for ADD.
fn calls(traces: &Path, aliases: &[Vec<String>]) -> Result<Vec<Function>> {
    let mut by_name = BTreeMap::<&str, &[String]>::new();
    for names in aliases {
        for name in names {
            by_name.insert(name, names);
        }
    }
    let mut calls = BTreeMap::<String, usize>::new();
    for trace in fs::read_dir(traces)? {
        let trace = trace?.path();
        let text =
            fs::read_to_string(&trace).with_context(|| format!("read {}", trace.display()))?;
        let mut named = BTreeSet::new();
        for name in text.lines().filter_map(function) {
            named.insert(name);
            if let Some(names) = by_name.get(name) {
                named.extend(names.iter().map(String::as_str));
            }
        }
        let weight = if text.contains(ADD) { OTHER_CALLS } else { 1 };
        for name in named {
            *calls.entry(name.to_owned()).or_default() += weight;
        }
    }
    ensure!(
        calls.values().any(|calls| *calls >= OTHER_CALLS),
        "no trace has a function whose name contains {ADD}"
    );
    let mut functions = Vec::new();
    for (name, calls) in calls {
        functions.push(Function { name, calls });
    }
    functions.sort_by_key(|function: &Function| Reverse(function.calls));
    Ok(functions)
}

/// Returns the name of each function once: functions in ADDs of a single interface, then in all
/// ADDs, then the rest.
fn ordered(plain: &[Function], all: &[Function]) -> Vec<String> {
    let is_in_add = |function: &&Function| function.calls >= OTHER_CALLS;
    let mut wanted: Vec<&Function> = plain.iter().filter(is_in_add).collect();
    wanted.extend(all.iter().filter(is_in_add));
    wanted.extend(all);
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for function in wanted {
        if seen.insert(&function.name) {
            names.push(function.name.clone());
        }
    }
    names
}

/// Returns the function name from a line of a callgrind trace. Such a line is `fn=(12) main`, or
/// `cfn=(12) main` for a callee. `None` if the line contains no function name.
fn function(line: &str) -> Option<&str> {
    let (_, name) = line
        .strip_prefix("cfn=")
        .or_else(|| line.strip_prefix("fn="))?
        .split_once(' ')?;
    let name = name.split('\'').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
    (name.chars().all(plain) && !name.starts_with("0x")).then_some(name)
}

/// Patterns of sections that every call needs but no trace names: the start of the program, and
/// assembly of the C library.
const FIRST: [&str; 5] = [
    "*crt*.o(.text)",
    "*libc.a:*start_main*(.text .text.*)",
    "*libc.a:*init_tls*(.text .text.*)",
    "*libc.a:mem*(.text .text.*)",
    "*libc.a:*thread_area*(.text .text.*)",
];
/// Patterns of sections with other functions that calls may need. The compiler merges one function
/// with equal functions, and the first pattern matches any of their names. The other patterns match
/// the rest of the C library.
const LAST: [&str; 3] = [
    "*(.text*.*_5alloc7raw_vecINtB*_6RawVec*E8grow_one*)",
    "*libc.a:*(.text .text.*)",
    "*liblibc-*:*(.text .text.*)",
];

fn script(functions: &[String]) -> String {
    // The compiler puts unlikely code into sections with other prefixes.
    let mut sections = FIRST.map(str::to_owned).to_vec();
    for name in functions {
        sections.push(format!("*(.text*.{name})"));
    }
    sections.extend(LAST.map(str::to_owned));
    let mut lines = String::new();
    for section in sections {
        lines = lines + "        " + &section + "\n";
    }
    format!("SECTIONS\n{{\n    .text.calls :\n    {{\n{lines}    }}\n}}\nINSERT BEFORE .text;\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_functions_where_they_get_their_number() {
        assert_eq!(function("fn=(12) main"), Some("main"));
        assert_eq!(
            function("cfn=(13) _RNvCs1_5braid3add'2"),
            Some("_RNvCs1_5braid3add")
        );
        assert_eq!(function("fn=(12)"), None);
        assert_eq!(function("fn=(14) 0x0000000000401000"), None);
        assert_eq!(function("fn=(15) (below main)"), None);
        assert_eq!(function("fl=(1) main.rs"), None);
    }

    #[test]
    fn plain_adds_come_first_then_chains_then_other_calls() {
        let seen = |name: &str, calls| Function {
            name: name.to_owned(),
            calls,
        };
        let plain = [seen("add", 2 * OTHER_CALLS), seen("del", 2)];
        let all = [
            seen("chain", 5 * OTHER_CALLS),
            seen("add", 3 * OTHER_CALLS),
            seen("gc", 7),
            seen("del", 6),
        ];
        assert_eq!(ordered(&plain, &all), ["add", "chain", "gc", "del"]);
    }
}
