//! `cargo xtask manifests`: writes the manifests that are generated from the chart in deploy/chart,
//! or compares them with it.

use anyhow::{Context, Result, ensure};
use braid_testbed::chart::MANIFESTS;
use braid_testbed::sh;
use std::fs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing: fail if a committed manifest differs from the chart
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    for manifest in MANIFESTS {
        let path = sh::root().join(manifest.path);
        fs::write(&path, manifest.text()?).with_context(|| format!("write {}", path.display()))?;
        eprintln!("{}: written", manifest.path);
    }
    Ok(())
}

/// Fails if a committed manifest differs from the chart.
pub(crate) fn check() -> Result<()> {
    let mut differences = Vec::new();
    for manifest in MANIFESTS {
        let path = sh::root().join(manifest.path);
        let committed =
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        differences.extend(difference(manifest.path, &committed, &manifest.text()?));
    }
    ensure!(
        differences.is_empty(),
        "change deploy/chart and run `cargo xtask manifests`:\n{}",
        differences.join("\n")
    );
    Ok(())
}

/// Returns the first line in which a committed manifest differs from the rendered one.
fn difference(path: &str, committed: &str, rendered: &str) -> Option<String> {
    if committed == rendered {
        return None;
    }
    let (mut ours, mut charts) = (committed.lines(), rendered.lines());
    let mut number = 0;
    loop {
        number += 1;
        let (our, chart) = (ours.next(), charts.next());
        if our != chart || our.is_none() {
            let [our, chart] = [our, chart].map(|line| line.unwrap_or("the end"));
            return Some(format!(
                "{path}:{number}: {our:?}, but the chart renders {chart:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_line_is_reported() {
        assert_eq!(difference("f", "a\nb\n", "a\nb\n"), None);
        for (committed, expected) in [
            ("a\nc\n", r#"f:2: "c", but the chart renders "b""#),
            ("a\n", r#"f:2: "the end", but the chart renders "b""#),
            ("a\nb\nc\n", r#"f:3: "c", but the chart renders "the end""#),
        ] {
            let found = difference("f", committed, "a\nb\n");
            assert_eq!(found.as_deref(), Some(expected));
        }
    }
}
