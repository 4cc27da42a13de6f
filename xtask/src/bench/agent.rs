//! `cargo xtask bench --agent`: the agent of a node with 500 pods in a cluster of 1,000 Nodes and 100
//! networks. The test of the API that judges its memory and requests prints the other figures too.

use anyhow::Result;
use braid_testbed::sh;
use std::path::Path;

/// Name of the test.
const TEST: &str = "agent::sizes";

/// Prints the figures of the agent beside `braid`. Fails if its memory or requests are beyond the
/// bounds.
pub(super) fn run(braid: &Path) -> Result<()> {
    let mut test = sh::cmd("cargo", ["test", "--quiet", "--package", "braid-tests"]);
    test.args(["--test", "api", TEST, "--", "--nocapture"])
        .env("BRAID_BIN", braid);
    sh::run(&mut test)
}
