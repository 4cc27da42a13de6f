//! `cargo xtask check`: format, lints, and project rules that the compiler cannot check.

mod book;
mod commits;
mod cycles;
mod files;
mod uses;
mod words;

use crate::ebpf;
use anyhow::{Result, ensure};
use braid_testbed::sh;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// A check. If the project passes, the check returns a note to print. Otherwise, its error names
/// the violations.
type Check = fn() -> Result<String>;

const CHECKS: &[(&str, Check)] = &[
    ("format", format),
    ("lints", lints),
    ("fuzzing", fuzzing),
    ("borders", borders),
    ("cycles", cycles::check),
    ("sizes", sizes),
    ("words", words::check),
    ("commits", commits::check),
    ("book", book::check),
    ("ebpf", || {
        ebpf::check().map(|()| "the object matches its source".into())
    }),
    ("licences", licences),
];

/// Folders, each with the paths that its files must not use. Each folder is within one crate.
/// Between crates, Cargo enforces such rules.
const BORDERS: &[(&str, &[&str])] = &[
    (
        "cni-plugin/core/src/cni",
        &[
            "crate::ipam",
            "crate::k8s",
            "crate::lint",
            "crate::plan",
            "crate::plugins",
        ],
    ),
    (
        "cni-plugin/core/src/ipam",
        &["crate::k8s", "crate::lint", "crate::plan", "crate::plugins"],
    ),
    (
        "cni-plugin/core/src/k8s",
        &[
            "crate::ipam",
            "crate::lint",
            "crate::plan",
            "crate::plugins",
        ],
    ),
    (
        "cni-plugin/core/src/plan",
        &[
            "crate::cni",
            "crate::ipam",
            "crate::k8s",
            "crate::lint",
            "crate::plugins",
        ],
    ),
    (
        "cni-plugin/core/src/plugins",
        &["crate::k8s", "crate::lint"],
    ),
    (
        "cni-plugin/node/src/sys",
        &[
            "braid_core::cni",
            "braid_core::ipam",
            "braid_core::k8s",
            "braid_core::plan",
            "braid_core::plugins",
        ],
    ),
    (
        "cni-plugin/node/src/sys",
        &[
            "crate::apply",
            "crate::attach",
            "crate::effect",
            "crate::ipam",
            "crate::source",
            "crate::store",
        ],
    ),
    (
        "cni-plugin/node/src/source",
        &[
            "crate::apply",
            "crate::attach",
            "crate::effect",
            "crate::ipam",
            "crate::store",
        ],
    ),
    (
        "cni-plugin/node/src/ipam",
        &[
            "crate::apply",
            "crate::attach",
            "crate::effect",
            "crate::source",
            "crate::store",
        ],
    ),
    (
        "cni-plugin/node/src/store",
        &["crate::attach", "crate::effect", "crate::source"],
    ),
    (
        "cni-plugin/node/src/kernel",
        &[
            "crate::apply",
            "crate::attach",
            "crate::effect",
            "crate::source",
        ],
    ),
    (
        "cni-plugin/node/src/effect",
        &["crate::apply", "crate::attach", "crate::source"],
    ),
    (
        "cni-plugin/node/src/apply",
        &["crate::attach", "crate::dhcpd"],
    ),
    ("cni-plugin/node/src/attach", &["crate::dhcpd"]),
    (
        "cni-plugin/node/src/snapshot",
        &[
            "braid_core",
            "crate::apply",
            "crate::attach",
            "crate::effect",
            "crate::ipam",
            "crate::kernel",
            "crate::source",
            "crate::store",
        ],
    ),
    (
        "cni-plugin/node/src/dhcpd",
        &["crate::attach", "crate::source"],
    ),
];

/// Intended maximum number of lines in a file, without its tests. Longer files are listed. Files
/// longer than `MOST` are refused.
const AIM: usize = 500;
const MOST: usize = 700;
/// Folders with files of limited length.
const SIZED: &[&str] = &[
    "cni-plugin",
    "xtask",
    "bench",
    "tests/src",
    "tests/cluster",
    "tests/testbed",
    "ebpf",
];

pub(crate) fn run(_: &Args) -> Result<()> {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        match check() {
            Ok(note) => eprintln!("{name:9} ok      {note}"),
            Err(err) => {
                eprintln!("{name:9} FAILED  {err:#}");
                failed.push(*name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn format() -> Result<String> {
    sh::run(&mut sh::cmd("cargo", ["fmt", "--all", "--check"]))?;
    sh::run(&mut sh::cmd(
        "cargo",
        [
            "fmt",
            "--all",
            "--check",
            "--manifest-path",
            "ebpf/Cargo.toml",
        ],
    ))?;
    Ok("rustfmt changes nothing".into())
}

fn lints() -> Result<String> {
    let clippy = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    sh::run(&mut sh::cmd("cargo", clippy))?;
    Ok("no warnings".into())
}

/// Lints the fuzz targets. They are a separate workspace, because only cargo-fuzz can link them
/// with libFuzzer.
fn fuzzing() -> Result<String> {
    let mut clippy = sh::cmd(
        "cargo",
        [
            "clippy",
            "--quiet",
            "--locked",
            "--manifest-path",
            "tests/fuzz/Cargo.toml",
        ],
    );
    // Nothing is linked here, so libFuzzer is not compiled.
    clippy.env("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a");
    sh::run(clippy.args(["--target-dir", "target/fuzz", "--", "-D", "warnings"]))?;
    Ok("no warnings in the fuzz targets".into())
}

fn borders() -> Result<String> {
    let mut crossed = Vec::new();
    for (folder, refused) in BORDERS {
        for source in files::without_tests(folder)? {
            for (line, name) in names(&source.text, refused) {
                let path = &source.path;
                crossed.push(format!("{path}:{line}: {folder} names {name}"));
            }
        }
    }
    ensure!(crossed.is_empty(), "{}", crossed.join("\n"));
    Ok(format!("{} folders keep to their imports", BORDERS.len()))
}

/// Returns the numbers of the code lines that contain a refused name, each with the name.
fn names<'a>(text: &'a str, refused: &'a [&str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        if let Some(name) = refused.iter().find(|name| line.contains(**name)) {
            found.push((index + 1, *name));
        }
    }
    found
}

fn sizes() -> Result<String> {
    let (mut count, mut past) = (0, 0);
    for folder in SIZED {
        for source in files::without_tests(folder)? {
            let (path, lines) = (&source.path, source.text.lines().count());
            ensure!(lines <= MOST, "{path} has {lines} lines, more than {MOST}");
            if lines > AIM {
                eprintln!("{path}: {lines} lines (aim: {AIM})");
                past += 1;
            }
            count += 1;
        }
    }
    Ok(format!("{count} files, {past} past the aim"))
}

fn licences() -> Result<String> {
    if sh::read(&mut sh::cmd("cargo", ["deny", "--version"])).is_err() {
        return Ok("not checked: `cargo install --locked cargo-deny` first".into());
    }
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let mut deny = sh::cmd(
            "cargo",
            [
                "deny",
                "--log-level",
                "error",
                "--manifest-path",
                manifest,
                "check",
            ],
        );
        sh::run(deny.args(["licenses", "bans", "sources"]))?;
    }
    Ok("cargo-deny passes".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_names_are_reported_by_line_and_ignored_in_tests() {
        let text = "use crate::name::IfName;\nuse crate::plan::Step;\n#[cfg(test)]\nmod tests {\n    use crate::plan;\n}\n";
        let mut text = text.to_owned();
        files::cut_tests(&mut text);
        assert_eq!(
            names(&text, &["crate::cni", "crate::plan"]),
            [(2, "crate::plan")]
        );
    }
}
