//! `cargo xtask`: all development tasks of braid, one file per verb. As a library for tests/cluster
//! and tests/api, it provides the cluster, or the API server alone.

#![expect(clippy::print_stdout, reason = "a tool that people read")]

mod bench;
mod bless;
mod build;
mod check;
pub mod cluster;
mod compiler;
mod demo;
mod dist;
mod ebpf;
mod image;
mod oci;
mod order;
pub mod sh;
mod test;
mod tools;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything a developer of braid does")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build braid, create two sandboxes on a bridge, ping between them and outside, and clean up
    Demo(demo::Args),
    /// Run all tests; with --quick without the VM and the cluster
    Test(test::Args),
    /// Format, lints, import rules, and the sizes of files and functions
    Check(check::Args),
    /// Rewrite the golden files and show the changes
    Bless,
    /// Build the eBPF object, or check that the committed one matches its source
    Ebpf(ebpf::Args),
    /// Run the network namespace tests on Debian's kernels under emulation
    Vm(vm::Args),
    /// A real two-node Kubernetes on this machine
    Cluster(cluster::Args),
    /// Build the shipped binary, static on musl
    Dist,
    /// Write the shipped binary into a container image, an OCI archive
    Image(image::Args),
    /// Measure attachment latency, or shaping, compared with the reference plugins
    Bench(bench::Args),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Bless => bless::run(),
        Verb::Ebpf(args) => ebpf::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Cluster(args) => cluster::run(&args),
        Verb::Dist => dist::run(),
        Verb::Image(args) => image::run(&args),
        Verb::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
