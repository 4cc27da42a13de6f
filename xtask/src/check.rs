//! `cargo xtask check`: format, lints, and the rules of the house that no compiler knows.

mod arrows;
mod pure;
mod size;
mod source;

use crate::{ebpf, sh};
use anyhow::{Context, Result, bail, ensure};
use source::Source;
use std::fs;

#[derive(clap::Args)]
pub(crate) struct Args {}

/// A check returns what to say when it holds; its error says where it does not.
type Check = fn() -> Result<String>;

const CHECKS: &[(&str, Check)] = &[
    ("format", format),
    ("lints", lints),
    ("fuzzing", fuzzing),
    ("arrows", || violations(arrows::violations)),
    ("purity", || violations(pure::violations)),
    ("crates", crates),
    ("sizes", sizes),
    ("ebpf", || ebpf::check().map(|()| "the object is made from its source".into())),
    ("licences", licences),
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

/// A place where a rule is broken.
#[derive(Debug, PartialEq)]
struct Violation {
    path: String,
    line: usize,
    rule: String,
}

fn format() -> Result<String> {
    sh::run(&mut sh::cmd("cargo", ["fmt", "--all", "--check"]))?;
    sh::run(&mut sh::cmd("cargo", ["fmt", "--all", "--check", "--manifest-path", "ebpf/Cargo.toml"]))?;
    Ok("rustfmt changes nothing".into())
}

fn lints() -> Result<String> {
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    sh::run(&mut sh::cmd("cargo", clippy))?;
    Ok("clippy is silent".into())
}

/// The fuzz targets, which only cargo-fuzz links, with libFuzzer.
fn fuzzing() -> Result<String> {
    let mut clippy = sh::cmd("cargo", ["clippy", "--quiet", "--locked", "--manifest-path", "tests/fuzz/Cargo.toml"]);
    // Nothing is linked here, so libFuzzer need not be compiled.
    clippy.env("CUSTOM_LIBFUZZER_PATH", "/nowhere/libfuzzer.a");
    sh::run(clippy.args(["--target-dir", "target/fuzz", "--", "-D", "warnings"]))?;
    Ok("the targets fit what they call".into())
}

/// Holds a rule against each file of braid.
fn violations(rule: fn(&Source) -> Vec<Violation>) -> Result<String> {
    let sources = source::read_all("cni-plugin/src")?;
    let violations: Vec<Violation> = sources.iter().flat_map(rule).collect();
    report(&violations)?;
    Ok(format!("{} files", sources.len()))
}

fn crates() -> Result<String> {
    let path = "cni-plugin/Cargo.toml";
    let manifest = fs::read_to_string(sh::root().join(path)).with_context(|| format!("read {path}"))?;
    let dependencies = pure::dependencies(&manifest);
    let sources = source::read_all("cni-plugin/src/plan")?;
    let violations: Vec<_> = sources.iter().flat_map(|source| pure::foreign_crates(source, &dependencies)).collect();
    report(&violations)?;
    Ok(format!("{} files of plan/", sources.len()))
}

fn sizes() -> Result<String> {
    let mut sources = Vec::new();
    for folder in ["cni-plugin", "xtask", "bench", "tests", "ebpf"] {
        sources.extend(source::read_all(folder)?);
    }
    let (warnings, violations) = size::judge(&sources);
    for Violation { path, line, rule } in &warnings {
        eprintln!("{path}:{line}: {rule}");
    }
    report(&violations)?;
    Ok(format!("{} files, {} past the aim", sources.len(), warnings.len()))
}

fn licences() -> Result<String> {
    if sh::read(&mut sh::cmd("cargo", ["deny", "--version"])).is_err() {
        return Ok("not checked: `cargo install --locked cargo-deny` first".into());
    }
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let mut deny = sh::cmd("cargo", ["deny", "--log-level", "error", "--manifest-path", manifest, "check"]);
        sh::run(deny.args(["licenses", "bans", "sources"]))?;
    }
    Ok("cargo-deny is content".into())
}

fn report(violations: &[Violation]) -> Result<()> {
    for Violation { path, line, rule } in violations {
        eprintln!("{path}:{line}: {rule}");
    }
    if violations.is_empty() {
        return Ok(());
    }
    bail!("violations: {}", violations.len())
}
