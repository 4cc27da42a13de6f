//! `cargo xtask bless`: rewrites the golden files, for review as a diff.

use anyhow::Result;
use braid_testbed::sh;

pub(crate) fn run() -> Result<()> {
    let golden = [
        "test",
        "--quiet",
        "--package",
        "braid-tests",
        "--test",
        "golden",
    ];
    sh::run(sh::cmd("cargo", golden).env("BRAID_BLESS", "1"))?;
    sh::run(&mut sh::cmd(
        "git",
        ["--no-pager", "diff", "--stat", "--", "tests/golden"],
    ))
}
