//! `braid ipam`: addresses of the whole cluster, of the IPAM `whereabouts`.

mod finish;

use super::cluster::text::{table, wrap};
use super::output::{self, Format};
use super::status::short_id;
use super::{Outcome, SUCCESS};
use braid_core::cni::Error;
use braid_core::ipam::whereabouts::finish::Progress;
use braid_core::ipam::whereabouts::inventory::{Assigned, Foreign, Inventory, Kind};
use braid_node::ipam::whereabouts::{admin, finish as end};
use braid_node::source::client::protocol::Limits;
use braid_node::source::pools::Kubernetes;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest number of free addresses that a table shows in digits.
const DIGITS: u64 = 999_999;

/// Show and release addresses that are unique in the cluster (IPAM `whereabouts`)
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Account and namespace; by default $KUBECONFIG, else those of calls
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the addresses in use
    List {
        /// Name of an `IPPool`; without it, all
        #[arg(long)]
        pool: Option<String>,
    },
    /// Release the addresses of a node that is gone
    Release {
        /// Name of the node
        #[arg(long)]
        node: String,
        /// Release them although the node's containers may run; others then get the same addresses
        #[arg(long)]
        force: bool,
    },
    /// Mark the pools as braid's alone, after Whereabouts was removed from the cluster
    Finish {
        /// Do not look for programs of Whereabouts in the cluster
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let kubeconfig = kubeconfig(arguments)?;
    let mut server = Kubernetes::open_within(&kubeconfig, Limits::COMMAND);
    let text = match &arguments.command {
        None => {
            let inventory = admin::inventory(&mut *server)?;
            match arguments.output {
                Format::Table => inventory_text(&inventory, &kubeconfig),
                Format::Json => output::json(&inventory)?,
            }
        }
        Some(Command::List { pool }) => {
            let assigned = admin::assigned(&mut *server, pool.as_deref())?;
            match arguments.output {
                Format::Table => assigned_text(&assigned),
                Format::Json => output::json(&assigned)?,
            }
        }
        Some(Command::Release { node, force }) => {
            let mut released = Vec::new();
            let done = admin::release(&mut *server, node, *force, &mut released);
            let is_done = done.is_ok();
            if is_done || !released.is_empty() {
                output::print(&match arguments.output {
                    Format::Table => released_text(&released, node, is_done),
                    Format::Json => output::json(&Released { node, released })?,
                });
            }
            return Ok(done.map(|()| SUCCESS)?);
        }
        Some(Command::Finish { force }) => {
            let mut progress = Progress::default();
            let done = end::finish(&mut *server, *force, now(), &mut progress);
            if !progress.is_empty() {
                output::print(&match arguments.output {
                    Format::Table => finish::text(&progress),
                    Format::Json => output::json(&progress)?,
                });
            }
            return Ok(done.map(|()| SUCCESS)?);
        }
    };
    Ok(output::print(&text))
}

/// Output of `braid ipam release` for programs.
#[derive(Serialize)]
struct Released<'a> {
    node: &'a str,
    released: Vec<Assigned>,
}

/// Returns the time since 1970 in whole seconds.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Duration::from_secs(now.unwrap_or_default().as_secs())
}

fn kubeconfig(arguments: &Arguments) -> Result<PathBuf, Error> {
    if let Some(path) = &arguments.kubeconfig {
        return Ok(path.clone());
    }
    match env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => admin::default_kubeconfig()
            .map_err(|err| err.context("neither --kubeconfig nor $KUBECONFIG is set")),
    }
}

fn inventory_text(inventory: &Inventory, kubeconfig: &Path) -> String {
    if inventory.pools.is_empty() {
        let path = kubeconfig.display();
        return wrap("", &format!("no IPPools in the namespace of {path}"), 0);
    }
    let pools = inventory.pools.iter().map(|pool| {
        let free = match pool.free {
            ..=DIGITS => pool.free.to_string(),
            _ => format!(">{DIGITS}"),
        };
        let [used, held, claimed, mut whereabouts] =
            [pool.used, pool.held, pool.claimed, pool.whereabouts].map(|it| it.to_string());
        if pool.exclusive && pool.whereabouts == 0 {
            "ended".clone_into(&mut whereabouts);
        }
        let [name, range] = [&pool.name, &pool.range].map(Clone::clone);
        vec![name, range, used, held, claimed, whereabouts, free]
    });
    let header = [
        "pool",
        "range",
        "used",
        "held",
        "claimed",
        "Whereabouts",
        "free",
    ];
    let mut text = table(&header, pools.collect(), &[0, 1]);
    if !inventory.nodes.is_empty() {
        let nodes = inventory.nodes.iter().map(|node| {
            let [used, held] = [node.used, node.held].map(|it| it.to_string());
            vec![node.name.clone(), node.state.name().into(), used, held]
        });
        text += "\n";
        text += &table(
            &["node", "Node object", "used", "held"],
            nodes.collect(),
            &[0],
        );
    }
    text + "\n" + &foreign_text(&inventory.whereabouts)
}

fn foreign_text(foreign: &Foreign) -> String {
    let Foreign {
        entries,
        pools,
        returned,
    } = foreign;
    let sentence = match entries {
        0 => "Whereabouts has no entries left".to_owned(),
        1 => format!("Whereabouts has 1 entry in {}", pools.join(", ")),
        _ => format!("Whereabouts has {entries} entries in {}", pools.join(", ")),
    };
    let mut text = wrap("", &sentence, 2);
    if !returned.is_empty() {
        let returned = returned.join(", ");
        let sentence = format!("It is used again after its end, in {returned}");
        text += &wrap("", &sentence, 2);
    }
    text
}

fn assigned_text(assigned: &[Assigned]) -> String {
    if assigned.is_empty() {
        return "no addresses in use\n".to_owned();
    }
    let mut text = String::new();
    for of_pool in assigned.chunk_by(|one, next| one.pool == next.pool) {
        if !text.is_empty() {
            text += "\n";
        }
        text += &wrap("", &of_pool[0].pool, 2);
        text += &rows(of_pool);
    }
    text
}

fn rows(assigned: &[Assigned]) -> String {
    let rows = assigned.iter().map(|one| {
        let container = match one.kind {
            Kind::Held => "(held)".to_owned(),
            Kind::Claimed => one.container_id.clone().unwrap_or_default(),
            Kind::Used | Kind::Whereabouts => short_id(one.container_id.as_deref().unwrap_or("")),
        };
        let node = match one.kind {
            Kind::Whereabouts => Some("(Whereabouts)".to_owned()),
            Kind::Used | Kind::Held | Kind::Claimed => one.node.clone(),
        };
        let [ifname, pod] = [&one.ifname, &one.pod].map(|it| it.clone().unwrap_or_default());
        let node = node.unwrap_or_default();
        vec![one.address.clone(), container, ifname, pod, node]
    });
    let header = ["address", "container", "ifname", "pod", "node"];
    table(&header, rows.collect(), &[1, 3, 4])
}

fn released_text(released: &[Assigned], node: &str, is_done: bool) -> String {
    let mut text = String::new();
    if !released.is_empty() {
        let rows = released.iter().map(|one| {
            let id = one
                .container_id
                .as_deref()
                .map_or("(held)".into(), short_id);
            let ifname = one.ifname.clone().unwrap_or_default();
            vec![one.pool.clone(), one.address.clone(), id, ifname]
        });
        let header = ["pool", "address", "container", "ifname"];
        text += &table(&header, rows.collect(), &[0, 2]);
    }
    if is_done {
        let count = match released.len() {
            1 => "1 address".to_owned(),
            count => format!("{count} addresses"),
        };
        text += &wrap("", &format!("node {node}: {count} released"), 2);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::ipam::whereabouts::fence::NodeState;
    use braid_core::ipam::whereabouts::inventory::{NodeUse, PoolUse};

    fn inventory() -> Inventory {
        let pool = |name: &str, range: &str, whereabouts, free| PoolUse {
            name: name.to_owned(),
            range: range.to_owned(),
            used: 12,
            held: 3,
            claimed: 1,
            whereabouts,
            free,
            exclusive: whereabouts == 0,
        };
        let node = |name: &str, state| NodeUse {
            name: name.to_owned(),
            state,
            used: 6,
            held: 1,
        };
        Inventory {
            pools: vec![
                pool("10.7.0.0-16", "10.7.0.0/16", 2, 65_517),
                pool("lan-fd00---64", "fd00::/64", 0, u64::MAX),
            ],
            nodes: vec![
                node("a", NodeState::Present),
                node("b", NodeState::OutOfService),
            ],
            whereabouts: Foreign {
                entries: 2,
                pools: vec!["10.7.0.0-16".to_owned()],
                returned: Vec::new(),
            },
        }
    }

    #[test]
    fn pools_nodes_and_the_rest_of_whereabouts_are_shown() {
        let expected = "\
pool           range        used  held  claimed  Whereabouts  free
10.7.0.0-16    10.7.0.0/16  12    3     1        2            65517
lan-fd00---64  fd00::/64    12    3     1        ended        >999999

node  Node object     used  held
a     present         6     1
b     out of service  6     1

Whereabouts has 2 entries in 10.7.0.0-16
";
        assert_eq!(inventory_text(&inventory(), Path::new("/k")), expected);
        let none = foreign_text(&Foreign::default());
        assert_eq!(none, "Whereabouts has no entries left\n");
        let again = foreign_text(&Foreign {
            entries: 1,
            pools: vec!["a".to_owned()],
            returned: vec!["a".to_owned()],
        });
        let expected = "Whereabouts has 1 entry in a\nIt is used again after its end, in a\n";
        assert_eq!(again, expected);
    }

    #[test]
    fn no_pool_does_not_mean_that_whereabouts_is_gone() {
        let text = inventory_text(&Inventory::default(), Path::new("/root/config"));
        assert_eq!(text, "no IPPools in the namespace of /root/config\n");
    }

    #[test]
    fn addresses_are_listed_by_pool_in_80_columns() {
        let one = |pool: &str, kind, pod: Option<String>| Assigned {
            pool: pool.to_owned(),
            address: "10.7.0.1".to_owned(),
            kind,
            container_id: Some("4f1c".to_owned()).filter(|_| kind != Kind::Held),
            ifname: Some("net1".to_owned()).filter(|_| kind != Kind::Held),
            pod,
            node: Some("n1".to_owned()).filter(|_| kind != Kind::Whereabouts),
        };
        let all = [
            one("a", Kind::Used, None),
            one("a", Kind::Held, None),
            one("b", Kind::Whereabouts, Some("shop/web".to_owned())),
        ];
        let expected = "\
a
address   container  ifname  pod  node
10.7.0.1  4f1c       net1         n1
10.7.0.1  (held)                  n1

b
address   container  ifname  pod       node
10.7.0.1  4f1c       net1    shop/web  (Whereabouts)
";
        assert_eq!(assigned_text(&all), expected);
        let long = one("b", Kind::Whereabouts, Some("p".repeat(100)));
        let text = assigned_text(&[long]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let text = released_text(&all[..2], "n1", true);
        let expected = "\
pool  address   container  ifname
a     10.7.0.1  4f1c       net1
a     10.7.0.1  (held)
node n1: 2 addresses released
";
        assert_eq!(text, expected);
    }
}
