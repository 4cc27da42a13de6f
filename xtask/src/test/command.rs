//! Command line of `cargo xtask test`.

#[derive(clap::Args)]
pub(crate) struct Args {
    /// For use while editing, five minutes: a quarter of the tests on this kernel, and a few crash
    /// points
    #[arg(long)]
    pub(super) quick: bool,
    /// Every crash point, Debian's kernels 6.1, 6.12 and newest, and both clusters
    #[arg(long, conflicts_with = "quick")]
    pub(super) all: bool,
    /// Run a single stage, in this process
    #[arg(long, hide = true)]
    pub(super) stage: Option<String>,
}
