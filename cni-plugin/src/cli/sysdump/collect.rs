//! Parts of the report, read from the node. Nothing is changed.

use super::report::Report;
use super::{logs, metrics, records};
use crate::cli::install::detect;
use crate::cli::names;
use braid_core::cni::netconf::is_identifier;
use braid_core::ipam::dhcp::config::SOCKET;
use braid_node::attach::leases;
use braid_node::ipam::dhcp::store::Store;
use braid_node::ipam::host_local::read_leases;
use braid_node::snapshot::{self, Kind};
use braid_node::source::files;
use braid_node::store::record::{self, Record, foreign};
use braid_node::store::root::NODE;
use braid_node::sys::netlink::Socket;
use braid_node::sys::netns::{self, NetNs};
use braid_node::sys::outputs;
use braid_node::sys::release::release;
use braid_node::takeover::names_of;
use braid_node::takeover::root::Root;
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time for all checks of `braid doctor`.
const DOCTOR_LIMIT: Duration = Duration::from_secs(30);
const LISTINGS: [(&str, Kind); 7] = [
    ("links.json", Kind::Links),
    ("addresses.json", Kind::Addresses),
    ("routes.json", Kind::Routes),
    ("rules.json", Kind::Rules),
    ("neighbours.json", Kind::Neighbours),
    ("fdb.json", Kind::Fdb),
    ("qdiscs.json", Kind::Qdiscs),
];

/// Adds all parts.
pub(super) fn all<W: Write>(
    node: &str,
    metrics_port: u16,
    report: &mut Report<W>,
) -> io::Result<()> {
    let version = format!(
        "braid {}\nLinux {} {}\nnode {node}\n",
        env!("CARGO_PKG_VERSION"),
        release(),
        std::env::consts::ARCH,
    );
    report.file("version.txt", version)?;
    report.part("features.txt", features())?;
    kernel("host", report, || Ok(Sockets::open()))?;
    let records = all_records(report)?;
    namespaces(&records, report)?;
    all_leases(&records, report)?;
    conflists(report)?;
    report.part("metrics.txt", metrics::read(metrics_port))?;
    logs::add(Path::new(logs::FOLDER), report)
}

/// Returns the output of `braid doctor`. Its probes load programs and create links, so it is another
/// process with a limited time.
fn features() -> io::Result<Vec<u8>> {
    let doctor = Command::new("/proc/self/exe")
        .arg0(names::PROGRAM)
        .arg("doctor")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut ended = outputs::wait(doctor, &[], DOCTOR_LIMIT)?;
    ended.stdout.append(&mut ended.stderr);
    Ok(ended.stdout)
}

/// Netlink sockets in one network namespace.
struct Sockets {
    route: io::Result<Socket>,
    nft: io::Result<Socket>,
}

impl Sockets {
    /// Opens the sockets in the namespace of this thread.
    fn open() -> Self {
        Self {
            route: Socket::route().map_err(io::Error::other),
            nft: Socket::netfilter().map_err(io::Error::other),
        }
    }
}

/// Adds the kernel's objects of a network namespace below the folder `folder`.
fn kernel<W: Write>(
    folder: &str,
    report: &mut Report<W>,
    open: impl FnOnce() -> Result<Sockets, Box<dyn Error>>,
) -> io::Result<()> {
    let Sockets { mut route, mut nft } = match open() {
        Ok(sockets) => sockets,
        Err(err) => {
            report.error(format_args!("{folder}: {err}"));
            return Ok(());
        }
    };
    for (name, kind) in LISTINGS {
        let listing = match &mut route {
            Ok(socket) => snapshot::list(socket, kind).map_err(|err| err.to_string()),
            Err(err) => Err(format!("open a netlink socket: {err}")),
        };
        report.listing(&format!("{folder}/{name}"), listing)?;
    }
    let tables = match &mut nft {
        Ok(socket) => snapshot::tables(socket).map_err(|err| err.to_string()),
        Err(err) => Err(format!("open a netlink socket: {err}")),
    };
    report.listing(&format!("{folder}/nftables.json"), tables)
}

/// Adds the records. Returns the records of this boot.
fn all_records<W: Write>(report: &mut Report<W>) -> io::Result<Vec<Record>> {
    let dated = record::list_dated().unwrap_or_else(|err| {
        report.error(format_args!("records.json: {err}"));
        Vec::new()
    });
    let (mut shown, mut records) = (Vec::new(), Vec::new());
    for (record, written) in dated {
        shown.push(records::record(&record, Some(written)));
        records.push(record);
    }
    report.list("records.json", &shown)?;
    match record::damaged_in(Path::new(record::ROOT)) {
        Ok(damaged) => {
            for one in damaged {
                let container = one.container_id;
                report.error(format_args!("a record of container {container} is damaged"));
            }
        }
        Err(err) => report.error(format_args!("{}: {err}", record::ROOT)),
    }
    match foreign::all(&NODE) {
        Ok(all) => {
            let shown: Vec<_> = all.iter().map(|one| records::record(one, None)).collect();
            report.list("foreign-records.json", &shown)?;
        }
        Err(err) => report.error(format_args!("foreign-records.json: {err}")),
    }
    Ok(records)
}

/// Adds the kernel's objects of each container with a record.
fn namespaces<W: Write>(records: &[Record], report: &mut Report<W>) -> io::Result<()> {
    let mut done = BTreeSet::new();
    for record in records {
        let container = &record.key.owner.container_id;
        let Some(path) = &record.netns else {
            continue;
        };
        if is_identifier(container) && done.insert(container) {
            kernel(&format!("netns/{container}"), report, || {
                inside(record, path)
            })?;
        }
    }
    Ok(())
}

/// Opens sockets in the container's namespace.
fn inside(record: &Record, path: &Path) -> Result<Sockets, Box<dyn Error>> {
    let sockets = NetNs::open(path)?.run(Sockets::open)?;
    let cookie = sockets.route.as_ref().ok().map(netns::cookie_of);
    let cookie = cookie.and_then(Result::ok);
    if !record.is_of(cookie) {
        return Err(format!("another network namespace is at {}", path.display()).into());
    }
    Ok(sockets)
}

fn all_leases<W: Write>(records: &[Record], report: &mut Report<W>) -> io::Result<()> {
    let mut shown = Vec::new();
    for folder in leases::folders(records, &NODE) {
        let network = leases::network_of(&folder);
        match read_leases(&folder) {
            Ok(leases) => {
                for lease in &leases {
                    shown.push(records::lease(&network, lease));
                }
            }
            Err(err) => report.error(format_args!("leases.json: {err}")),
        }
    }
    report.list("leases.json", &shown)?;
    let mut shown = Vec::new();
    for lease in Store::of(Path::new(SOCKET)).list() {
        shown.push(json!({
            "network": lease.owner.network,
            "container_id": lease.owner.container_id,
            "ifname": lease.owner.ifname,
            "mac": lease.mac.to_string(),
            "addresses": lease.addresses(),
        }));
    }
    report.list("dhcp-leases.json", &shown)
}

fn conflists<W: Write>(report: &mut Report<W>) -> io::Result<()> {
    let root = Root::new(Path::new("/"));
    let folder = detect::folders(&root).networks;
    let names = match names_of(&root, &folder) {
        Ok(names) => names,
        Err(err) => {
            report.error(format_args!("conflists: {}: {err}", folder.display()));
            return Ok(());
        }
    };
    for name in names {
        let read = files::bytes(&folder.join(&name)).map_err(|err| err.to_string());
        let reduced = read.and_then(|bytes| records::conflist(&bytes));
        report.part(&format!("conflists/{name}"), reduced)?;
    }
    Ok(())
}
