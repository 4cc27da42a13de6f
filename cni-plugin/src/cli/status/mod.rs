//! `braid status`: the attachments and networks on this node, from the records.

pub(in crate::cli) mod report;

use super::conf::type_of;
use super::install::detect;
use super::output::{self, Format};
use super::shaped::{self, Direction, short};
use super::{Outcome, install};
use braid_core::cni::{Json, NetConf, NetConfList};
use braid_core::name::Ns;
use braid_core::plan::step::Step;
use braid_core::plan::thing::shaping::Traffic;
use braid_core::plan::thing::{LinkRef, Thing};
use braid_node::attach::call_conf;
use braid_node::attach::chain::BRAID;
use braid_node::attach::liveness::netns_of;
use braid_node::attach::status::full;
use braid_node::attach::usage::UsageReader;
use braid_node::ipam::liveness::Netns;
use braid_node::store::record::{self, Attached, Record};
use braid_node::store::root::NODE;
use braid_node::takeover::place;
use braid_node::takeover::root::Root;
use clap::Args;
use report::{AttachmentStatus, NetworkStatus, NodeStatus};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Show the attachments and networks on this node
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Number of displayed digits of a long container id. A long id has at least 64 digits, as the ids
/// of runtimes have. A shorter id is shown whole.
const SHORT_ID_LEN: usize = 12;
const LONG_ID_LEN: usize = 64;

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let status = read()?;
    let shown = output::print(&match arguments.output {
        Format::Table => table(&status),
        Format::Json => output::json(&status)?,
    });
    for sentence in &status.warnings {
        output::tell(format_args!("{sentence}"));
    }
    Ok(shown)
}

/// Reads the status of this node.
fn read() -> Result<NodeStatus, braid_node::Error> {
    let now = SystemTime::now();
    let age = |written| now.duration_since(written).unwrap_or_default();
    let dated = record::list_dated()?;
    let mut attachments = Vec::new();
    for (record, written) in &dated {
        attachments.extend(shown(record, age(*written), netns_of(record)));
    }
    attachments.sort_by(|a, b| {
        (&a.network, &a.container_id, &a.ifname).cmp(&(&b.network, &b.container_id, &b.ifname))
    });
    let records: Vec<Record> = dated.into_iter().map(|(record, _)| record).collect();
    let mut warnings = Vec::new();
    let networks = networks(&records, &mut warnings);
    warnings.extend(full(&records, &NODE, &output::log()));
    // `braid doctor` reports the error.
    warnings.extend(install::lost_names().ok().flatten());
    Ok(NodeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        attachments,
        networks,
        warnings,
    })
}

/// Reads the networks of the records and of the node's conflist.
fn networks(records: &[Record], warnings: &mut Vec<String>) -> Vec<NetworkStatus> {
    let mut usage = UsageReader::default();
    let folder = detect::folders(&Root::new(Path::new("/"))).networks;
    match call_conf::read(&folder.join(place::NAME)) {
        Ok(Some(conf)) => usage.add_network(conf),
        Ok(None) => {}
        Err(err) => warnings.push(format!("{}: {err}", folder.join(place::NAME).display())),
    }
    for record in records {
        usage.add_record(record);
    }
    report::networks(usage.usage())
}

fn shown(record: &Record, age: Duration, netns: Netns) -> Vec<AttachmentStatus> {
    let report = |attached: &Attached| AttachmentStatus {
        pod: pod_of(attached),
        network: attached.network.clone(),
        network_attachment_definition: attached.object.as_ref().map(ToString::to_string),
        plugin: types(attached),
        container_id: record.key.owner.container_id.clone(),
        ifname: attached.ifname.to_string(),
        addresses: addresses(attached),
        host_link: host_link_of(attached),
        netns: record.netns.as_ref().map(|path| path.display().to_string()),
        netns_state: netns.name().into(),
        age_seconds: age.as_secs(),
        bandwidth: shaped::of(record, attached),
    };
    record.attachments.iter().map(report).collect()
}

/// Returns `<namespace>/<name>` of an attachment's pod, if the runtime passed it.
pub(super) fn pod_of(attached: &Attached) -> Option<String> {
    attached.pod().map(|pod| pod.name.to_string())
}

fn addresses(attached: &Attached) -> Vec<String> {
    let mut addresses = Vec::new();
    for step in attached.steps() {
        if let Step::Add(Thing::Addr(addr)) = step
            && addr.at.ns == Ns::Pod
            && addr.at.name == attached.ifname
        {
            addresses.push(addr.net.to_string());
        }
    }
    addresses
}

/// Returns the plugin types of a list, joined by `+`, or the single type of the attachment.
fn types(attached: &Attached) -> String {
    match list_of(attached) {
        Some(list) => {
            let types: Vec<&str> = list.plugins.iter().filter_map(type_of).collect();
            types.join("+")
        }
        None => attached.plugin.clone(),
    }
}

fn list_of(attached: &Attached) -> Option<NetConfList> {
    if attached.plugin != BRAID {
        return None;
    }
    let conf = NetConf::from_json(Json::clone(&attached.conf)).ok()?;
    NetConfList::from_braid(&conf).ok()?
}

fn host_link_of(attached: &Attached) -> Option<String> {
    let link = attached.steps().find_map(host_link)?;
    Some(link.name.to_string())
}

/// Returns the host link of a step that creates a link. For a link with a parent, such as a macvlan
/// or ipvlan, this is the parent. For any other link on the host, this is the link itself. `None`
/// for other links and steps.
pub(super) fn host_link(step: &Step) -> Option<&LinkRef> {
    let Step::Add(Thing::Link(link)) = step else {
        return None;
    };
    if let Some(parent) = link.kind.parent() {
        return Some(parent);
    }
    (link.at.ns == Ns::Host).then_some(&link.at)
}

/// Formats one attachment; `has_pods` adds the columns for Kubernetes.
fn attachment_row(one: &AttachmentStatus, has_pods: bool) -> Vec<String> {
    let mut row = Vec::new();
    if has_pods {
        row.push(one.pod.clone().unwrap_or_default());
        row.push(
            one.network_attachment_definition
                .clone()
                .unwrap_or_default(),
        );
    }
    row.extend([
        one.network.clone(),
        one.plugin.clone(),
        short_id(&one.container_id),
        one.ifname.clone(),
        one.addresses.join(" "),
        one.host_link.clone().unwrap_or_default(),
        one.netns_state.to_string(),
        age_text(one.age_seconds),
    ]);
    row
}

/// Formats a table of the attachments, one of the ranges, and one of the limits, if there are any.
fn table(status: &NodeStatus) -> String {
    let mut tables = vec![attachments_table(&status.attachments)];
    tables.extend(ranges_table(&status.networks));
    tables.extend(limits_table(&status.attachments));
    tables.join("\n")
}

fn attachments_table(all: &[AttachmentStatus]) -> String {
    // The columns for Kubernetes appear only if there is a pod.
    let has_pods = all.iter().any(|one| one.pod.is_some());
    let header = [
        "pod",
        "definition",
        "network",
        "type",
        "container",
        "ifname",
        "addresses",
        "host link",
        "netns",
        "age",
    ];
    let header = if has_pods { &header[..] } else { &header[2..] };
    let rows = all.iter().map(|one| attachment_row(one, has_pods));
    output::table(header, rows)
}

fn ranges_table(networks: &[NetworkStatus]) -> Option<String> {
    let mut rows = Vec::new();
    for network in networks {
        for range in &network.ranges {
            rows.push(vec![
                network.network.clone(),
                range.range.clone(),
                range.used.to_string(),
                range.free.to_string(),
            ]);
        }
    }
    let header = ["network", "range", "used", "free"];
    (!rows.is_empty()).then(|| output::table(&header, rows))
}

fn limits_table(all: &[AttachmentStatus]) -> Option<String> {
    let mut shaped = Vec::new();
    for one in all {
        for direction in &one.bandwidth {
            shaped.push(limit_row(one, direction));
        }
    }
    if shaped.is_empty() {
        return None;
    }
    let header = [
        "container",
        "ifname",
        "direction",
        "limit",
        "burst",
        "shaped by",
        "bytes",
        "packets",
        "delayed",
        "dropped",
        "marked",
        "bypassed",
        "guarded",
    ];
    Some(output::table(&header, shaped))
}

fn limit_row(one: &AttachmentStatus, direction: &Direction) -> Vec<String> {
    let mut row = vec![
        short_id(&one.container_id),
        one.ifname.clone(),
        direction.toward.name().to_owned(),
    ];
    row.extend([
        short(direction.rate),
        short(direction.burst),
        direction.queue.clone(),
    ]);
    row.extend(counter_cells(direction.passed));
    row
}

/// Formats the counters; empty cells without counters.
fn counter_cells(passed: Option<Traffic>) -> [String; 7] {
    let Some(passed) = passed else {
        return [const { String::new() }; 7];
    };
    let Traffic {
        bytes,
        packets,
        delayed,
        dropped,
        marked,
        bypassed,
        guarded,
    } = passed;
    [bytes, packets, delayed, dropped, marked, bypassed, guarded].map(|number| number.to_string())
}

/// Returns the displayed part of a container id.
pub(super) fn short_id(id: &str) -> String {
    let is_long = id.len() >= LONG_ID_LEN;
    match id.get(..SHORT_ID_LEN) {
        Some(short) if is_long => short.to_owned(),
        Some(_) | None => id.to_owned(),
    }
}

/// Formats the two largest units: `45s`, `3m5s`, `2h10m`, `9d4h`.
fn age_text(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::conf;
    use braid_core::cni::Owner;
    use braid_core::k8s::ObjectName;
    use braid_core::name::IfName;
    use braid_core::plan::thing::{Addr, Link, LinkKind};
    use braid_node::store::record::Key;

    fn record() -> Record {
        let name = |text| IfName::parse(text).expect("a name");
        let key = Key {
            owner: Owner::new("pods", "4f1c5d0e9a7b33", "eth0"),
            plugin: BRAID.to_owned(),
        };
        let conf =
            br#"{"name":"pods","type":"braid","plugins":[{"type":"ptp"},{"type":"tuning"}]}"#;
        let conf = Json::parse(conf, "test").expect("json").into();
        let attachment =
            conf::attachment(&key.owner.container_id, "eth0", None, "").expect("an attachment");
        let attached = Attached::new(&key.owner.network, BRAID, &attachment, conf);
        let mut record = Record::new(key, Some("/run/netns/a".into()), vec![attached]);
        let link = Link {
            at: LinkRef::host(name("veth1")),
            mac: None,
            mtu: None,
            up: true,
            master: None,
            kind: LinkKind::Veth {
                peer: LinkRef::pod(name("eth0")),
                peer_mac: None,
            },
        };
        let addr = |at, net: &str| {
            Step::add(Addr {
                at,
                net: net.parse().expect("a net"),
                no_prefix_route: false,
                no_dad: false,
            })
        };
        record.attachments[0].parts = vec![vec![
            Step::Add(Thing::Link(link)),
            addr(LinkRef::pod(name("eth0")), "10.1.0.2/24"),
            addr(LinkRef::host(name("veth1")), "10.1.0.1/32"),
        ]];
        record
    }

    #[test]
    fn json_keys_are_stable() {
        let json =
            serde_json::to_string(&shown(&record(), Duration::from_secs(7), Netns::Alive)[0])
                .expect("json");
        let expected = concat!(
            r#"{"pod":null,"network":"pods","network_attachment_definition":null,"type":"ptp+tuning","container_id":"4f1c5d0e9a7b33","ifname":"eth0","#,
            r#""addresses":["10.1.0.2/24"],"host_link":"veth1","netns":"/run/netns/a","netns_state":"alive","#,
            r#""age_seconds":7,"bandwidth":[]}"#
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn table_shortens_container_ids_of_runtimes() {
        let mut record = record();
        record.key.owner.container_id = "4f1c5d0e9a7b33aa".repeat(4);
        let text = attachments_table(&shown(&record, Duration::from_secs(3725), Netns::Gone));
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            [
                "pods",
                "ptp+tuning",
                "4f1c5d0e9a7b",
                "eth0",
                "10.1.0.2/24",
                "veth1",
                "gone",
                "1h2m"
            ]
        );
    }

    #[test]
    fn pod_and_definition_have_columns_if_there_is_one() {
        let mut record = record();
        record.attachments[0].args =
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web".to_owned();
        record.attachments[0].object = Some(ObjectName {
            namespace: "ns".to_owned(),
            name: "blue".to_owned(),
        });
        let text = attachments_table(&shown(&record, Duration::from_secs(1), Netns::Alive));
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().take(3).collect())
            .collect();
        assert_eq!(
            words,
            [
                ["pod", "definition", "network"],
                ["ns/web", "ns/blue", "pods"]
            ]
        );
    }

    #[test]
    fn age_has_its_two_largest_units() {
        let texts = [0, 59, 61, 3600, 90_061].map(age_text);
        assert_eq!(texts, ["0s", "59s", "1m1s", "1h0m", "1d1h"]);
    }
}
