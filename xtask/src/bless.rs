//! `cargo xtask bless`: writes the golden files anew, to be read as a diff.

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
