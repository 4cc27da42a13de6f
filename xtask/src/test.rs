//! `cargo xtask test`: all tests, the quick ones first.

use crate::{bench, build, check, cluster, sh, vm};
use anyhow::{Context, Result};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the VM and the cluster: the inner loop
    #[arg(long)]
    quick: bool,
}

/// What the tests call besides what they install themselves: program and Debian package.
const TOOLS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ping", "iputils-ping"),
    ("strace", "strace"),
    ("unshare", "util-linux"),
];
