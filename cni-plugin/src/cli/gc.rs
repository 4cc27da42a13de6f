//! `braid gc`: deletes attachments that have lost their network namespace, together with their
//! addresses. Also deletes the leases of terminated containers. Pods that Multus attached before
//! the node switched to braid are included.

use super::{FAILURE, Outcome, SUCCESS, conf, output};
use braid_core::cni::{Error, NetConf, Owner};
use braid_core::k8s::settings::Settings;
use braid_node::apply::host::{Machine, This};
use braid_node::attach::del::collect;
use braid_node::attach::invocation::DelRequest;
use braid_node::attach::leases;
use braid_node::attach::orphans::{records, sweep_empty};
use braid_node::attach::pods::multus;
use braid_node::ipam::host_local::store::LeaseFile;
use braid_node::ipam::liveness::{Death, owner_of};
use braid_node::store::holder::is_alive;
use braid_node::store::record::{Key, Record};
use braid_node::store::root::NODE;
use clap::Args;
use std::collections::BTreeSet;

/// Delete attachments without a network namespace, and leases that a reboot left
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only print the planned deletions
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let machine = This::new(output::log());
    let records = records(&machine)?;
    let mut folders = leases::folders(&records, &NODE);
    let confs = conf::of_node();
    folders.extend(conf::folders_of_leases(&confs));
    let mut dead = Vec::new();
    for record in records {
        if !is_alive(&record) {
            dead.push(Dead::Recorded(Box::new(record)));
        }
    }
    dead.extend(noted_by_multus(confs, &machine));
    let outcome = |dead: &Dead| match dead {
        _ if arguments.dry_run => Ok("would be deleted"),
        Dead::Recorded(record) => collect(record, &machine).map(|()| "deleted"),
        Dead::Noted(noted) => multus::detach(&noted.0, &noted.1, &machine).map(|_| "deleted"),
    };
    let mut code = take_back(&dead, Dead::key, outcome);
    let mut rows = Vec::new();
    for folder in folders {
        let found = if arguments.dry_run {
            leases::dead(&folder, &machine)
        } else {
            leases::take_back(&folder, &machine)
        };
        let network = leases::network_of(&folder);
        match found {
            Ok(found) => {
                for lease in &found {
                    rows.push(row(&network, lease, arguments.dry_run));
                }
            }
            Err(err) => {
                code = FAILURE;
                rows.push(vec![
                    network,
                    String::new(),
                    String::new(),
                    String::new(),
                    format!("failed: {err}"),
                ]);
            }
        }
    }
    if dead.is_empty() && rows.is_empty() {
        output::print("nothing to delete\n");
    }
    if !rows.is_empty() {
        output::print(&output::table(
            &["network", "address", "container", "ifname", "lease"],
            rows,
        ));
    }
    if !arguments.dry_run {
        Error::joined(&sweep_empty(&machine))?;
    }
    Ok(code)
}

/// Attachments of a container that has lost its network namespace.
enum Dead {
    /// Found in a record.
    Recorded(Box<Record>),
    /// Found in Multus' files.
    Noted(Box<(DelRequest, Settings)>),
}

impl Dead {
    fn key(&self) -> &Key {
        match self {
            Self::Recorded(record) => &record.key,
            Self::Noted(noted) => &noted.0.key,
        }
    }
}

/// Returns the terminated pods in the Multus folders that these configurations name.
fn noted_by_multus(confs: Vec<NetConf>, machine: &dyn Machine) -> Vec<Dead> {
    let mut seen = BTreeSet::new();
    let mut dead = Vec::new();
    for (conf, settings) in conf::of_pods(confs) {
        // Several configurations may name the same folder.
        if seen.insert(settings.cni_dir.clone()) {
            let gone = multus::gone(&conf, &conf::plugin_path(), &settings, machine);
            for call in gone {
                dead.push(Dead::Noted(Box::new((call, settings.clone()))));
            }
        }
    }
    dead
}

/// Formats one lease of a terminated container.
fn row(network: &str, (lease, why): &(LeaseFile, Death), is_dry_run: bool) -> Vec<String> {
    let owner = owner_of(lease, network).unwrap_or_default();
    let done = if is_dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    vec![
        network.to_owned(),
        lease.ip.to_string(),
        owner.container_id,
        owner.ifname,
        format!("{done}: {why}"),
    ]
}

/// Calls `work` for every item, even after a failure, and prints a table with the outcome of each.
/// Returns the exit status.
pub(super) fn take_back<T>(
    all: &[T],
    key: impl Fn(&T) -> &Key,
    mut work: impl FnMut(&T) -> Result<&'static str, Error>,
) -> u8 {
    let mut code = SUCCESS;
    let mut rows = Vec::new();
    for one in all {
        let done = match work(one) {
            Ok(done) => done.to_owned(),
            Err(err) => {
                code = FAILURE;
                format!("failed: {err}")
            }
        };
        let Key { owner, plugin } = key(one).clone();
        let Owner {
            network,
            container_id,
            ifname,
        } = owner;
        rows.push(vec![network, plugin, container_id, ifname, done]);
    }
    if !rows.is_empty() {
        output::print(&output::table(
            &["network", "type", "container", "ifname", "attachment"],
            rows,
        ));
    }
    code
}
