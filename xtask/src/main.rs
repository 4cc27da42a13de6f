//! `cargo xtask`: the tasks of braid's developers. Each command has a file.

#![expect(clippy::print_stdout, reason = "a tool that people read")]

mod bench;
mod bless;
mod build;
mod check;
mod cluster;
mod compiler;
mod demo;
mod dist;
mod ebpf;
mod emulator;
mod image;
mod manifests;
mod musl;
mod order;
mod test;
mod verb;
mod vm;
mod zig;

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
    /// Build braid, make two sandboxes on a bridge, ping between them and outside, and leave
    /// nothing behind
    Demo(demo::Args),
    /// Run all tests; with --quick without the VM and the cluster
    Test(test::Args),
    /// Format, lints, borders between folders, import cycles, sizes, the book and licences
    Check(check::Args),
    /// Write the golden files anew and show what changed
    Bless,
    /// Write deploy/braid.yaml from the chart, or check that it matches the chart
    Manifests(manifests::Args),
    /// Build the eBPF object, or check that the committed one matches its source
    Ebpf(ebpf::Args),
    /// Run the network namespace tests on Debian's kernels under emulation
    Vm(vm::Args),
    /// A real two-node Kubernetes on this machine
    Cluster(cluster::Args),
    /// Build the binary that is shipped, static on musl
    Dist,
    /// Write the binaries that are shipped into a container image, an OCI archive, and check it
    Image(image::Args),
    /// Measure attachment latency, or shaping, beside the reference plugins
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Bless => bless::run(),
        Verb::Manifests(args) => manifests::run(&args),
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
