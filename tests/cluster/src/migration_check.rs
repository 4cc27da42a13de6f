//! Checks that nodes move to braid and back by the commands of docs/migration.md.

mod k3s;
mod multus;
mod reference;

use crate::runbook::Runbook;
use anyhow::{Result, bail, ensure};
use braid_testbed::{Cluster, deploy};
use clap::ValueEnum;

const PAGE: &str = "migration.md";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the nodes come from
    #[arg(value_enum)]
    from: From,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    /// The reference plugins
    Reference,
    /// Multus, the thin plugin, with networks of host-local
    Multus,
    /// flanneld inside k3s, with the folders of k3s
    K3s,
}

pub(crate) fn run(cluster: &Cluster, options: &Options) -> Result<()> {
    let [node, other] = cluster.nodes()?[..] else {
        bail!("this check needs two nodes")
    };
    let nodes = [node, other];
    for node in nodes {
        ensure!(
            !deploy::has_braid(cluster, node)?,
            "{node} has braid already, so it cannot move"
        );
    }
    let runbook = Runbook::read(cluster, PAGE)?;
    match options.from {
        From::Reference => reference::run(cluster, &runbook, nodes),
        From::Multus => multus::run(cluster, &runbook, nodes),
        From::K3s => k3s::run(cluster, &runbook, nodes),
    }
}
