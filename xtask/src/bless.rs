//! `cargo xtask bless`: writes the golden files anew, to be read as a diff.

use crate::sh;
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    let golden = ["test", "--quiet", "--package", "braid-tests", "--test", "golden"];
    sh::run(sh::cmd("cargo", golden).env("BRAID_BLESS", "1"))?;
    sh::run(&mut sh::cmd("git", ["--no-pager", "diff", "--stat", "--", "tests/golden"]))
}
