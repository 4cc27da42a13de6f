//! Command line for users, and plugin calls for runtimes.
//!
//! ```text
//!  cni     ─ the plugin call             plan   ─ dry run             try     ─ attach a sandbox, show, detach
//!  install ─ drop-in names               doctor ─ node features       status, gc, detach ─ attachments
//!  top     ─ traffic of containers                    lint   ─ faults of manifests
//!  ipam    ─ addresses of the whole cluster
//!  sysdump ─ the state of the node in one archive
//!  migrate ─ other programs of the node, and the commands to leave them
//!  dhcp    ─ the daemon of the dhcp IPAM          agent  ─ the agent of a node
//!
//!  kubectl-braid ─ the same of a whole cluster
//! ```

mod agent;
mod cluster;
pub mod cni;
mod conf;
mod detach;
mod dhcp;
mod doctor;
mod gc;
mod install;
mod ipam;
mod lint;
mod manifests;
mod migrate;
mod names;
mod outcome;
mod output;
mod plan;
mod pod;
mod shaped;
mod status;
mod sysdump;
mod top;
mod trial;

use braid_core::cni::Version;
use braid_core::cni::version::about;
use clap::{CommandFactory, Parser, Subcommand};
use names::drop_in_names;
use outcome::{FAILURE, Outcome, SUCCESS};
use std::ffi::OsString;

/// Attaches containers to networks: a CNI plugin with its tools.
#[derive(Debug, Parser)]
#[command(name = "braid", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::Arguments),
    Try(trial::Arguments),
    Status(status::Arguments),
    Top(top::Arguments),
    Detach(detach::Arguments),
    Gc(gc::Arguments),
    Ipam(ipam::Arguments),
    Doctor(doctor::Arguments),
    Sysdump(sysdump::Arguments),
    Install(install::Arguments),
    Lint(lint::Arguments),
    Migrate(migrate::Arguments),
    Dhcp(dhcp::Arguments),
    Agent(agent::Arguments),
}

/// Runs the command of the command line. If the program was started under a plugin's name, prints
/// the version of the plugin instead. Returns the exit status.
pub fn run(arguments: Vec<OsString>) -> u8 {
    let called_as = cni::plugin_name(&arguments);
    if called_as == "dhcp"
        && let Some(outcome) = dhcp::called_so(&arguments[1..])
    {
        return told(outcome);
    }
    if called_as == cluster::CALLED_AS {
        return told(cluster::run(arguments));
    }
    if drop_in_names().any(|name| name == called_as) {
        let build = concat!("braid ", env!("CARGO_PKG_VERSION"));
        eprint!("{}", about(&called_as, build, &Version::ALL));
        return SUCCESS;
    }
    if arguments.len() <= 1 {
        return output::print(&Arguments::command().render_help().to_string());
    }
    let outcome = match Arguments::parse_from(arguments).command {
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Try(arguments) => trial::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Detach(arguments) => detach::run(&arguments),
        Command::Gc(arguments) => gc::run(&arguments),
        Command::Ipam(arguments) => ipam::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Sysdump(arguments) => sysdump::run(&arguments),
        Command::Install(arguments) => install::run(&arguments),
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Dhcp(arguments) => dhcp::run(&arguments),
        Command::Agent(arguments) => agent::run(arguments),
    };
    told(outcome)
}

/// Returns the exit status of a command. Prints its error, if it failed.
fn told(outcome: Outcome) -> u8 {
    outcome.unwrap_or_else(|err| {
        output::tell(format_args!("braid: {err}"));
        FAILURE
    })
}
