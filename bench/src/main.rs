//! Attachment latency of CNI plugins, compared with each other and with a floor: the time of the
//! kernel alone.
//!
//! ```text
//!  cli ─► run: each setting (conflist, leases and ports held, concurrency), contenders in turns
//!           └─► site: node (namespaces), pods, a burst of ADDs, a burst of DELs, verify
//!                 ├─► chain ─► call: the plugins of a directory as libcni calls them
//!                 └─► floor: the kernel alone, by netlink
//!         rows ─► report (table, JSON)
//! ```
//!
//! `braid-bench shaping` measures the effect of `bandwidth` plugins on traffic, see [`shaping`];
//! `braid-bench hostport` measures `portmap` plugins, see [`hostport`]. `braid-bench pods` measures
//! plugins that query an API server, see [`pods`]; `braid-bench fabric` measures traffic between
//! nodes, see [`fabric`].

mod attached;
mod budget;
mod call;
mod chain;
mod cli;
mod conflist;
mod daemon;
mod fabric;
mod floor;
mod hostport;
mod lease;
mod netlink;
mod node;
mod options;
mod pods;
mod ports;
mod programs;
mod read;
mod report;
mod run;
mod shaping;
mod site;
mod stats;
mod strace;
mod traffic;
mod verify;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let done = match &cli.other {
        Some(cli::Other::Shaping(args)) => shaping::run(args),
        Some(cli::Other::Hostport(args)) => hostport::run(args),
        Some(cli::Other::Pods(args)) => pods::run(args),
        Some(cli::Other::Fabric(args)) => fabric::run(args),
        None => run::run(&cli),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
