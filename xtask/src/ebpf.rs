//! `cargo xtask ebpf`.

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
